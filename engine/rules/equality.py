"""When a constant or an attribute of a graph is the one that a pattern asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from engine.rules.constants import element_type, tensor_of
from engine.rules.pattern import Capture

_FLOAT = onnx.AttributeProto.FLOAT


def same_value(bound: ir.Value | None, value: ir.Value) -> bool:
    """Whether two values are one, or constants with the same bytes."""
    if bound is value:
        return True
    one, other = tensor_of(bound), tensor_of(value)
    if (
        one is None
        or other is None
        or one.dtype != other.dtype
        or one.shape != other.shape
        or one.size > 4096
    ):
        return False
    return bool(np.array_equal(one.numpy(), other.numpy()))


def constant_refusal(wanted: np.ndarray[Any, Any] | Capture, value: ir.Value) -> str | None:
    """Why ``value`` is not the constant ``wanted`` (type, shape and every element), or None."""
    tensor = tensor_of(value)
    if tensor is None:
        return "is not a constant"
    if isinstance(wanted, Capture):
        kind = ir.DataType.FLOAT if wanted.type in (_FLOAT, onnx.AttributeProto.FLOATS) else ir.DataType.INT64
        rank = 0 if wanted.type in (_FLOAT, onnx.AttributeProto.INT) else 1
        fits = element_type(value) == kind and len(tensor.shape) == rank
        return None if fits else f"is no {kind.name.lower()} constant of rank {rank}"
    shape = tuple(int(size) for size in tensor.shape)  # type: ignore[arg-type]
    if shape != wanted.shape or tensor.dtype.numpy() != wanted.dtype:
        return f"is {tensor.dtype.name.lower()}{list(shape)}, not {wanted.dtype}{list(wanted.shape)}"
    found = tensor.numpy()
    if np.array_equal(found, wanted, equal_nan=wanted.dtype.kind == "f"):
        return None
    return f"is {found.tolist()}, not {wanted.tolist()}"


def attribute_of(node: ir.Node, name: str, opset: int | None) -> Any:
    """The attribute's value, its default where it is not set, None where it has none."""
    attribute = node.attributes.get(name)
    if attribute is None:
        return default_of(node, name, opset)
    if attribute.type == ir.AttributeType.TENSOR:
        return attribute.as_tensor().numpy().tolist()
    return plain(attribute.value)


def default_of(node: ir.Node, name: str, opset: int | None) -> Any:
    """The default that ``opset`` of the node's domain gives attribute ``name``, or None."""
    top = opset or onnx.defs.onnx_opset_version()
    if not onnx.defs.has(node.op_type, max_inclusive_version=top, domain=node.domain):
        return None
    schema = onnx.defs.get_schema(node.op_type, top, node.domain)
    known = schema.attributes.get(name)
    if known is None or not known.default_value.name:
        return None
    return plain(onnx.helper.get_attribute_value(known.default_value))


def plain(value: Any) -> Any:
    """Attribute values in one form: text for bytes, list for tuple, numbers as they are."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value).tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return int(value) if isinstance(value, ir.DataType) else value
