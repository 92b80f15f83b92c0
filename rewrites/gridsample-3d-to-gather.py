"""Trilinear GridSample of a volume: eight rows gathered for each sample, and one product with their weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import FLOAT, INT64, Part


def apply(graph: gs.Graph, match: Captured) -> None:
    """Axes of the grid are x, y, z; those of the volume z, y, x. Corners beside the volume have weight 0."""
    part, given = Part(graph), match.attributes
    channels, *size = _known(match.shapes["X"])
    places = _known(match.shapes["grid"])[:-1]
    mode, padding = given["mode"], given["padding_mode"]
    if mode != "linear":
        raise RefusedError(f"mode {mode} is not computed here")
    if padding == "reflection":
        raise RefusedError("padding_mode reflection is not computed here")
    volume, grid = part.input(0), part.input(1)
    n = np.array(size[::-1], dtype=np.float32)  # width, height, depth
    scale = (n - 1) / 2 if given["align_corners"] else n / 2
    points = part("Reshape", grid, np.array([0, -1, 3]))
    at = part("Add", part("Mul", points, scale), (n - 1) / 2)
    if padding == "border":
        at = part("Min", part("Max", at, np.float32(0)), n - 1)
    low = part("Floor", at)
    share = part("Sub", at, low)
    ends = [(low, part("Sub", np.float32(1), share)), (part("Add", low, np.float32(1)), share)]
    index, weight = _both(part, [_end(part, place, kept, n, padding) for place, kept in ends])
    table = part("Reshape", part("Transpose", volume, perm=[0, 2, 3, 4, 1]), np.array([0, -1, channels]))
    line = part("Reshape", _corners(part, "Add", index, [1, size[2], size[1] * size[2]]), np.array([0, -1, 1]))
    rows = part("GatherND", table, line, batch_dims=1)
    rows = part("Reshape", rows, np.array([0, -1, 8, channels]))
    weights = part("Reshape", _corners(part, "Mul", weight, None), np.array([0, -1, 1, 8]))
    mixed = part("Reshape", part("MatMul", weights, rows), np.array([0, -1, channels]))
    part.result(0, "Reshape", part("Transpose", mixed, perm=[0, 2, 1]), np.array([0, channels, *places]))


def _known(shape: Any) -> list[int]:
    """All sizes behind the batch."""
    if shape is None or not all(isinstance(item, int) for item in shape[1:]):
        raise RefusedError("the sizes of the volume and of the grid are not known from the graph")
    return [int(item) for item in shape[1:]]


def _end(part: Part, place: Any, kept: Any, n: Any, padding: str) -> tuple[Any, Any]:
    """Index inside the volume, and weight, of one end of each axis: [batch, samples, 3]."""
    inside = part("Min", part("Max", place, np.float32(0)), n - 1)
    if padding == "zeros":
        kept = part("Mul", kept, part("Cast", part("Equal", inside, place), to=FLOAT))
    return part("Cast", inside, to=INT64), kept


def _both(part: Part, ends: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Both ends beside each other: [batch, samples, 3, 2]."""
    last = np.array([3])
    low, high = (tuple(part("Unsqueeze", item, last) for item in end) for end in ends)
    return part("Concat", low[0], high[0], axis=3), part("Concat", low[1], high[1], axis=3)


def _corners(part: Part, op: str, ends: Any, strides: list[int] | None) -> Any:
    """The ends of three axes put together in all eight ways: [batch, samples, 2, 2, 2], z before y before x."""
    shapes = ([0, -1, 1, 1, 2], [0, -1, 1, 2, 1], [0, -1, 2, 1, 1])
    found = []
    for axis, shape in enumerate(shapes):
        one = part("Reshape", part("Gather", ends, np.array([axis]), axis=2), np.array(shape))
        stride = strides[axis] if strides else 1
        found.append(one if stride == 1 else part("Mul", one, np.int64(stride)))
    return part(op, part(op, found[2], found[1]), found[0])
