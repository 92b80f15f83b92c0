"""What the comparisons on hard inputs mean: a claim for those that the recipe declares, open issues for the rest.

A hard input's outputs may be far larger than the usual ones and its rounding errors with them. So an error may
grow with the output, and where it does not pass by that, it is compared with PyTorch's own rounding error on the
very same input, measured against FP64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.claims import Claim
from engine.comparison import Comparison
from engine.plain import from_plain
from engine.plan import Plan
from engine.values import Issue, StepResult

NAME = "accept.onnx on hard inputs"
NOISE_FACTOR = 10.0  # largest accepted error as a multiple of PyTorch's own rounding error
_WITHOUT_LIMIT = (
    1e-4  # of the output's magnitude, where accept.onnx limits neither max_abs, mean_abs nor rel_l2
)
_VAST = 1e300  # stands for a division by zero: a record holds no infinities
_LIMIT = "error / allowed error <= 1"


@dataclass(frozen=True)
class Excess:
    """One comparison: its error as a multiple of what is allowed (None with a ``problem``)."""

    output: str
    case: str
    kind: str
    within: bool
    ratio: float | None
    problem: str
    max_abs: float | None

    @property
    def broken(self) -> bool:
        return self.ratio is None or not self.ratio <= 1.0


def judge(plan: Plan, stress: StepResult, parity: StepResult) -> tuple[Excess, ...]:
    """Every output of every case that was made; one that was not compared is a problem."""
    found = _read(parity, "stress")
    usual = _usual(_read(parity, "comparisons"))
    there = {(item.output, item.shape): item for item in found}
    results = []
    for case in made(stress):
        for output in plan.outputs:
            item = there.get((output, case["name"])) or Comparison(output, case["name"], "was not compared")
            ratio = None if item.problem else _ratio(item, plan, usual.get(output, 0.0))
            results.append(
                Excess(output, case["name"], case["kind"], case["within"], ratio, item.problem, item.max_abs)
            )
    named = set(plan.outputs)
    results += [Excess(item.output, item.shape, "", True, None, item.problem, None)
                for item in found if item.output not in named]  # fmt: skip
    return tuple(results)


def made(stress: StepResult) -> Sequence[Mapping[str, Any]]:
    """The cases that were made, as the stress step recorded them."""
    cases: Sequence[Mapping[str, Any]] = stress.facts.get("cases", ())
    return [case for case in cases if case["state"] == "made"]


def claim(excesses: Sequence[Excess], evidence: str) -> Claim:
    """One claim over every case inside what the recipe declares."""
    mine = [item for item in excesses if item.within]
    if not mine:
        return Claim(NAME, "not run", _LIMIT, why="no hard input could be made for this graph")
    worst = max(mine, key=_rank)
    where = f"{worst.output} at {worst.case}"
    if not worst.broken:
        return Claim(NAME, "pass", _LIMIT, worst.ratio, where, evidence)
    broken = sum(item.broken for item in mine)
    why = worst.problem or f"off by {worst.max_abs:.2g}, {worst.ratio:.2g} times what is allowed"
    more = f" (and {broken - 1} more)" if broken > 1 else ""
    return Claim(NAME, "fail", _LIMIT, worst.ratio, where, evidence, why + more)


def beyond(excesses: Sequence[Excess]) -> Iterator[Issue]:
    """An open issue for each kind that breaks outside what the recipe declares."""
    seen: set[str] = set()
    for item in excesses:
        if item.within or not item.broken or item.kind in seen:
            continue
        seen.add(item.kind)
        found = item.problem or f"off by {item.max_abs:.2g}"
        yield Issue(
            "parity", "numeric",
            f"outside the declared values the graph differs from the model: {item.output} at {item.case}",
            cause=found,
            fix="declare such values to have them judged, or leave the case out under stress with a reason",
            evidence=f"replay {item.case}", disposition="open",
        )  # fmt: skip


def flipped(found: Sequence[Comparison], steps: Sequence[str]) -> Iterator[Issue]:
    """A line for each output whose reference itself is on two sides of an edge in FP32 and in FP64."""
    for output in dict.fromkeys(item.output for item in found if item.flips):
        mine = [item for item in found if item.output == output and item.flips]
        worst = max(mine, key=lambda item: item.flips)
        more = f", and at {len(mine) - 1} more hard inputs" if len(mine) > 1 else ""
        yield Issue(
            "parity", "numeric",
            f"{output}: PyTorch in FP32 and in FP64 are a step apart at {worst.flips} of {worst.elements} numbers of"
            f" {worst.shape}{more}",
            cause=f"rounding decides at the edge of a step function ({', '.join(steps)})",
            fix="there the graph must give the one or the other; what is allowed follows from the other numbers",
            evidence=f"replay {worst.shape}",
        )  # fmt: skip


def _rank(item: Excess) -> float:
    return math.inf if item.ratio is None or math.isnan(item.ratio) else item.ratio


def _read(parity: StepResult, key: str) -> tuple[Comparison, ...]:
    found: tuple[Comparison, ...] = from_plain(tuple[Comparison, ...], parity.measurements.get(key, []))
    return found


def _usual(found: Sequence[Comparison]) -> dict[str, float]:
    """The largest magnitude of each output on the recipe's own values."""
    usual: dict[str, float] = {}
    for item in found:
        usual[item.output] = max(usual.get(item.output, 0.0), item.scale or 0.0)
    return usual


def _ratio(item: Comparison, plan: Plan, usual: float) -> float:
    assert item.max_abs is not None
    assert item.mean_abs is not None
    assert item.rel_l2 is not None
    limits, scale = plan.accept.onnx, item.scale or 0.0
    grown = scale / usual if usual and scale > usual else 1.0
    parts = []
    if limits.max_abs is not None:
        parts.append(item.max_abs / (limits.max_abs * grown))
    if limits.mean_abs is not None:
        parts.append(item.mean_abs / (limits.mean_abs * grown))
    if limits.rel_l2 is not None:
        parts.append(min(item.rel_l2 / limits.rel_l2, _over(item.max_abs, limits.rel_l2 * usual)))
    if not parts:
        parts.append(item.max_abs / (_WITHOUT_LIMIT * max(scale, usual, 1e-30)))
    ratio = max(parts)
    return min(ratio, _over(item.max_abs, NOISE_FACTOR * item.noise)) if item.noise else ratio


def _over(part: float, whole: float) -> float:
    if part == 0.0:
        return 0.0
    return part / whole if whole else _VAST
