"""The cheapest assignment of types that meets the limits, out of the bases that the recipe names. Not on the route."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from engine.recipe import FLOATS, FloatType, NodeType
from engine.steps.context import Context, Done

BUDGET = 100
BASES: tuple[NodeType, ...] = ("int8", "fp16")


def run(context: Context) -> Done:
    """Facts ``points``: one for each assignment that was rehearsed at every shape, with cost and margin; ``best`` is
    the cheapest within the limits, or None; ``notes`` say what was not tried.
    """
    from engine.diagnosis import frontier, lines, trials
    from engine.diagnosis.cost import Sizes
    from engine.graph import files
    from engine.precision.prepare import prepare

    plan, precision = context.plan, context.plan.precision
    graph = context.before("lower")
    taken = [trials.read(context.samples(shape).parent, shape) for shape in plan.parity_shapes]
    bases = precision.search.base if precision.search else BASES
    budget = (precision.search.budget if precision.search else None) or BUDGET
    model = files.load(graph)
    prepare(model)
    sizes = Sizes(model, plan.shapes.get("opt", {}))
    search = frontier.Search(
        sizes, taken, budget, lambda count: context.progress(f"rehearsal {count + 1}", count, budget)
    )
    for base in bases:
        floats = _floats(base, bases, precision.floats)
        kept = tuple(item for item in precision.overrides if item.type in FLOATS)
        tried = trials.Trials(graph, base, floats, precision.io, kept, plan.accept.engine, context.ranges)
        search.base(tried)
    points = [asdict(point) | {"cost": asdict(point.cost) | {"whole": point.cost.whole}} for point in search.points]
    for plain, point in zip(points, search.points, strict=True):
        plain["margin"] = {"ratio": point.margin.ratio if point.margin.ratio < 1e30 else None,
                           "what": point.margin.what, "where": point.margin.where}  # fmt: skip
        plain["overrides"] = [lines.plain(line) for line in point.overrides]
    best = search.best
    return Done(facts={
        "points": points, "best": None if best is None else search.points.index(best), "notes": search.notes,
        "rehearsals": search.count, "budget": budget,
    })  # fmt: skip


def _floats(base: NodeType, bases: Sequence[NodeType], own: FloatType) -> FloatType:
    """A float base itself; around a quantised one the next float type in the list, or the recipe's own."""
    later = bases[bases.index(base) :]
    return next((kind for item in later for kind in FLOATS if kind == item), own if own != "fp32" else "fp16")
