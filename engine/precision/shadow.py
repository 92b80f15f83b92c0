"""A graph that computes on CPU what the lowered one computes in FP16 or BF16, rounding where it rounds.

ONNX Runtime's CPU kernels do not round between chained low-precision ops. The shadow has the same
topology with FP32 kernels, and after every low-precision result an explicit Cast to the narrow type
and back. Inside one op it computes in FP32: optimistic where a GPU kernel accumulates in FP16,
pessimistic where an engine fuses ops and never rounds in between (see ``unrounded``).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from engine.graph.fresh import Names
from engine.graph.provenance import KEYS
from engine.precision import ops
from engine.precision.casts import place_after
from engine.precision.formats import LOW, PRECISIONS, is_weight
from engine.precision.prepare import nodes

ROUND = "portwright.shadow"  # on the casts that a shadow adds: "down", "up" or "weight"
# fmt: off
_EXACT = frozenset({
    "Abs", "Clip", "GlobalMaxPool", "Max", "MaxPool", "Min", "Neg", "ReduceMax", "ReduceMin", "Relu",
    "Sign", "TopK",
})
# fmt: on


def build_shadow(model: ir.Model, unrounded: Collection[str] = ()) -> ir.Model:
    """Return the shadow of a lowered ``model``, which stays as it is; weights stay by reference.

    Graph inputs and outputs become FP32 and keep their names; a low-precision input is rounded first.
    Every op is rounded, except for the values named in ``unrounded`` (inside a fused layer). What only moves such a
    value on, out of the layer, is rounded in its place.
    """
    shadow = model.clone()
    return _Shadow(shadow, frozenset(unrounded)).build()


class _Shadow:
    def __init__(self, model: ir.Model, unrounded: frozenset[str]) -> None:
        self._model, self._unrounded = model, unrounded
        self._names = Names(model)
        self._raw = set[ir.Value]()  # values that were left unrounded, and what moves them
        self._lookups: set[ir.Node] = set()
        self._position = {node: index for index, node in enumerate(nodes(model))}

    def build(self) -> ir.Model:
        for graph in self._model.graphs():
            assert isinstance(graph, ir.Graph)
            for value in [*graph.initializers.values()]:
                if value.dtype in LOW:
                    self._widen_weight(value)
            for value in graph.inputs:
                if value.dtype in LOW and not is_weight(value):
                    self._widen_input(value, rounds=graph is self._model.graph)
        for node in self._position:
            self._widen_node(node)
        return self._model

    def _widen_weight(self, value: ir.Value) -> None:
        """Keep the weight narrow on disk and cast it where it is first read; of a table only the rows looked up."""
        uses = [(node, index) for node, index in value.uses() if not (node.op_type == "Gather" and index == 0)]
        self._lookups |= {node for node, _ in value.uses()} - {node for node, _ in uses}
        if not uses and not value.is_graph_output():
            return
        up = self._cast_node(value, ir.DataType.FLOAT, "weight", {})
        graph = value.graph
        assert isinstance(graph, ir.Graph)
        here = [node for node, _ in uses if node.graph is graph]
        if len(here) == len(uses) and here:
            graph.insert_before(min(here, key=self._position.__getitem__), up)
        else:
            place_after(value, up)
        _replace(value, up.outputs[0], up, *self._lookups)

    def _widen_input(self, value: ir.Value, rounds: bool) -> None:
        dtype = value.dtype
        assert dtype is not None
        value.type = ir.TensorType(ir.DataType.FLOAT)
        if rounds:
            self._round(value, dtype, {})

    def _widen_node(self, node: ir.Node) -> None:
        low = [value for value in node.outputs if value.dtype in LOW]
        if not low:
            return
        if node.op_type == "Cast" or node in self._lookups:
            self._widen_narrow(node)
            return
        _widen_attributes(node)
        exact = ops.moves_data(node) or node.op_type in _EXACT or ops.holds_graphs(node)
        exact = exact and self._raw.isdisjoint(node.inputs)
        for value in low:
            dtype = value.dtype
            assert dtype is not None
            value.type = ir.TensorType(ir.DataType.FLOAT)
            if exact:
                continue
            if value.name in self._unrounded:
                self._raw.add(value)
            else:
                self._round(value, dtype, node.metadata_props)

    def _widen_narrow(self, node: ir.Node) -> None:
        """A cast to a narrow type, or a look-up in a narrow table, needs no rounding: only the way back is missing."""
        value, name = node.outputs[0], node.outputs[0].name
        up = self._cast_node(value, ir.DataType.FLOAT, "up", node.metadata_props)
        place_after(value, up)
        _replace(value, up.outputs[0], up)
        assert value.dtype is not None
        value.name = self._names.fresh(f"{name}.{PRECISIONS[value.dtype]}")
        up.outputs[0].name = name

    def _round(self, value: ir.Value, dtype: ir.DataType, props: dict[str, str]) -> None:
        """Put a cast to ``dtype`` and back behind ``value``; what is read afterwards keeps its name."""
        name, is_input = value.name, value.producer() is None
        down = self._cast_node(value, dtype, "down", props)
        up = self._cast_node(down.outputs[0], ir.DataType.FLOAT, "up", props)
        place_after(value, down)
        place_after(down.outputs[0], up)
        _replace(value, up.outputs[0], down)
        if is_input:
            up.outputs[0].name = self._names.fresh(f"{name}.rounded")
        else:
            value.name = self._names.fresh(f"{name}.wide")
            up.outputs[0].name = name
        down.outputs[0].name = self._names.fresh(f"{name}.{PRECISIONS[dtype]}")

    def _cast_node(self, value: ir.Value, dtype: ir.DataType, role: str, props: dict[str, str]) -> ir.Node:
        kept = {key: text for key, text in props.items() if key in KEYS}
        node = ir.Node(
            "",
            "Cast",
            [value],
            {"to": ir.AttrInt64("to", dtype.value)},
            name=self._names.fresh(f"{value.name}.{role}"),
            metadata_props=kept | {ROUND: role},
        )
        made = node.outputs[0]
        made.name = self._names.fresh(f"{value.name}.{PRECISIONS[dtype]}")
        made.type, made.shape = ir.TensorType(dtype), value.shape
        return node


def _replace(old: ir.Value, new: ir.Value, *keep: ir.Node) -> None:
    """Let every reader of ``old`` but the nodes ``keep``, and every graph output, take ``new``."""
    for node, index in list(old.uses()):
        if node not in keep:
            node.replace_input_with(index, new)
    if old.is_graph_output():
        graph = old.graph
        assert isinstance(graph, ir.Graph)
        for index, value in enumerate(graph.outputs):
            if value is old:
                graph.outputs[index] = new


def _widen_attributes(node: ir.Node) -> None:
    """Let an op that names its own type make FP32, with the same (already rounded) content."""
    for name, attribute in list(node.attributes.items()):
        if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype in LOW:
            wide = attribute.as_tensor().numpy().astype(np.float32)
            node.attributes[name] = ir.AttrTensor(name, ir.tensor(wide))
        elif name == ops.type_attribute(node):
            node.attributes[name] = ir.AttrInt64(name, ir.DataType.FLOAT.value)
