"""Which of the axes that run at several sizes torch.export keeps symbolic, over which range."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from engine.initial.attempts import Bench, Trial, export
from engine.initial.axes import Group, Position, resized
from engine.recipe import Axis
from engine.torch_model import Port


def narrow(
    bench: Bench,
    trials: Mapping[str, Trial],
    outputs: Sequence[str],
    groups: Sequence[Group],
    must: Collection[str],
) -> tuple[list[Group], dict[Position, str], str]:
    """Groups that export keeps, why each other is lost, and why export cannot be used, if so.

    It cannot when it takes not even fixed sizes, or loses an axis whose name is in ``must``: the other exporter
    then gets all groups.
    """
    port = Port(bench.model, list(trials), outputs).eval()
    moving = [group for group in groups if group.axis.min < group.axis.max]
    kept, error = _try(bench, port, trials, groups, moving)
    if not error:
        return kept, {}, ""
    bench.say("torch.export refuses all axes together; trying them one by one")
    _, fixed_error = _try(bench, port, trials, groups, [])
    if fixed_error:
        return list(groups), {}, f"does not take the model: {fixed_error}"
    chosen: list[Group] = []
    lost: dict[Position, str] = {}
    for group in moving:
        _, error = _try(bench, port, trials, groups, [*chosen, group])
        if error and group.axis.min == 1 and group.axis.max > 2 and not group.asked:
            whole, group.axis = group.axis, Axis(2, max(2, group.axis.opt), group.axis.max)
            if not _try(bench, port, trials, groups, [*chosen, group])[1]:
                group.notes.append(f"From 2: with 1 torch.export says {error}")
                error = ""
            else:
                group.axis = whole
        if error:
            error += _unrolled(bench, error)
        if error and group.name in must:
            return list(groups), {}, f"cannot keep axis '{group.name}' dynamic, as is asked: {error}"
        if error:
            why = (
                f"torch.export cannot keep it dynamic: {error}. The torchscript exporter may;"
                f" --axis {group.name}=MIN:OPT:MAX has init try it"
            )
            lost |= dict.fromkeys(group.places, why)
        else:
            chosen.append(group)
    kept, _ = _try(bench, port, trials, groups, chosen)
    return kept, lost, ""


def _unrolled(bench: Bench, error: str) -> str:
    """Why export fixes an axis of a recurrent model; empty where that is not the reason."""
    layers = [
        f"'{name}'" for name, layer in bench.model.named_modules() if isinstance(layer, torch.nn.RNNBase)
    ]
    if not layers or "specialized it" not in error:
        return ""
    return f" (it traces recurrent layers, here {', '.join(layers[:3])}, step by step over time)"


def _try(
    bench: Bench, port: Port, trials: Mapping[str, Trial], groups: Sequence[Group], moving: Sequence[Group]
) -> tuple[list[Group], str]:
    """Export with only ``moving`` symbolic. The groups come back with the range that export left them."""
    sizes = {place: _inside(group, index) for index, group in enumerate(groups) for place in group.places}
    example = resized(trials, sizes)
    dims = {group.name: torch.export.Dim(group.name, min=group.axis.min, max=group.axis.max)
            for group in moving}  # fmt: skip
    shapes = tuple(
        {axis: dims[group.name] for group in moving for name, axis in group.places if name == own}
        for own in trials
    )
    bench.count += 1
    program, error = export(port, list(bench.tensors(example).values()), shapes)
    if error:
        return [], error
    found = _ranges(program, list(trials))
    for group in moving:
        low, high = found.get(group.places[0], (group.axis.min, group.axis.max))
        problem = _restrict(group, max(low, group.axis.min), min(high, group.axis.max))
        if problem:
            return [], problem
    return list(moving), ""


def _restrict(group: Group, low: int, high: int) -> str:
    if (low, high) == (group.axis.min, group.axis.max):
        return ""
    if low >= high:
        return "it leaves a single size"
    if not group.asked:
        group.notes.append(f"torch.export keeps it symbolic over {low}..{high} only.")
        group.axis = Axis(low, min(max(group.axis.opt, low), high), high)
        return ""
    return f"the export narrowed it to {low}..{high}"


def _inside(group: Group, index: int) -> int:
    """A size inside the range, not the same for every group and not 0 or 1, which export takes for constants."""
    inner = [size for size in range(max(2, group.axis.min), group.axis.max + 1) if size != group.axis.opt]
    return inner[min(index, len(inner) - 1)] if inner else group.axis.max


def _ranges(program: Any, names: Sequence[str]) -> dict[Position, tuple[int, int]]:
    nodes = [node for node in program.graph.nodes
             if node.op == "placeholder" and node.name in program.graph_signature.user_inputs]  # fmt: skip
    found: dict[Position, tuple[int, int]] = {}
    for name, node in zip(names, nodes, strict=True):
        for axis, size in enumerate(node.meta["val"].shape):
            bounds = program.range_constraints.get(getattr(getattr(size, "node", None), "expr", None))
            if bounds is not None:
                found[name, axis] = (int(bounds.lower), int(min(bounds.upper, 2**31)))
    return found
