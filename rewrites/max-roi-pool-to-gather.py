"""MaxRoiPool as a look-up: the largest value of a rectangle is that of four which cover it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import FLOAT, INT64, Part


def apply(graph: gs.Graph, match: Captured) -> None:
    """Tables of the largest values of all rectangles with sides that are powers of two; then four rows a bin."""
    part, shape = Part(graph), match.shapes["X"]
    channels, height, width = shape[1:] if shape is not None else (None, None, None)
    if not (isinstance(channels, int) and isinstance(height, int) and isinstance(width, int)):
        raise RefusedError("the size of the feature map is not known from the graph")
    features, rois = part.input(0), part.input(1)
    bins = match.attributes["pooled_shape"]
    corners = _rounded(part, part("Mul", rois, np.float32(match.attributes["spatial_scale"])))
    down = _Bins(part, corners, (2, 4), bins[0], height)
    along = _Bins(part, corners, (1, 3), bins[1], width)
    sides = [(2**tall, 2**wide) for tall in range(down.levels) for wide in range(along.levels)]
    tables = part("Concat", *(_largest(part, features, *side) for side in sides), axis=1)
    tables = part("Reshape", tables, np.array([0, len(sides), channels, height, width]))
    rows = part("Reshape", part("Transpose", tables, perm=[0, 1, 3, 4, 2]), np.array([-1, channels]))
    image = part("Cast", part("Gather", rois, np.array([0]), axis=1), to=INT64)  # [boxes, 1]
    first = part("Mul", image, np.int64(len(sides) * height * width))
    level = part(
        "Add", part("Mul", _tall(part, down.level), np.int64(along.levels)), _wide(part, along.level)
    )
    table = part("Mul", level, np.int64(height * width))
    base = part("Add", table, part("Unsqueeze", first, np.array([2])))
    found = []
    for row in (down.first, down.second):
        line = part("Add", base, part("Mul", _tall(part, row), np.int64(width)))
        for column in (along.first, along.second):
            found.append(part("Gather", rows, part("Add", line, _wide(part, column)), axis=0))
    value = part("Max", *found)  # [boxes, bins, bins, channels]
    empty = part("Or", _tall(part, down.empty), _wide(part, along.empty))
    value = part("Where", part("Unsqueeze", empty, np.array([3])), np.float32(0), value)
    part.result(0, "Transpose", value, perm=[0, 3, 1, 2])


class _Bins:
    """The bins of one axis, each [boxes, bins]: where two windows that cover it start, and their common level.

    ``level`` is the power of two that is the windows' length, ``empty`` says that no element lies in the bin.
    """

    def __init__(self, part: Part, corners: Any, ends: tuple[int, int], bins: int, size: int) -> None:
        start, end = (part("Gather", corners, np.array([index]), axis=1) for index in ends)
        length = part("Max", part("Add", part("Sub", end, start), np.float32(1)), np.float32(1))
        step = part("Div", length, np.float32(bins))
        places = np.arange(bins, dtype=np.float32).reshape(1, -1)
        low = part("Add", part("Floor", part("Mul", step, places)), start)
        high = part("Add", part("Ceil", part("Mul", step, places + 1)), start)
        limits = (np.float32(0), np.float32(size))
        low, high = (part("Cast", part("Clip", edge, *limits), to=INT64) for edge in (low, high))
        inside = part("Sub", high, low)
        self.empty = part("LessOrEqual", inside, np.int64(0))
        level_of = np.maximum(np.log2(np.maximum(np.arange(size + 1), 1)).astype(np.int64), 0)
        self.levels = int(level_of[-1]) + 1
        self.level = part("Gather", level_of, part("Max", inside, np.int64(0)), axis=0)
        window = part("Gather", 2 ** np.arange(self.levels), self.level, axis=0)
        self.first = part("Min", low, np.int64(size - 1))
        self.second = part("Max", part("Sub", high, window), np.int64(0))


def _rounded(part: Part, value: Any) -> Any:
    """Half away from zero, as C's round does it; Round takes the even neighbour."""
    size = part("Abs", value)
    whole = part("Floor", size)
    up = part("GreaterOrEqual", part("Sub", size, whole), np.float32(0.5))
    return part("Mul", part("Sign", value), part("Add", whole, part("Cast", up, to=FLOAT)))


def _largest(part: Part, features: Any, tall: int, wide: int) -> Any:
    if tall == wide == 1:
        return features
    return part(
        "MaxPool", features, kernel_shape=[tall, wide], strides=[1, 1], pads=[0, 0, tall - 1, wide - 1]
    )


def _tall(part: Part, value: Any) -> Any:
    return part("Unsqueeze", value, np.array([2]))


def _wide(part: Part, value: Any) -> Any:
    return part("Unsqueeze", value, np.array([1]))
