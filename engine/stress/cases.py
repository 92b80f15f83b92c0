"""The hard inputs of one port: which are made, at which sizes, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from engine import samples
from engine.plan import Plan, PlannedCase, PlannedInput
from engine.stress import compared, kinds
from engine.stress.content import Content

LONG = ("mask-right", "mask-left", "mask-one")  # what a mask lets through adds up along its axis
TOGETHER = 3  # with more float inputs than this, a kind changes all of them at once


@dataclass(frozen=True)
class Case:
    """``within``: inside what the recipe declares, so that a breach fails the port; else it is an open issue.

    ``name`` is the kind, a dot and the input or axis; the file of the case is called so.
    """

    name: str
    kind: str
    sizes: Mapping[str, int]
    why: str
    within: bool = True
    changes: Mapping[str, samples.Change] = field(default_factory=dict)
    added: PlannedCase | None = None


def cases(plan: Plan, content: Content) -> tuple[Case, ...]:
    """Every case for the plan's inputs and a graph's content, in a fixed order; those left out are among them."""
    little = _little(plan)
    return (*_sizes(plan, little), *_values(plan, content, little), *_added(plan, little))


def inputs(plan: Plan, case: Case) -> dict[str, samples.Array]:
    """The inputs of a case by name."""
    if case.added is not None:
        plan = replace(plan, inputs={**plan.inputs, **case.added.inputs})
    return samples.make(plan, case.name, case.sizes, case.changes)


def left_out(plan: Plan, case: Case) -> str:
    """The recipe's reason to leave a case out; empty when it is to be run."""
    names = (case.name, case.kind)
    return next((item.because for item in plan.stress.leave_out if item.case in names), "")


def _sizes(plan: Plan, little: Mapping[str, int]) -> Iterator[Case]:
    moving = {name: axis for name, axis in plan.axes.items() if axis.min < axis.max}
    if not moving:
        return
    yield Case("little", "little", little, "dynamic axes")
    for name in moving if len(moving) > 1 else ():
        sizes = {other: axis.max if other == name else axis.min for other, axis in plan.axes.items()}
        yield Case(f"corner.{name}", "corner", sizes, f"{len(moving)} dynamic axes")


def _little(plan: Plan) -> dict[str, int]:
    """A small size for each axis: another one for each, and none that another shape has, where the ranges allow."""
    chosen: dict[str, int] = {}
    for name, axis in plan.axes.items():
        taken = {sizes[name] for sizes in plan.shapes.values() if name in sizes} | set(chosen.values())
        near = range(axis.min, min(axis.max, axis.min + 64) + 1)
        free = [size for size in near if size not in taken]
        chosen[name] = next((size for size in free if size > 4), free[-1] if free else axis.min)
    return chosen


def _values(plan: Plan, content: Content, little: Mapping[str, int]) -> Iterator[Case]:
    forms = {
        name: kinds.takes(name, item, plan.inputs, name in content.indices)
        for name, item in plan.inputs.items()
    }
    tied = content.any_of("TopK", "ArgMax", "ArgMin", "NonMaxSuppression", "Unique")
    for kind in kinds.KINDS:
        ops = content.any_of(*kind.ops)
        if kind.ops and not ops:
            continue
        mine = [name for name, form in forms.items() if form in kind.takes]
        groups = [mine] if len(mine) > TOGETHER else [[name] for name in mine]
        for group in groups:
            within = all(kind.within(plan.inputs[name]) for name in group) and not (tied and kind.ties)
            why = f"the graph has {', '.join(ops[:3])}" if ops else _reason(forms[group[0]])
            suffix = f".{group[0]}" if len(group) == 1 else ""
            changes = dict.fromkeys(group, kind.make)
            yield Case(f"{kind.name}{suffix}", kind.name, little, why, within, changes)
            if kind.name in LONG and (sizes := _long(plan, plan.inputs[group[0]])):
                yield Case(f"{kind.name}{suffix}.long", kind.name, sizes, why, within, changes)
    for name, form in forms.items():
        if form in ("integer", "index") and name in content.compared:
            for end, why, changed in compared.changes(plan, name, content.compared[name], little):
                yield Case(f"{compared.KIND}.{name}{end}", compared.KIND, little, why, changes=changed)


def _long(plan: Plan, item: PlannedInput) -> dict[str, int]:
    """The last axis of an input at its largest size and the others at their smallest; nothing where it is fixed."""
    last = item.shape[-1] if item.shape else 0
    if not isinstance(last, str) or plan.axes[last].min == plan.axes[last].max:
        return {}
    return {name: axis.max if name == last else axis.min for name, axis in plan.axes.items()}


def _reason(form: kinds.Takes | None) -> str:
    return {
        "float": "a float input", "integer": "a whole-numbered input", "index": "the input selects elements",
        "mask": "the input is a mask", "opaque": "values from outside the recipe",
    }[form or "float"]  # fmt: skip


def _added(plan: Plan, little: Mapping[str, int]) -> Iterator[Case]:
    for item in plan.stress.add:
        yield Case(
            item.name, item.name, {**little, **item.sizes}, item.because or "the recipe adds it", added=item
        )
