"""Where a float comes from and where it goes: the questions behind keeping a node wide."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import onnx_ir as ir

from engine.precision.formats import is_float, is_weight
from engine.precision.ops import casts_between_floats, holds_graphs, moves_data
from engine.precision.prepare import nodes

# fmt: off
_ARITHMETIC = frozenset({
    "Add", "Cast", "Concat", "Cos", "Div", "Einsum", "Expand", "Floor", "Identity", "MatMul", "Mul",
    "Neg", "Pow", "Range", "Reciprocal", "Reshape", "Round", "Sin", "Slice", "Squeeze", "Sub", "Tile",
    "Transpose", "Unsqueeze", "Where",
})
# fmt: on


class Origins:
    """Which values are known from shapes alone, and which are plain arithmetic on integers."""

    def __init__(self, model: ir.Model) -> None:
        self._shapes: set[ir.Value] = set()
        self._integers: set[ir.Value] = set()
        for node in nodes(model):
            if holds_graphs(node):
                continue
            if self._is_from_shapes(node):
                self._shapes.update(node.outputs)
            if self._is_from_integers(node):
                self._integers.update(node.outputs)

    def from_shapes(self, value: ir.Value) -> bool:
        """Whether the value depends on the shapes of the graph's inputs, never on their content."""
        return is_weight(value) or value in self._shapes

    def from_integers(self, value: ir.Value) -> bool:
        """Whether a float is elementwise arithmetic on casts of integers or booleans and on constants."""
        return is_weight(value) or value in self._integers

    def _is_from_shapes(self, node: ir.Node) -> bool:
        if node.op_type in {"Shape", "Size", "Constant"}:
            return True
        inputs = [value for value in node.inputs if value is not None]
        return bool(inputs) and all(map(self.from_shapes, inputs))

    def _is_from_integers(self, node: ir.Node) -> bool:
        if node.op_type not in _ARITHMETIC or node.domain:
            return False
        floats = [value for value in node.inputs if value is not None and is_float(value)]
        return all(map(self.from_integers, floats))


def upstream(value: ir.Value, follow: Callable[[ir.Value], bool]) -> Iterator[ir.Node]:
    """The nodes that made ``value``, back through every float for which ``follow`` holds."""
    seen: set[ir.Node] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        node = current.producer()
        if node is None or node in seen or not is_float(current) or not follow(current):
            continue
        seen.add(node)
        yield node
        waiting += [item for item in node.inputs if item is not None]


def readers(value: ir.Value, through: Collection[str] = (), moves: bool = True) -> list[ir.Node | None]:
    """The nodes that ``value`` ends up in, each once; None stands for a graph output.

    Nodes that only move data are passed through (unless ``moves`` is false), and so are the ops ``through``.
    """
    found: dict[ir.Node | None, None] = {}
    seen: set[ir.Value] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop(0)
        if current in seen:
            continue
        seen.add(current)
        if current.is_graph_output():
            found[None] = None
        for node, _ in current.uses():
            passes = node.op_type in through or (moves and (moves_data(node) or casts_between_floats(node)))
            if passes and any(map(is_float, node.outputs)):
                waiting += [output for output in node.outputs if is_float(output)]
            else:
                found[node] = None
    return list(found)
