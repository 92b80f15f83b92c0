"""DeformConv as one GridSample of all kernel positions and one matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.constants import Array
from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part


def apply(graph: gs.Graph, match: Captured) -> None:
    """Sample [batch, channel, kernel position, output position], then multiply with the kernel as a matrix."""
    part, given = Part(graph), match.attributes
    x, w, offset, bias, mask = (part.input(index) for index in range(5))
    real = np.dtype(match.dtypes["X"]).type
    _, channels, height, width = _sizes(match, "X")
    outputs, _, *kernel = _sizes(match, "W")
    _, _, *grid = _sizes(match, "offset")
    offsets, groups = given["offset_group"], given["group"]
    taps, places = kernel[0] * kernel[1], grid[0] * grid[1]
    moved = part("Reshape", offset, np.array([-1, taps, 2, *grid]))
    turned = part("Gather", moved, np.array([1, 0]), axis=2)  # GridSample wants x before y
    # pixel p of n lies at (2 p + 1) / n - 1
    n = np.array([width, height], dtype=np.float64).reshape(1, 2, 1, 1)
    start = (2 * _start(given, kernel, grid)[:, ::-1] + 1) / n - 1
    at = part("Add", part("Mul", turned, (2 / n).astype(real)), start.astype(real))
    lines = part(
        "Reshape", part("Transpose", at, perm=[0, 1, 3, 4, 2]), np.array([-1, taps * grid[0], grid[1], 2])
    )
    if offsets > 1:
        x = part("Reshape", x, np.array([-1, channels // offsets, height, width]))
    mode = "linear" if part.opset >= 20 else "bilinear"
    seen = part("GridSample", x, lines, mode=mode, padding_mode="zeros", align_corners=0)
    if mask is not None:
        seen = part("Mul", seen, part("Reshape", mask, np.array([-1, 1, taps * grid[0], grid[1]])))
    _product(part, seen, w, bias, (outputs, channels, taps, places), groups, grid)


def _product(
    part: Part, seen: Any, w: Any, bias: Any, sizes: tuple[int, int, int, int], groups: int, grid: list[int]
) -> None:
    outputs, channels, taps, places = sizes
    inner = channels // groups * taps
    lead = [groups] if groups > 1 else []
    columns = part("Reshape", seen, np.array([-1, *lead, inner, places]))
    matrix = part("Reshape", w, np.array([*lead, outputs // groups, inner]))
    product, shape = part("MatMul", matrix, columns), np.array([-1, outputs, *grid])
    if bias is None:
        part.result(0, "Reshape", product, shape)
    else:
        tall = part("Reshape", bias, np.array([1, -1, 1, 1]))
        part.result(0, "Add", part("Reshape", product, shape), tall)


def _sizes(match: Captured, name: str) -> list[int]:
    shape = match.shapes[name] or ()
    if len(shape) != 4 or not all(isinstance(size, int) for size in shape[1:]):
        raise RefusedError(f"{name} is not four-dimensional with sizes that are known from the graph")
    return [size if isinstance(size, int) else -1 for size in shape]


def _start(given: Any, kernel: list[int], grid: list[int]) -> Array:
    """[taps, 2, height, width]: where each tap of each output lies (y, x) before its offset is added."""
    steps, pads, wide = (
        given.get("strides") or [1, 1],
        given.get("pads") or [0] * 4,
        given.get("dilations") or [1, 1],
    )
    ways = [
        np.arange(grid[i])[None] * steps[i] - pads[i] + np.arange(kernel[i])[:, None] * wide[i]
        for i in (0, 1)
    ]
    y = np.broadcast_to(ways[0][:, None, :, None], (*kernel, *grid))
    x = np.broadcast_to(ways[1][None, :, None, :], (*kernel, *grid))
    return np.stack([y, x], 2).reshape(-1, 2, *grid).astype(np.float64)
