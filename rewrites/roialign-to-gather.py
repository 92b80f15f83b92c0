"""RoiAlign with a fixed number of samples: four rows gathered for each sample, weighted, and pooled."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import INT64, Part

_NUMBERS = {np.float32: 1, np.float16: 10}  # onnx.TensorProto's


def apply(graph: gs.Graph, match: Captured) -> None:
    """The samples of both axes are found apart; what lies beside the map has weight 0."""
    part, given = Part(graph), match.attributes
    samples, shape = given["sampling_ratio"], match.shapes["X"]
    channels, height, width = shape[1:] if shape is not None else (None, None, None)
    if samples <= 0:
        raise RefusedError("sampling_ratio is 0, so the number of samples depends on the boxes")
    if not (isinstance(channels, int) and isinstance(height, int) and isinstance(width, int)):
        raise RefusedError("the size of the feature map is not known from the graph")
    features, rois, batch = (part.input(index) for index in range(3))
    real = np.dtype(match.dtypes["X"]).type
    shift = 0.5 if given.get("coordinate_transformation_mode") == "half_pixel" else 0.0
    boxes = part("Mul", rois, real(given["spatial_scale"]))
    boxes = part("Sub", boxes, real(shift)) if shift else boxes
    down = _samples(part, boxes, (1, 3), height, given["output_height"], samples, real, shift == 0)
    along = _samples(part, boxes, (0, 2), width, given["output_width"], samples, real, shift == 0)
    table = part("Reshape", part("Transpose", features, perm=[0, 2, 3, 1]), np.array([-1, channels]))
    first = part("Reshape", part("Mul", batch, np.int64(height * width)), np.array([-1, 1, 1]))
    corners = []
    for row, row_weight in down:
        line = part("Add", first, part("Unsqueeze", part("Mul", row, np.int64(width)), np.array([2])))
        tall = part("Unsqueeze", row_weight, np.array([2]))
        for column, column_weight in along:
            index = part("Add", line, part("Unsqueeze", column, np.array([1])))
            weight = part("Mul", tall, part("Unsqueeze", column_weight, np.array([1])))
            corners.append(
                part("Mul", part("Gather", table, index, axis=0), part("Unsqueeze", weight, np.array([3])))
            )
    most = given["mode"] == "max"
    value = part("Max" if most else "Sum", *corners)
    bins = np.array([-1, given["output_height"], samples, given["output_width"], samples, channels])
    pooled = _reduced(part, "ReduceMax" if most else "ReduceMean", part("Reshape", value, bins))
    part.result(0, "Transpose", pooled, perm=[0, 3, 1, 2])


def _samples(
    part: Part, boxes: Any, ends: tuple[int, int], size: int, bins: int, samples: int, real: Any, wide: bool
) -> list[tuple[Any, Any]]:
    """Index and weight, [boxes, bins * samples], of the two neighbours of each sample of one axis."""
    start, end = (part("Gather", boxes, np.array([index]), axis=1) for index in ends)
    length = part("Sub", end, start)
    length = part("Max", length, real(1)) if wide else length
    places = (np.arange(bins)[:, None] + (np.arange(samples) + 0.5) / samples).reshape(1, -1) / bins
    at = part("Add", start, part("Mul", length, places.astype(real)))
    inside = part("And", part("GreaterOrEqual", at, real(-1)), part("LessOrEqual", at, real(size)))
    kept = part("Cast", inside, to=_NUMBERS[real])
    at = part("Clip", at, real(0), real(size - 1))
    low = part("Floor", at)
    high = part("Min", part("Add", low, real(1)), real(size - 1))
    second = part("Mul", part("Sub", at, low), kept)
    first = part("Sub", kept, second)
    return [(part("Cast", low, to=INT64), first), (part("Cast", high, to=INT64), second)]


def _reduced(part: Part, op: str, value: Any) -> Any:
    if part.opset < 18:
        return part(op, value, axes=[2, 4], keepdims=0)
    return part(op, value, np.array([2, 4]), keepdims=0)
