"""Q/DQ put into an FP32 graph: one pair for an activation and float type, one DQ for a weight.

The weight is stored quantised; nothing else of the graph changes. ``lower`` then gives the pairs their float types:
a Q takes the type that arrives, a DQ that of the node that reads it, so that no cast stands between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from engine.graph.fresh import Names
from engine.graph.provenance import KEYS
from engine.precision.casts import place_after
from engine.precision.formats import QUANTISED, Precision, QuantType
from engine.precision.prepare import nodes
from engine.precision.quantizable import MARK, Weight, activation_of, block_of, weight_of
from engine.precision.selectors import Assignment, module_of
from engine.quantize import grid
from engine.quantize.weights import QuantisedTensor, largest
from engine.recipe import NodeType
from engine.samples import Array
from engine.values import Issue


@dataclass(frozen=True)
class Unquantised:
    """A node that stays in its float type though a quantised one was asked, and why."""

    node: str
    op: str
    module: str
    asked: QuantType
    reason: str


@dataclass
class Quantised:
    """What was put in. ``nodes`` maps each quantised node to its type, ``readers`` to the DQ nodes in front of it.

    ``scales`` are those of activations by tensor, ``weights`` the bytes of each quantised weight as stored.
    """

    nodes: dict[str, QuantType] = field(default_factory=dict)
    readers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    scales: dict[str, float] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    kept: list[Unquantised] = field(default_factory=list)
    added: dict[str, Precision] = field(default_factory=dict)  # Q and DQ nodes -> float type

    def types(self, floats: Mapping[str, Precision]) -> dict[str, NodeType]:
        """The type of every node but the pairs, given the float types of all."""
        return {name: self.nodes.get(name, kind) for name, kind in floats.items() if name not in self.added}

    def facts(self) -> dict[str, Any]:
        return {
            "nodes": dict(sorted(self.nodes.items())),
            "scales": {name: self.scales[name] for name in sorted(self.scales)},
            "pairs": len(self.added),
            "weight_bytes": sum(self.weights.values()),
            "kept": [f"{item.node} ({item.op}): {item.reason}" for item in self.kept],
        }

    def issues(self) -> tuple[Issue, ...]:
        """Nodes that did not get the type that was asked."""
        return tuple(
            Issue("lower", "numeric", f"{item.node} ({item.op}) is not {item.asked}", item.reason,
                  "it stays in its float type", item.module)
            for item in self.kept
        )  # fmt: skip


def quantise(
    model: ir.Model, assignment: Assignment, ranges: Mapping[str, float]
) -> tuple[Assignment, Quantised]:
    """Put the pairs in for ``assignment.quantised``; returns the assignment with types for the new nodes too.

    ``ranges`` holds the largest magnitude of each activation by the name of its tensor; INT4 needs none.
    """
    writer = _Writer(model, assignment, ranges)
    for node in list(nodes(model)):
        kind = assignment.quantised.get(node.name or "")
        if kind is not None:
            writer.take(node, kind)
    done = writer.done
    return replace(assignment, types={**assignment.types, **done.added}, quantised=done.nodes), done


class _Writer:
    def __init__(self, model: ir.Model, assignment: Assignment, ranges: Mapping[str, float]) -> None:
        self._model, self._types, self._ranges = model, assignment.types, ranges
        self._names = Names(model)
        self._codes: dict[tuple[ir.Value, QuantType, Precision], ir.Value] = {}  # what a Q gives
        self._restored: dict[tuple[ir.Value, QuantType, Precision, int], ir.Node] = {}  # what a DQ gives
        self.done = Quantised()

    def take(self, node: ir.Node, kind: QuantType) -> None:
        floats, weight = self._types[node.name or ""], weight_of(node)
        assert weight is not None
        block = block_of(weight) if kind == "int4" else None
        tops = largest(weight, block)
        scales = grid.scale_for(tops, kind, floats)
        reason = "" if np.isfinite(tops).all() else "its weight is not finite"
        reason = reason or (f"weight: {why}" if (why := grid.misfit(tops, kind, floats)) else "")
        if kind != "int4":
            reason = reason or self._unfit(node, kind, floats)
        if reason:
            self._keep(node, kind, reason)
            return
        pairs = [] if kind == "int4" else [self._activation(node, kind, floats)]
        for maker in pairs:
            node.replace_input_with(0, maker.outputs[0])
        maker = self._weight(weight, scales, kind, floats, block, node)
        old = weight.value
        node.replace_input_with(1, maker.outputs[0])
        if not old.uses() and not old.is_graph_output() and not old.is_graph_input() and old.graph is not None:
            assert isinstance(old.graph, ir.Graph)
            old.graph.initializers.pop(old.name or "", None)
        name = node.name or ""
        self.done.nodes[name] = kind
        self.done.readers[name] = tuple(item.name or "" for item in (*pairs, maker))

    def _unfit(self, node: ir.Node, kind: QuantType, floats: Precision) -> str:
        name = activation_of(node).name or ""
        top = self._ranges.get(name)
        if top is None:
            return f"no range is known of its input {name!r}"
        if top == 0:
            return f"its input {name!r} was 0 throughout the calibration"
        why = grid.misfit(np.array([top]), kind, floats)
        return f"input {name!r}: {why}" if why else ""

    def _keep(self, node: ir.Node, kind: QuantType, reason: str) -> None:
        self.done.kept.append(Unquantised(node.name or "", node.op_type, module_of(node), kind, reason))

    def _activation(self, node: ir.Node, kind: QuantType, floats: Precision) -> ir.Node:
        value = activation_of(node)
        if (value, kind, floats, 0) in self._restored:
            return self._restored[value, kind, floats, 0]
        scale = grid.scale_for(np.array(self._ranges[value.name or ""]), kind, floats)
        name = value.name or ""
        if self.done.scales.get(name, float(scale)) != float(scale):  # the same tensor in another type as well
            name = f"{name} ({kind}, {floats})"
        self.done.scales[name] = float(scale)
        code = self._codes.get((value, kind, floats))
        if code is None:
            zero = self._constant(f"{value.name}_zero", np.zeros((), QUANTISED[kind].numpy()), value)
            inputs = [value, self._constant(f"{value.name}_scale", scale, value), zero]
            maker = self._node("QuantizeLinear", inputs, {}, node, f"{value.name}_{kind}", floats)
            code = self._codes[value, kind, floats] = maker.outputs[0]
            code.type, code.shape = ir.TensorType(QUANTISED[kind]), value.shape
            place_after(value, maker)
        restored = self._dequantise(code, scale, {}, node, f"{value.name}_{kind}_{floats}", floats)
        restored.outputs[0].shape = value.shape
        place_after(code, restored)
        self._restored[value, kind, floats, 0] = restored
        return restored

    def _weight(
        self, weight: Weight, scales: Array, kind: QuantType, floats: Precision, block: int | None, node: ir.Node
    ) -> ir.Node:
        key = (weight.value, kind, floats, weight.channel)
        if key in self._restored:
            return self._restored[key]
        name = self._names.fresh(f"{weight.value.name}_{kind}")
        tensor = QuantisedTensor(weight, scales, kind, block, name)
        stored = self._initializer(name, tensor, weight.value)
        self.done.weights[name] = int(np.ceil(tensor.nbytes))
        attributes = {"axis": weight.summed if block else weight.channel}
        if block:
            attributes["block_size"] = block
        made = self._dequantise(stored, scales, attributes, node, f"{name}_{floats}", floats)
        made.outputs[0].shape = ir.Shape(weight.shape)
        # Late, so that not all weights are wide at once; but a reader in a subgraph may come before any in the graph.
        first = next(reader for reader in nodes(self._model) if weight.value in reader.inputs)
        if first.graph is not None and first.graph is weight.value.graph:
            first.graph.insert_before(first, made)
        else:
            place_after(weight.value, made)
        self._restored[key] = made
        return made

    def _dequantise(
        self, code: ir.Value, scale: Array, attributes: Mapping[str, int], node: ir.Node, name: str,
        floats: Precision,
    ) -> ir.Node:  # fmt: skip
        inputs = [code, self._constant(f"{code.name}_scale", scale, code)]
        made = self._node("DequantizeLinear", inputs, attributes, node, name, floats)
        made.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        return made

    def _node(
        self, op: str, inputs: list[ir.Value], attributes: Mapping[str, int], near: ir.Node, name: str,
        floats: Precision,
    ) -> ir.Node:  # fmt: skip
        props = {key: text for key, text in near.metadata_props.items() if key in KEYS}
        made = ir.Node(
            "", op, inputs, [ir.AttrInt64(key, number) for key, number in attributes.items()],
            name=self._names.fresh(f"{op}_{name}"), metadata_props=props | {MARK: floats},
        )  # fmt: skip
        made.outputs[0].name = self._names.fresh(name)
        self.done.added[made.name or ""] = floats
        return made

    def _constant(self, name: str, array: Array, near: ir.Value) -> ir.Value:
        name = self._names.fresh(name)
        return self._initializer(name, ir.tensor(array, name=name), near)

    def _initializer(self, name: str, tensor: ir.TensorProtocol, near: ir.Value) -> ir.Value:
        shape = ir.Shape(tensor.shape.numpy())
        value = ir.Value(name=name, shape=shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
        graph = near.graph if isinstance(near.graph, ir.Graph) else self._model.graph
        graph.register_initializer(value)
        return value
