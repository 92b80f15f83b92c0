"""Constants and sizes of a graph, read without running it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

Array = np.ndarray[Any, Any]


def tensor_of(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer or Constant node; None for what a caller could still change."""
    if value is None or value.is_graph_input():
        return None
    return ir.convenience.get_const_tensor(value)


def small_array(value: ir.Value | None, limit: int = 4096) -> Array | None:
    """The constant as an array when it has at most ``limit`` elements, else None."""
    tensor = tensor_of(value)
    return tensor.numpy() if tensor is not None and tensor.size <= limit else None


def element_type(value: ir.Value) -> ir.DataType | None:
    tensor = tensor_of(value)
    return tensor.dtype if tensor is not None else value.dtype


def dims_of(value: ir.Value) -> tuple[int | str | None, ...] | None:
    """Sizes of a value: a number, a symbol, or None for an unknown size; None when the rank is unknown."""
    tensor = tensor_of(value)
    shape = tensor.shape if tensor is not None else value.shape
    return None if shape is None else tuple(d if isinstance(d, int) else d.value for d in shape)


def axis_of_size(value: ir.Value | None) -> tuple[ir.Value, int] | None:
    """The value and axis whose size ``value`` (one integer) is by construction, or None.

    Follows Shape through the operators that only pick or reshape one element. Casts and copies of
    the measured value do not change its sizes and are looked through.
    """
    picked: int | None = None
    for _ in range(16):
        node = value.producer() if value is not None else None
        if node is None or node.domain != "":
            return None
        source = node.inputs[0] if node.inputs else None
        if node.op_type == "Shape":
            return _measured(node, picked)
        if node.op_type in ("Gather", "Slice"):
            index = small_array(node.inputs[1])
            if picked is not None or index is None or index.size != 1:
                return None
            if node.op_type == "Slice" and not _one_element(node, int(index.reshape(()))):
                return None
            picked = int(index.reshape(()))
        elif node.op_type not in ("Squeeze", "Unsqueeze", "Reshape", "Identity"):
            return None
        value = source
    return None


def _one_element(node: ir.Node, start: int) -> bool:
    end = small_array(node.inputs[2])
    step = small_array(node.inputs[4]) if len(node.inputs) > 4 else np.array(1)
    if end is None or step is None or end.size != 1 or int(step.reshape(())) != 1:
        return False
    return int(end.reshape(())) == start + 1 and start != -1


def _measured(node: ir.Node, picked: int | None) -> tuple[ir.Value, int] | None:
    """Which axis of its input the one element ``picked`` of a Shape node measures."""
    source = node.inputs[0]
    dims = dims_of(source) if source is not None else None
    if source is None or dims is None:
        return None
    rank = len(dims)
    start = node.attributes["start"].as_int() if "start" in node.attributes else 0
    end = node.attributes["end"].as_int() if "end" in node.attributes else rank
    axes = list(range(rank))[slice(start, end)]
    if picked is None and len(axes) != 1:
        return None
    index = picked or 0
    if not -len(axes) <= index < len(axes):
        return None
    return same_shape_source(source), axes[index]


def same_shape_source(value: ir.Value) -> ir.Value:
    """``value``, or what it was cast or copied from."""
    node = value.producer()
    while node is not None and node.domain == "" and node.op_type in ("Cast", "Identity") and node.inputs[0]:
        value = node.inputs[0]
        node = value.producer()
    return value


def is_real(dtype: np.dtype[Any]) -> bool:
    """Whether it is a floating-point type; numpy does not say so of those that it lacks."""
    if dtype.kind != "V":
        return dtype.kind == "f"
    return not dtype.name.removeprefix("u").startswith("int")


def limits(dtype: np.dtype[Any]) -> Any:
    """What ``np.finfo`` or ``np.iinfo`` says, also of the types that numpy lacks."""
    info: Any = ml_dtypes.finfo if is_real(dtype) else ml_dtypes.iinfo
    return info(dtype)
