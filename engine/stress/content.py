"""What a graph contains that decides which inputs are hard for it: its ops, its indices, what it compares with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

# Ops behind which a tensor holds the very numbers that came in.
_SAME = frozenset({
    "Cast", "Reshape", "Unsqueeze", "Squeeze", "Expand", "Slice", "Concat", "Identity", "Flatten", "Transpose",
    "Gather", "GatherND", "Tile", "Split",
})  # fmt: skip
# Ops behind which it still holds the indices or the condition.
_PASSING = _SAME | {"Where", "Add", "Sub", "Clip", "Max", "Min"}
_INDEX = {
    "Gather": 1, "GatherElements": 1, "GatherND": 1, "ScatterElements": 1, "ScatterND": 1, "OneHot": 0,
}  # fmt: skip
_COMPARING = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
# Ops whose result jumps where a float input passes an edge.
_STEPS = _COMPARING | {
    "Floor", "Ceil", "Round", "Mod", "Sign", "Cast", "CastLike", "QuantizeLinear", "DynamicQuantizeLinear", "ArgMax",
    "ArgMin", "TopK", "Hardmax",
}
_MOST_COMPARED = 1024  # elements of a constant that are looked at: more is data, not special cases
_DEEPEST = 64


@dataclass(frozen=True)
class Content:
    """``ops`` are the op types anywhere in the graph, ``indices`` the inputs that select elements.

    ``compared`` holds for whole-numbered inputs the constants that the graph compares their numbers with.
    """

    ops: frozenset[str]
    indices: frozenset[str]
    compared: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def any_of(self, *ops: str) -> tuple[str, ...]:
        """Those of ``ops`` that the graph contains, in the order given."""
        return tuple(op for op in ops if op in self.ops)


def read(model: ir.Model) -> Content:
    """Look through a graph, its subgraphs and functions included."""
    nodes = [*model.graph.all_nodes()]
    for function in model.functions.values():
        nodes += function.all_nodes()
    indices = {value.name for value in model.graph.inputs if value.name and _selects(value)}
    compared = {
        value.name: numbers
        for value in model.graph.inputs
        if value.name
        and value.dtype is not None
        and value.dtype.is_integer()
        and (numbers := _compared(value))
    }
    return Content(frozenset(node.op_type for node in nodes), frozenset(indices), compared)


def steps(model: ir.Model) -> tuple[str, ...]:
    """The step functions of floats in a graph, by name."""
    found = {node.op_type for node in model.graph.all_nodes() if node.op_type in _STEPS and _jumps(node)}
    return tuple(sorted(found))


def _jumps(node: ir.Node) -> bool:
    taken = node.inputs[0]
    if taken is None or (taken.dtype is not None and not taken.dtype.is_floating_point()):
        return False
    made = node.outputs[0].dtype if node.op_type in ("Cast", "CastLike") else None
    return made is None or not made.is_floating_point()


def uses(value: ir.Value, through: frozenset[str] = _PASSING) -> Iterator[tuple[ir.Node, int]]:
    """Where a tensor is used, as node and place, also behind the ops of ``through``."""
    yield from _uses(value, through, 0, set())


def _selects(value: ir.Value) -> bool:
    """Does an input reach the index operand of an op through ops that keep its numbers?"""
    return any(_INDEX.get(node.op_type) == place for node, place in uses(value))


def _compared(value: ir.Value) -> tuple[float, ...]:
    found: set[float] = set()
    for node, place in uses(value, _SAME):
        other = node.inputs[1 - place] if node.op_type in _COMPARING else None
        tensor = ir.convenience.get_const_tensor(other) if other is not None else None
        if tensor is not None and tensor.size <= _MOST_COMPARED:
            found |= {float(number) for number in tensor.numpy().reshape(-1)}
    return tuple(sorted(found))


def _uses(
    value: ir.Value, through: frozenset[str], depth: int, seen: set[int]
) -> Iterator[tuple[ir.Node, int]]:
    if id(value) in seen or depth > _DEEPEST:
        return
    seen.add(id(value))
    for use in value.uses():
        yield use.node, use.idx
        first = use.idx == 0 or use.node.op_type in ("Concat", "Where", "Add", "Sub", "Max", "Min")
        if use.node.op_type in through and first:
            for output in use.node.outputs:
                yield from _uses(output, through, depth + 1, seen)
