"""Types and shapes of inner values, for files that do not say them: rules match by them."""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx_ir.passes import common

_SEQUENCES = frozenset({"SequenceEmpty", "SequenceConstruct", "SplitToSequence", "SequenceInsert", "SequenceMap"})
_LARGEST = 4096  # elements of a constant that is computed to learn a shape


def fill(model: ir.Model) -> None:
    """Infer what is not said; what is said stays as it is."""
    values = _values(model)
    if not _lacking(values):
        return
    if any(node.op_type in _SEQUENCES for node in model.graph.all_nodes()):
        _of_main_graph(model)
        return
    said = [(value, value.type, value.shape) for value in values]
    common.ShapeInferencePass(strict_mode=False)(model)
    if left := _lacking(values):
        _by_folding(model, left)
    for value, kind, shape in said:
        value.type = kind or value.type
        value.shape = shape if shape is not None else value.shape


def _of_main_graph(model: ir.Model) -> None:
    """onnx-ir's pass takes a sequence for the tensors that it holds; ONNX's own inference does not."""
    proto = onnx.shape_inference.infer_shapes(ir.to_proto(model), data_prop=True)
    known = {info.name: info.type for info in (*proto.graph.value_info, *proto.graph.output)}
    for node in model.graph:
        for value in node.outputs:
            kind = known.get(value.name or "")
            if kind is not None and kind.WhichOneof("value") is not None:
                value.type = value.type or ir.serde.deserialize_type_proto_for_type(kind)
                if value.shape is None:
                    value.shape = ir.serde.deserialize_type_proto_for_shape(kind)


def _values(model: ir.Model) -> list[ir.Value]:
    made = (value for node in model.graph.all_nodes() for value in node.outputs if value.name)
    return [*model.graph.inputs, *made]


def _lacking(values: list[ir.Value]) -> list[ir.Value]:
    return [value for value in values if value.type is None or value.shape is None]


def _by_folding(model: ir.Model, left: list[ir.Value]) -> None:
    """ONNX's inference does not follow a Reshape to a size that is itself read off a fixed shape; folding does."""
    from onnxscript import optimizer

    copy = model.clone()
    names = {value.name for value in left}
    outputs = set(copy.graph.outputs)
    copy.graph.outputs.extend(  # so that folding keeps their names
        value for node in copy.graph for value in node.outputs if value.name in names and value not in outputs
    )
    optimizer.fold_constants(
        copy, onnx_shape_inference=True, input_size_limit=_LARGEST, output_size_limit=_LARGEST
    )
    found = {value.name: value for value in _values(copy)}
    for value in left:
        other = found.get(value.name)
        if other is not None:
            value.type = value.type or other.type
            value.shape = value.shape if value.shape is not None else other.shape
