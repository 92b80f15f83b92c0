"""What a graph contains that decides which inputs are hard for it: its ops, and which inputs are indices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

# Ops behind which a tensor still holds the indices or the condition that came in.
_PASSING = frozenset({
    "Cast", "Reshape", "Unsqueeze", "Squeeze", "Expand", "Slice", "Concat", "Identity", "Flatten", "Transpose",
    "Where", "Add", "Sub", "Gather", "GatherND", "Tile", "Split", "Clip", "Max", "Min",
})  # fmt: skip
_INDEX = {
    "Gather": 1, "GatherElements": 1, "GatherND": 1, "ScatterElements": 1, "ScatterND": 1, "OneHot": 0,
}  # fmt: skip
_DEEPEST = 64


@dataclass(frozen=True)
class Content:
    """``ops`` are the op types anywhere in the graph, ``indices`` the inputs that select elements."""

    ops: frozenset[str]
    indices: frozenset[str]

    def any_of(self, *ops: str) -> tuple[str, ...]:
        """Those of ``ops`` that the graph contains, in the order given."""
        return tuple(op for op in ops if op in self.ops)


def read(model: ir.Model) -> Content:
    """Look through a graph, its subgraphs and functions included."""
    nodes = [*model.graph.all_nodes()]
    for function in model.functions.values():
        nodes += function.all_nodes()
    indices = {value.name for value in model.graph.inputs if value.name and _selects(value)}
    return Content(frozenset(node.op_type for node in nodes), frozenset(indices))


def _selects(value: ir.Value) -> bool:
    """Does an input reach the index operand of an op through ops that keep its numbers?"""
    return any(_INDEX.get(node.op_type) == place for node, place in _uses(value, 0, set()))


def _uses(value: ir.Value, depth: int, seen: set[int]) -> Iterator[tuple[ir.Node, int]]:
    if id(value) in seen or depth > _DEEPEST:
        return
    seen.add(id(value))
    for use in value.uses():
        yield use.node, use.idx
        first = use.idx == 0 or use.node.op_type in ("Concat", "Where", "Add", "Sub", "Max", "Min")
        if use.node.op_type in _PASSING and first:
            for output in use.node.outputs:
                yield from _uses(output, depth + 1, seen)
