"""Which tensors lose most by rounding: each node once more on rounded inputs, in one run beside the FP32 graph.

Every node is judged with exact inputs, so an overflow at the beginning hides nothing that is behind it. The score
orders the search only; what is needed is decided by rehearsals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from engine import runtime
from engine.diagnosis.units import Unit, is_root
from engine.graph import files
from engine.graph.fresh import Names
from engine.precision import ops
from engine.precision.formats import DTYPES, Precision, is_float
from engine.samples import Array

# fmt: off
# An error of one input counts against those of the others in these.
_SUMS = frozenset({"Add", "Concat", "Max", "Mean", "Min", "Sub", "Sum", "Where"})
# fmt: on
_SELF = 1e-3  # what a tensor's own rounding counts against what it does to the nodes that read it


@dataclass(frozen=True)
class Ranked:
    """A unit and how much its rounding changes: relative error of what reads it, infinite past the range."""

    unit: Unit
    score: float


def rank(
    model: ir.Model, units: Sequence[Unit], base: Precision, path: Path, feeds: Mapping[str, Array]
) -> tuple[Ranked, ...]:
    """The units, the most harmful first; of several that mean the same nodes, one.

    ``model`` is the prepared FP32 graph; ``path`` is written and removed.
    """
    twin = _Twin(model.clone(), base)
    twin.build()
    try:
        files.save(twin.model, path)
        outputs = runtime.run(runtime.session(path, prepack=False), feeds)
    finally:
        path.unlink(missing_ok=True)
    figures = _Figures(twin, outputs)
    scored = [Ranked(unit, figures.score(unit)) for unit in units]
    scored.sort(key=lambda item: -item.score)  # stable: graph order among equals
    found: dict[frozenset[str], Ranked] = {}
    for item in scored:
        found.setdefault(frozenset(item.unit.nodes), item)
    return tuple(found.values())


class _Twin:
    """The FP32 graph with, per node, a twin on rounded inputs and norms of what differs as further outputs."""

    def __init__(self, model: ir.Model, base: Precision) -> None:
        self.model, self._dtype = model, DTYPES[base]
        self._names = Names(model)
        self._rounded: dict[ir.Value, ir.Value] = {}
        self.own: dict[str, tuple[str, str]] = {}  # value -> names of the norms (difference, itself)
        self.op: dict[str, str] = {}  # node -> operator
        self.reads: dict[str, list[str]] = {}  # node -> the float values that it reads, as they began
        self.nodes: dict[str, list[tuple[str, str]]] = {}  # node -> the same for each output

    def build(self) -> None:
        graph = self.model.graph
        for node in list(graph):
            if not ops.is_free(node) and ops.touches_float(node) and not ops.holds_graphs(node):
                self._beside(node)
        for value in [
            *graph.inputs,
            *graph.initializers.values(),
            *(v for n in list(graph) for v in n.outputs),
        ]:
            if value in self._rounded and value.name and is_root(value):
                self.own[value.name] = self._norms(self._rounded[value], value)

    def _beside(self, node: ir.Node) -> None:
        inputs = [
            self._round(value) if is_float(value) and value is not None else value for value in node.inputs
        ]
        if all(one is other for one, other in zip(inputs, node.inputs, strict=True)):
            return
        twin = ir.Node(
            node.domain, node.op_type, inputs, dict(node.attributes),
            num_outputs=len(node.outputs), name=self._names.fresh(f"{node.name}.twin"), overload=node.overload,
        )  # fmt: skip
        for mine, its in zip(twin.outputs, node.outputs, strict=True):
            mine.name = self._names.fresh(f"{its.name}.twin") if its.name else ""
            mine.type, mine.shape = its.type, its.shape
        self.model.graph.append(twin)
        self.op[node.name or ""] = node.op_type
        self.reads[node.name or ""] = [_began(value).name or "" for value in node.inputs if value is not None]
        self.nodes[node.name or ""] = [
            self._norms(mine, its)
            for mine, its in zip(twin.outputs, node.outputs, strict=True)
            if its.name and isinstance(its.type, ir.TensorType)
        ]
        for value in node.outputs:
            if is_float(value):
                self._round(value)

    def _round(self, value: ir.Value) -> ir.Value:
        """``value`` through the narrow type and back; integers in FP64 or behind a narrow type stay as they are."""
        if value.dtype != ir.DataType.FLOAT:
            return value
        if value not in self._rounded:
            down = self._node("Cast", [value], self._dtype, to=self._dtype.value)
            self._rounded[value] = self._node("Cast", [down], ir.DataType.FLOAT, to=ir.DataType.FLOAT.value)
        return self._rounded[value]

    def _norms(self, mine: ir.Value, its: ir.Value) -> tuple[str, str]:
        if its.dtype == ir.DataType.FLOAT:
            pair = self._node("Sub", [mine, its], ir.DataType.FLOAT), its
        else:
            to = ir.DataType.FLOAT.value
            first, second = (self._node("Cast", [value], ir.DataType.FLOAT, to=to) for value in (mine, its))
            pair = self._node("Sub", [first, second], ir.DataType.FLOAT), second
        names = []
        for value in pair:
            norm = self._node("ReduceL2", [value], ir.DataType.FLOAT, keepdims=0)
            norm.shape = ir.Shape(())
            self.model.graph.outputs.append(norm)
            names.append(norm.name or "")
        return names[0], names[1]

    def _node(self, op: str, inputs: list[ir.Value], dtype: ir.DataType, **attributes: int) -> ir.Value:
        named = self._names.fresh(f"{inputs[0].name}.{op}")
        attrs = {key: ir.AttrInt64(key, number) for key, number in attributes.items()}
        node = ir.Node("", op, inputs, attrs, name=named)
        node.outputs[0].name, node.outputs[0].type = self._names.fresh(named), ir.TensorType(dtype)
        self.model.graph.append(node)
        return node.outputs[0]


def _began(value: ir.Value) -> ir.Value:
    """The tensor that ``value`` is a moved form of."""
    while not is_root(value):
        node = value.producer()
        floats = [item for item in node.inputs if item is not None and is_float(item)] if node else []
        if not floats:
            break
        value = floats[0]
    return value


class _Figures:
    def __init__(self, twin: _Twin, outputs: Mapping[str, Array]) -> None:
        self._twin, self._outputs = twin, outputs

    def score(self, unit: Unit) -> float:
        if unit.value not in self._twin.own:
            return 0.0  # inside a subgraph
        difference, own = self._pair(self._twin.own[unit.value])
        if difference == 0.0:
            return 0.0
        if not math.isfinite(own):
            return math.inf
        return max([_SELF * own, *(self._reader(unit, name, difference) for name in unit.read_by)])

    def _reader(self, unit: Unit, name: str, difference: float) -> float:
        """Relative error of a reader's worst output, or the part of it that this tensor has in a sum."""
        found = [self._pair(pair)[1] for pair in self._twin.nodes.get(name, [])]
        worst = max(found, default=0.0)
        if self._twin.op.get(name) not in _SUMS:
            return worst
        others = [
            self._pair(self._twin.own[value])[0]
            for value in self._twin.reads[name]
            if value in self._twin.own
        ]
        return worst * min(1.0, difference / max(others, default=difference))

    def _pair(self, names: tuple[str, str]) -> tuple[float, float]:
        """Norm of a difference, and that over the norm of the reference; infinite where it is not finite."""
        difference, norm = (float(self._outputs[name]) for name in names)
        if not math.isfinite(difference) or not math.isfinite(norm):
            return math.inf, math.inf
        return difference, difference / norm if norm else (math.inf if difference else 0.0)
