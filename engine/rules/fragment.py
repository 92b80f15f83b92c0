"""The matched part of a graph as a small model of its own, what replaces it, and putting that in place.

Values of a fragment carry the names of the pattern, so that proofs and Python rules can speak of ``x``
and not of ``val_104``. Constants are carried by reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from engine.graph import provenance
from engine.rules.constants import dims_of, element_type, tensor_of
from engine.rules.match import Match
from engine.rules.pattern import Capture, Pattern, PatternNode

FRAGMENT_IR_VERSION = 10


def canonical(match: Match) -> dict[str, str]:
    """Each bound input name of the pattern to the first name of the same value."""
    first: dict[ir.Value, str] = {}
    names: dict[str, str] = {}
    for name in match.rule.match.inputs:
        value = match.values.get(name)
        if value is not None:
            names[name] = first.setdefault(value, name)
    return names


def cut(match: Match, imports: Mapping[str, int]) -> ir.Model:
    """A copy of the matched nodes: what the pattern takes in are inputs, or initializers where constant."""
    pattern = match.rule.match
    copies = {match.values[name]: boundary(match, name) for name in dict.fromkeys(canonical(match).values())}
    for name in pattern.constants:
        value = match.values.get(name)
        if value is not None and value not in copies:
            copies[value] = _constant(name, value)
    named = {value: name for name, value in match.values.items() if value is not None}
    nodes = []
    for node in match.nodes:
        outputs = [_like(value, named.get(value, f"unnamed_{value.name}")) for value in node.outputs]
        copies |= dict(zip(node.outputs, outputs, strict=True))
        inputs = [copies[value] if value is not None else None for value in node.inputs]
        attributes = list(node.attributes.values())
        nodes.append(ir.Node(node.domain, node.op_type, inputs, attributes, outputs=outputs))
    results = [copies[match.output(name)] for name in pattern.outputs]
    return _model(copies.values(), results, nodes, imports)


def boundary(match: Match, name: str) -> ir.Value:
    """A fresh value that stands for pattern input ``name`` outside the graph it was matched in."""
    value = match.values[name]
    assert value is not None
    return _constant(name, value) if tensor_of(value) is not None else _like(value, name)


def _like(value: ir.Value, name: str) -> ir.Value:
    return ir.Value(name=name, shape=_shape(value), type=value.type)


def _shape(value: ir.Value) -> ir.Shape | None:
    dims = dims_of(value)
    return None if dims is None else ir.Shape(list(dims))


def _constant(name: str, value: ir.Value) -> ir.Value:
    tensor = tensor_of(value)
    dtype = element_type(value)
    assert tensor is not None and dtype is not None
    return ir.Value(name=name, shape=_shape(value), type=ir.TensorType(dtype), const_value=tensor)


def _model(
    values: Iterable[ir.Value], outputs: list[ir.Value], nodes: list[ir.Node], imports: Mapping[str, int]
) -> ir.Model:
    outer = [value for value in values if value.producer() is None]
    graph = ir.Graph(
        [value for value in outer if value.const_value is None],
        outputs,
        nodes=nodes,
        initializers=[value for value in outer if value.const_value is not None],
        opset_imports=dict(imports),
        name="fragment",
    )
    return ir.Model(graph, ir_version=FRAGMENT_IR_VERSION)


def build(
    pattern: Pattern, given: Mapping[str, ir.Value], attributes: Mapping[str, Any], imports: Mapping[str, int]
) -> ir.Model:
    """A model of ``pattern``. ``given`` holds a value for each input (names that share one share it).

    CastLike of a constant is done here, so that a text can serve several element types without a cast.
    """
    made: dict[str, ir.Value] = dict(given)
    for name, constant in pattern.constants.items():
        array = _captured_array(constant, attributes) if isinstance(constant, Capture) else constant
        made[name] = _initializer(name, array)
    nodes = []
    for node in pattern.nodes:
        inputs = [made.get(name) if name else None for name in node.inputs]
        while inputs and inputs[-1] is None:
            inputs.pop()
        cast = _cast_constant(node, inputs)
        if cast is not None:
            made[node.outputs[0]] = cast
            continue
        outputs = [ir.Value(name=name) for name in node.outputs]
        made |= {value.name: value for value in outputs if value.name}
        held = _attributes(node.attributes, attributes)
        nodes.append(ir.Node(node.domain, node.op, inputs, held, outputs=outputs))
    results = [made[name] for name in pattern.outputs]
    used = {value for node in nodes for value in node.inputs}
    keep = [v for v in dict.fromkeys(made.values()) if v in used or v.const_value is None or v in results]
    return _model(keep, results, nodes, imports)


def _initializer(name: str, array: np.ndarray[Any, Any]) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    shape = ir.Shape(array.shape)
    return ir.Value(name=name, shape=shape, type=ir.TensorType(tensor.dtype), const_value=tensor)


def _cast_constant(node: PatternNode, inputs: list[ir.Value | None]) -> ir.Value | None:
    if (node.op, node.domain) != ("CastLike", "") or inputs[0] is None or inputs[1] is None:
        return None
    tensor, dtype = inputs[0].const_value, inputs[1].dtype
    if tensor is None or dtype is None:
        return None
    return _initializer(node.outputs[0], tensor.numpy().astype(dtype.numpy()))


def _captured_array(capture: Capture, attributes: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    floats = capture.type in (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS)
    return np.array(attributes[capture.name], dtype=np.float32 if floats else np.int64)


def _attributes(
    wanted: Mapping[str, onnx.AttributeProto | Capture], captured: Mapping[str, Any]
) -> list[ir.Attr]:
    made = []
    for name, want in wanted.items():
        if not isinstance(want, Capture):
            made.append(ir.serde.deserialize_attribute(want))
        elif captured.get(want.name) is not None:
            made.append(ir.Attr(name, ir.AttributeType(want.type), captured[want.name]))
    return made


def infer(model: ir.Model) -> None:
    """Fill in the types and shapes of a fragment's inner values and outputs by ONNX's own inference."""
    proto = onnx.shape_inference.infer_shapes(ir.to_proto(model), data_prop=True)
    known = {info.name: info for info in (*proto.graph.value_info, *proto.graph.output)}
    for node in model.graph:
        for value in node.outputs:
            info = known.get(value.name or "")
            if info is not None and info.type.tensor_type.elem_type:
                value.type = ir.serde.deserialize_type_proto_for_type(info.type)
                value.shape = ir.serde.deserialize_type_proto_for_shape(info.type)


class Names:
    """Hands out node and value names that no graph of the model uses."""

    def __init__(self, model: ir.Model) -> None:
        self.taken: set[str] = set()
        for graph in model.graphs():
            self.taken |= {value.name for value in graph.inputs if value.name} | set(graph.initializers)
            for node in graph:
                self.taken |= {value.name for value in node.outputs if value.name} | {node.name or ""}

    def fresh(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self.taken:
            count += 1
            name = f"{wanted}_{count}"
        self.taken.add(name)
        return name


def splice(match: Match, after: ir.Model, names: Names) -> list[ir.Node]:
    """Put ``after`` in the place of the match. Returns the nodes added; matched nodes nobody uses are removed.

    New nodes carry the root's provenance and the rule's name. Outputs keep their names, types and shapes.
    """
    root, rule = match.root, match.rule
    graph = root.graph
    assert isinstance(graph, ir.Graph)
    aliases = canonical(match)
    real = {value: _real(value, match, aliases, graph, names) for value in _outer(after)}
    results = list(after.graph.outputs)
    added: list[ir.Node] = []
    for node in list(after.graph):
        if node.op_type == "Identity" and node.outputs[0] in results and node.inputs[0] is not None:
            real[node.outputs[0]] = real[node.inputs[0]]
            continue
        added.append(_transplant(node, real, match, names))
    anchor = root
    for node in added:
        graph.insert_after(anchor, node)
        anchor = node
    for name, result in zip(rule.match.outputs, results, strict=True):
        _redirect(match.output(name), real[result], added, match, names)
    _remove_unused(match)
    if len(rule.match.outputs) > 1:
        graph.sort()
    return [node for node in graph if node.metadata_props.get(provenance.RULE) == rule.name and node in added]


def _outer(model: ir.Model) -> list[ir.Value]:
    return [*model.graph.inputs, *model.graph.initializers.values()]


def _real(
    value: ir.Value, match: Match, aliases: Mapping[str, str], graph: ir.Graph, names: Names
) -> ir.Value:
    """The graph's own value for a fragment's input; a new initializer for a constant the rule made."""
    name = value.name or ""
    bound = match.values.get(name) if name in aliases else None
    if bound is not None and (value.const_value is None or _untouched(value, bound)):
        return bound
    tensor = value.const_value
    assert tensor is not None  # inputs of a replacement are inputs of the match, checked by the caller
    fresh = names.fresh(f"{match.root.name}/{match.rule.name}/{name}")
    made = ir.Value(name=fresh, shape=_shape(value), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(made)
    return made


def _untouched(value: ir.Value, bound: ir.Value) -> bool:
    tensor, original = value.const_value, tensor_of(bound)
    if tensor is original or tensor is None or original is None:
        return tensor is original
    return tensor.dtype == original.dtype and np.array_equal(tensor.numpy(), original.numpy())


def _transplant(node: ir.Node, real: dict[ir.Value, ir.Value], match: Match, names: Names) -> ir.Node:
    stem = f"{match.root.name}/{match.rule.name}"
    outputs = []
    for value in node.outputs:
        made = ir.Value(name=names.fresh(f"{stem}/{value.name}"), shape=value.shape, type=value.type)
        outputs.append(made)
        real[value] = made
    inputs = [real[value] if value is not None else None for value in node.inputs]
    fresh = ir.Node(
        node.domain,
        node.op_type,
        inputs,
        list(node.attributes.values()),
        outputs=outputs,
        name=names.fresh(f"{stem}/{node.op_type}"),
        metadata_props={**match.root.metadata_props, provenance.RULE: match.rule.name},
    )
    return fresh


def _redirect(old: ir.Value, new: ir.Value, added: list[ir.Node], match: Match, names: Names) -> None:
    """Let everything that used ``old`` use ``new``; a graph output keeps its name, by a copy if need be."""
    graph = match.root.graph
    assert isinstance(graph, ir.Graph)
    if new.producer() not in added and old.is_graph_output():
        copy = ir.Node("", "Identity", [new], name=names.fresh(f"{match.root.name}/{match.rule.name}/Identity"),
                       metadata_props={**match.root.metadata_props, provenance.RULE: match.rule.name})  # fmt: skip
        graph.insert_after(added[-1] if added else match.root, copy)
        added.append(copy)
        new = copy.outputs[0]
    name = old.name
    if new.producer() in added:
        new.type, new.shape = old.type, old.shape if old.shape is not None else new.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        old.name = names.fresh(f"{name}/replaced")
        new.name = name
    else:
        old.replace_all_uses_with(new)


def _remove_unused(match: Match) -> None:
    fed = [value for node in match.nodes for value in node.inputs if value is not None]
    for node in reversed(match.nodes):
        if any(value.uses() or value.is_graph_output() for value in node.outputs):
            continue
        graph = node.graph
        if isinstance(graph, ir.Graph):
            graph.remove(node, safe=True)
    for value in fed:
        graph = value.graph
        if value.is_initializer() and not value.uses() and not value.is_graph_input() and isinstance(graph, ir.Graph):
            graph.initializers.pop(value.name or "", None)
