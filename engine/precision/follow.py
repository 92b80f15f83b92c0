"""Types for nodes that only move data: whatever neither rounds nor casts back and forth."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx_ir as ir

from engine.precision import ops
from engine.precision.formats import is_float, is_weight
from engine.precision.prepare import owners
from engine.precision.report import Boundary

_WIDEST = (ir.DataType.FLOAT, ir.DataType.BFLOAT16, ir.DataType.FLOAT16)


def follow(
    model: ir.Model,
    settled: Mapping[ir.Node, ir.DataType],
    free: Collection[ir.Node],
    io: Boundary,
    base: ir.DataType,
) -> dict[ir.Node, ir.DataType]:
    """Types for the ``free`` nodes, given those of all others.

    A free node differs from the base only if a value of that other type comes in and a reader of that
    type waits behind it; one that makes floats out of none takes the widest type that is read, unless it
    looks them up in a weight that a reader takes in the base type: half the bytes, and no more casts.
    """
    return _Neighbours(model, settled, frozenset(free), io, base).choose()


class _Neighbours:
    """The types that reach each free node from above and from below, through other free nodes."""

    def __init__(
        self,
        model: ir.Model,
        settled: Mapping[ir.Node, ir.DataType],
        free: frozenset[ir.Node],
        io: Boundary,
        base: ir.DataType,
    ) -> None:
        self._model, self._settled, self._free = model, settled, free
        self._io, self._base = io, base
        self._owners = owners(model)
        self._before: dict[ir.Node, set[ir.DataType]] = {node: set() for node in free}
        self._after: dict[ir.Node, set[ir.DataType]] = {node: set() for node in free}

    def choose(self) -> dict[ir.Node, ir.DataType]:
        known = -1
        while known != (known := self._count()):
            for node in self._free:
                for value in node.inputs:
                    if value is not None and is_float(value) and not is_weight(value):
                        self._before[node] |= self._arriving(value)
                for value in node.outputs:
                    if is_float(value):
                        self._after[node] |= self._leaving(value)
        return {node: self._chosen(node) for node in self._free}

    def _count(self) -> int:
        return sum(map(len, self._before.values())) + sum(map(len, self._after.values()))

    def _chosen(self, node: ir.Node) -> ir.DataType:
        before, after = self._before[node], self._after[node]
        if not any(map(is_float, node.outputs)):
            common = before
        elif not before:
            common = set() if self._base in after and _reads_weight(node) else after
        elif ops.casts_between_floats(node) and len(after) == 1:
            common = after  # it may go straight to the type that is read
        else:
            common = before & after
        opsets = self._model.opset_imports
        fitting = (t for t in _WIDEST if t in common and t != self._base and not ops.refuses(node, t, opsets))
        return next(fitting, self._base)

    def _arriving(self, value: ir.Value) -> set[ir.DataType]:
        maker = value.producer()
        if maker is not None:
            return self._before[maker] if maker in self._free else {self._settled[maker]}
        return {self._boundary(value)}

    def _leaving(self, value: ir.Value) -> set[ir.DataType]:
        found: set[ir.DataType] = set()
        for node, _ in value.uses():
            if node not in self._free:
                found.add(self._settled[node])
            elif not ops.is_blind(node):
                found |= self._after[node]
        if value.is_graph_output():
            found.add(self._boundary(value))
        return found

    def _boundary(self, value: ir.Value) -> ir.DataType:
        """The type of a graph's input or output: that of the owning node, or the model's own."""
        owner = self._owners.get(value.graph) if value.graph is not None else None
        if owner is not None:
            return self._settled.get(owner, ir.DataType.FLOAT)
        return value.dtype if self._io == "keep" and value.dtype else self._base


def _reads_weight(node: ir.Node) -> bool:
    return any(value is not None and is_float(value) and is_weight(value) for value in node.inputs)
