"""Sums that a kernel which accumulates in FP16 could break, judged by the limits of the recipe.

Apart from the step that measured them, so that another limit needs no other rehearsal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine import accept
from engine.comparison import Comparison
from engine.plan import Plan
from engine.values import Issue, StepResult
from engine.wording import number, pattern_of

_Sum = Mapping[str, Any]  # as engine/precision/sums.py has them, with the ``shape``


def issues(plan: Plan, rehearsed: StepResult) -> tuple[Issue, ...]:
    """One issue for modules that differ by a number only."""
    limit, metric = _relative_limit(plan, accept.comparisons(rehearsed))
    groups: dict[str, list[_Sum]] = {}
    for item in rehearsed.measurements.get("sums", ()):
        if item["overflows"] or item["error"] > limit:
            groups.setdefault(pattern_of(item["module"]) or item["node"], []).append(item)
    return tuple(_summed(where, items, limit, metric) for where, items in groups.items())


def _summed(where: str, items: Sequence[_Sum], limit: float, metric: str) -> Issue:
    over = [item for item in items if item["overflows"]]
    worst = max(over or items, key=lambda item: item["total"] if over else item["error"])
    nodes = dict.fromkeys(item["node"] for item in items)
    harm = (
        f"partial sums may reach {number(worst['total'])} and FP16 ends at 65504;"
        f" the result is {number(worst['result'])}"
        if over
        else f"an error up to about {number(worst['error'])} of the largest result; {metric} allows {number(limit)}"
    )
    more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
    return Issue(
        "rehearse", "numeric", f"sums in {where} may not bear FP16 accumulation",
        f"{worst['op']} of {worst['length']} terms: {harm}",
        "the rehearsal sums in FP32: measure on a GPU, or keep the module in fp32 (precision.overrides)",
        f"{worst['node']} at shape {worst['shape']}{more}", "open",
    )  # fmt: skip


def _relative_limit(plan: Plan, found: Sequence[Comparison]) -> tuple[float, str]:
    """The strictest of ``accept.engine`` as an error relative to the outputs, and the key that it is from."""
    limits = plan.accept.engine
    scale = max((item.scale for item in found if item.scale), default=1.0)
    known: list[tuple[float, str]] = []
    if limits.rel_l2 is not None:
        known.append((limits.rel_l2, "rel_l2"))
    if limits.max_abs is not None:
        known.append((limits.max_abs / scale, "max_abs"))
    if limits.cosine is not None:
        known.append(((2 * max(0.0, 1 - limits.cosine)) ** 0.5, "cosine"))
    limit, metric = min(known, default=(1.0, "no limit on errors;"))
    return limit, f"accept.engine.{metric}" if known else metric
