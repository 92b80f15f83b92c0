"""Which nodes must stay wide so that a rehearsal meets its limits. Not a step of the route."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from engine.plan import Plan
from engine.recipe import Override
from engine.steps.context import Context, Done

if TYPE_CHECKING:
    from engine.diagnosis.find import Found
    from engine.diagnosis.margin import Margin
    from engine.diagnosis.trials import Sample, Trials


def run(context: Context) -> Done:
    """Facts ``verdict``, margins, ``nodes`` and ``overrides`` (as plain data): see :mod:`engine.diagnosis.find`.

    The overrides were rehearsed as they stand, at every shape, before they are called found.
    """
    from engine.diagnosis import find, quantised, trials

    plan = context.plan
    graph = context.before("lower")
    taken = [trials.read(context.samples(shape).parent, shape) for shape in plan.parity_shapes]
    precision = plan.precision
    tried = trials.Trials(
        graph, precision.base, precision.floats, precision.io, precision.overrides, plan.accept.engine,
        context.ranges,
        lambda count: context.progress(f"rehearsal {count + 1}", count, count + 1),
    )  # fmt: skip
    found = (quantised if precision.calibration else find).find(tried, taken)
    facts = _facts(found, plan)
    if found.verdict == "overrides":
        facts["narrow"] = [index for index, item in enumerate(precision.overrides) if item.type != "fp32"]
    if found.verdict in ("found", "kinds"):
        facts |= _named(found, tried, taken, plan)
    return Done(facts=facts | {"rehearsals": tried.count})


def _facts(found: Found, plan: Plan) -> dict[str, Any]:
    return {
        "verdict": found.verdict,
        "base": plan.precision.base,
        "wider": found.wider,
        "also": list(found.also),
        "before": plain(found.before),
        "after": plain(found.after) if found.after else None,
        "nodes": list(found.nodes),
        "tensors": list(found.tensors),
        "of": found.of,
        "ranked": [[name, None if math.isinf(score) else score] for name, score in found.ranked],
    }


def plain(margin: Margin) -> dict[str, Any]:
    """A margin without infinities, which JSON cannot hold."""
    ratio = None if math.isinf(margin.ratio) else margin.ratio
    value = margin.value if margin.value is not None and math.isfinite(margin.value) else None
    return asdict(margin) | {"ratio": ratio, "value": value}


def _named(found: Found, tried: Trials, taken: Sequence[Sample], plan: Plan) -> dict[str, Any]:
    """The overrides, and the margin with them; one for each node where those in fewer words do not hold."""
    from engine.diagnosis import lines
    from engine.graph import files
    from engine.precision import ops
    from engine.precision.prepare import nodes, prepare

    report, quantised, _ = tried.lowered(tried.overrides)
    model = files.load(tried.graph)
    prepare(model)
    short, long = lines.lines(model, found, report, quantised)
    free = {node.name or "" for node in nodes(model) if ops.is_free(node)}
    exact = _types(tried, long)
    for named in dict.fromkeys((short, long)):
        # As they stand: the figures go into the recipe. The same types are the same graph, which was rehearsed.
        same_graph = found.after is not None and _types(tried, named) == exact
        after = found.after if same_graph and found.after else tried.of([*tried.overrides, *named], taken)
        if after.good:
            taken_by, _, _ = tried.lowered([*tried.overrides, *named])
            names = {name for item in taken_by.overrides[len(tried.overrides) :] for name in item.nodes}
            was, now = _types(tried, ()), _types(tried, named)
            names = {name for name in names - free if was.get(name) != now.get(name)}
            because = _because(found.before, after, len(named))
            plain_lines = [lines.plain(replace(line, because=because)) for line in named]
            return {"overrides": plain_lines, "after": plain(after), "takes": sorted(names)}
    return {"verdict": "unconfirmed", "after": plain(after)}


def _types(tried: Trials, lines: Sequence[Override]) -> dict[str, str]:
    report, quantised, _ = tried.lowered([*tried.overrides, *lines])
    return dict(quantised.types(report.node_types))


def _because(before: Margin, after: Margin, lines: int) -> str:
    """What the lines do together: what each does alone was not rehearsed."""
    was = f"{before.what} {before.value:.3g}" if before.value is not None else "not finite"
    now = f"{after.value:.3g}" if after.value is not None else "0"
    metric = f" {after.what}" if after.what != before.what else ""
    it, them = ("it", "it") if lines == 1 else (f"these {lines} lines", "them")
    return f"rehearsed: {was} without {it}, {now}{metric} with {them}"
