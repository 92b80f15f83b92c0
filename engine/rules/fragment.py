"""The matched part of a graph as a small model of its own, and what replaces it.

Values of a fragment carry the names of the pattern, so that proofs and Python rules can speak of ``x``
and not of ``val_104``. Constants are carried by reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from engine.rules import branches
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
    copies = {match.value(name): boundary(match, name) for name in dict.fromkeys(canonical(match).values())}
    for name in pattern.constants:
        value = match.values.get(name)
        if value is not None and value not in copies:
            copies[value] = _constant(name, value)
    named = {value: name for name, value in match.values.items() if value is not None}
    nodes = []
    for node in match.nodes:
        outputs = [
            _like(value, named.get(value, f"unnamed_{value.name}" if value.name else ""))
            for value in node.outputs
        ]
        copies |= dict(zip(node.outputs, outputs, strict=True))
        inputs = [copies[value] if value is not None else None for value in node.inputs]
        attributes = [branches.copied(one, copies, match.rule.branch) for one in node.attributes.values()]
        nodes.append(ir.Node(node.domain, node.op_type, inputs, attributes, outputs=outputs))
    results = [copies[match.value(name)] for name in pattern.outputs]
    return _model(copies.values(), results, nodes, imports)


def boundary(match: Match, name: str) -> ir.Value:
    """A fresh value that stands for pattern input ``name`` outside the graph it was matched in."""
    value = match.values[name]
    assert value is not None
    return _constant(name, value) if tensor_of(value) is not None else _like(value, name)


def _like(value: ir.Value, name: str) -> ir.Value:
    return ir.Value(name=name, shape=shape_of(value), type=value.type)


def shape_of(value: ir.Value) -> ir.Shape | None:
    """A copy of the value's shape, for a value of another graph."""
    dims = dims_of(value)
    return None if dims is None else ir.Shape(list(dims))


def _constant(name: str, value: ir.Value) -> ir.Value:
    tensor = tensor_of(value)
    dtype = element_type(value)
    assert tensor is not None
    assert dtype is not None
    return ir.Value(name=name, shape=shape_of(value), type=ir.TensorType(dtype), const_value=tensor)


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

    Cast and CastLike of a constant to a float type are done here: a text can serve several types without
    a node for it, and 8-bit weights, which TensorRT takes before DequantizeLinear only, become float ones.
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
    """The result of Cast or CastLike of a constant to a float type, computed when it is needed."""
    tensor = inputs[0].const_value if inputs and inputs[0] is not None else None
    if tensor is None or node.domain != "":
        return None
    if node.op == "CastLike" and inputs[1] is not None:
        target = inputs[1].dtype
    elif node.op == "Cast" and isinstance(node.attributes["to"], onnx.AttributeProto):
        target = ir.DataType(node.attributes["to"].i)
    else:
        return None
    if target is None or not target.is_floating_point():
        return None
    name, kind, source = node.outputs[0], target.numpy(), tensor
    shape = ir.Shape(tensor.shape.numpy())
    cast = ir.LazyTensor(
        lambda: ir.Tensor(source.numpy().astype(kind), name=name), dtype=target, shape=shape, name=name
    )
    return ir.Value(name=name, shape=shape, type=ir.TensorType(target), const_value=cast)


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
