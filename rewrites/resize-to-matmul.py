"""Resize that TensorRT does not take as matrix products, or as picks of elements in mode nearest."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules import resizing
from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.resizing import Axis, Interpolation
from engine.rules.surgeon import Part, array_of


def apply(graph: gs.Graph, match: Captured) -> None:
    """Interpolation is separable: one constant matrix an axis, the axes that shrink first."""
    given = match.attributes
    how = Interpolation(
        given["mode"], given["coordinate_transformation_mode"], given["nearest_mode"], given["cubic_coeff_a"],
        bool(given.get("antialias")), bool(given["exclude_outside"]) and given["mode"] == "cubic",
    )  # fmt: skip
    stretched = (given.get("keep_aspect_ratio_policy") or "stretch") == "stretch"
    if (
        stretched
        and not how.antialias
        and how.positions not in ("half_pixel_symmetric", "tf_crop_and_resize")
    ):
        raise RefusedError("TensorRT takes this Resize as it is")
    part = Part(graph)
    axes = _axes(part, match, None if stretched else given["keep_aspect_ratio_policy"])
    shape = match.shapes["X"]
    assert shape is not None  # _axes refuses it
    value: Any = part.input(0)
    for axis in sorted(axes, key=lambda one: one.result / max(one.size, 1)):
        value = _resized(part, value, axis, how, len(shape), match.dtypes["X"])
    beside = np.zeros([1] * len(shape), dtype=bool)
    for axis in axes:
        lay = [1] * len(shape)
        lay[axis.index] = axis.result
        beside = beside | resizing.outside(axis, how).reshape(lay)
    if beside.any():
        fill = np.array(given["extrapolation_value"], dtype=match.dtypes["X"])
        part.result(0, "Where", beside, fill, value)
    else:
        part.result(0, "Identity", value)


def _axes(part: Part, match: Captured, policy: str | None) -> list[Axis]:
    shape = match.shapes["X"]
    roi, scales, sizes = (array_of(part.input(index)) for index in (1, 2, 3))
    scales, sizes = (None if one is None or not one.size else one for one in (scales, sizes))
    if shape is None or (scales is None and sizes is None):
        raise RefusedError("the rank, or the scales or sizes, are not constant")
    axes = [axis % len(shape) for axis in match.attributes.get("axes") or range(len(shape))]
    before = [size for axis in axes if isinstance(size := shape[axis], int)]
    if len(before) < len(axes):
        changed = [
            i
            for i, axis in enumerate(axes)
            if scales is None or scales[i] != 1 or isinstance(shape[axis], int)
        ]
        if scales is None or roi is not None or any(not isinstance(shape[axes[i]], int) for i in changed):
            raise RefusedError("a resized axis has no size that is known from the graph")
        axes, scales = [axes[i] for i in changed], scales[changed]
    if sizes is not None and policy is not None:
        ratios = sizes / np.array(before)
        factor = float(ratios.min() if policy == "not_larger" else ratios.max())
        pairs = [(factor, int(np.floor(factor * size + 0.5))) for size in before]
    elif sizes is not None:
        pairs = [(int(size) / max(old, 1), int(size)) for size, old in zip(sizes, before, strict=True)]
    else:
        pairs = [(float(one), int(np.floor(old * one))) for one, old in zip(scales, before, strict=True)]
    crops = [(0.0, 1.0)] * len(axes)
    if roi is not None and roi.size:
        crops = list(zip(map(float, roi[: len(axes)]), map(float, roi[len(axes) :]), strict=True))
    cropped = match.attributes["coordinate_transformation_mode"] == "tf_crop_and_resize"
    made = [
        Axis(*one)
        for one in zip(axes, before, (p[1] for p in pairs), (p[0] for p in pairs), crops, strict=True)
    ]
    return [one for one in made if one.size != one.result or one.scale != 1 or cropped]


def _resized(part: Part, value: Any, axis: Axis, how: Interpolation, rank: int, dtype: str) -> Any:
    if how.mode == "nearest":
        return part("Gather", value, resizing.picked(axis, how), axis=axis.index)
    weights = resizing.matrix(axis, how).astype(dtype)
    if (weights.shape[0] == weights.shape[1]) and (weights == np.eye(len(weights))).all():
        return value
    if axis.index == rank - 1:
        return part("MatMul", value, weights.T.copy())
    if axis.index == rank - 2:
        return part("MatMul", weights, value)
    order = [*(i for i in range(rank) if i != axis.index), axis.index]
    product = part("MatMul", part("Transpose", value, perm=order), weights.T.copy())
    return part("Transpose", product, perm=[order.index(i) for i in range(rank)])
