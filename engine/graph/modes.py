"""What a node's attributes say that it does, in the words of TensorRT's layers; read back by ``modes_proof``."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

_INTERPOLATION = {
    "nearest": "NEAREST",
    "linear": "LINEAR",
    "bilinear": "LINEAR",
    "cubic": "CUBIC",
    "bicubic": "CUBIC",
}
_PADDING = {"zeros": "FILL", "border": "CLAMP", "reflection": "REFLECT"}
_COORDINATES = {"half_pixel": "HALF_PIXEL", "pytorch_half_pixel": "HALF_PIXEL", "align_corners": "ALIGN_CORNERS",
                "asymmetric": "ASYMMETRIC"}  # fmt: skip
_ROUNDING = {
    "round_prefer_floor": "HALF_DOWN",
    "round_prefer_ceil": "HALF_UP",
    "floor": "FLOOR",
    "ceil": "CEIL",
}
_REDUCE = {
    "ReduceMean": "AVG",
    "ReduceSum": "SUM",
    "ReduceMax": "MAX",
    "ReduceMin": "MIN",
    "ReduceProd": "PROD",
}


def expected(node: ir.Node) -> dict[str, Any] | None:
    """``layer``, the type of TensorRT's layer, and the ``properties`` that it must have; None for other ops."""
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "GridSample":
        return _layer("GRID_SAMPLE", interpolation_mode=_INTERPOLATION.get(_text(node, "mode", "linear")),
                      sample_mode=_PADDING.get(_text(node, "padding_mode", "zeros")),
                      align_corners=bool(_number(node, "align_corners", 0)))  # fmt: skip
    if node.op_type == "Resize":
        return _resize(node)
    if node.op_type == "AveragePool":
        # Without padding the two ways of counting are one.
        padded = any(_numbers(node, "pads")) or _text(node, "auto_pad", "NOTSET") != "NOTSET"
        counts = not _number(node, "count_include_pad", 0) if padded else None
        return _layer("POOLING", type="AVERAGE", average_count_excludes_padding=counts)
    if node.op_type == "MaxPool":
        return _layer("POOLING", type="MAX")
    if node.op_type in _REDUCE:
        return _layer("REDUCE", op=_REDUCE[node.op_type], keep_dims=bool(_number(node, "keepdims", 1)),
                      axes=_axes(node))  # fmt: skip
    return None


def _layer(kind: str, **properties: Any) -> dict[str, Any]:
    return {
        "layer": kind,
        "properties": {key: value for key, value in properties.items() if value is not None},
    }


def _resize(node: ir.Node) -> dict[str, Any]:
    mode = _text(node, "mode", "nearest")
    return _layer(
        "RESIZE",
        resize_mode=_INTERPOLATION.get(mode),
        coordinate_transformation=_COORDINATES.get(
            _text(node, "coordinate_transformation_mode", "half_pixel")
        ),
        nearest_rounding=_ROUNDING.get(_text(node, "nearest_mode", "round_prefer_floor"))
        if mode == "nearest"
        else None,
    )


def _axes(node: ir.Node) -> int | None:
    """A bit for every axis; None where the graph does not say them as constants."""
    data = node.inputs[0]
    rank = len(data.shape) if data is not None and data.shape is not None else None
    axes = _numbers(node, "axes")
    given = node.inputs[1] if len(node.inputs) > 1 else None
    if given is not None:
        if given.const_value is None:
            return None
        axes = [int(axis) for axis in given.const_value.numpy().ravel()]
    if rank is None:
        return None
    if not axes and _number(node, "noop_with_empty_axes", 0):
        return None
    return sum(1 << axis % rank for axis in set(axes or range(rank)))


def _text(node: ir.Node, name: str, default: str) -> str:
    return node.attributes[name].as_string() if name in node.attributes else default


def _number(node: ir.Node, name: str, default: int) -> int:
    return node.attributes[name].as_int() if name in node.attributes else default


def _numbers(node: ir.Node, name: str) -> list[int]:
    return list(node.attributes[name].as_ints()) if name in node.attributes else []
