"""MaxUnpool as ScatterElements into zeros."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part


def apply(graph: gs.Graph, match: Captured) -> None:
    shape, given = match.shapes["X"], match.attributes
    batch, channels, *sizes = shape
    if not all(isinstance(size, int) for size in (channels, *sizes)):
        raise RefusedError("X has dynamic axes after the first, and the indices count over all of them")
    wanted = match.constants.get("output_shape")
    if len(graph.nodes[0].inputs) > 2 and wanted is None:
        raise RefusedError("output_shape is not a constant")
    kernel, count = given["kernel_shape"], len(sizes)
    strides, pads = given["strides"] or [1] * count, given["pads"] or [0] * 2 * count
    full = [
        (sizes[i] - 1) * strides[i] - pads[i] - pads[i + count] + kernel[i] for i in range(count)
    ]  # what the indices count over; output_shape adds zeros behind
    add, kind = Part(graph), match.dtypes["X"]
    x, indices = graph.nodes[0].inputs[:2]
    inner = channels * int(np.prod(full))
    if isinstance(batch, int):
        zeros = np.zeros(batch * inner, kind)
    else:
        total = add("Mul", add("Gather", add("Shape", x), np.array([0])), np.array([inner]))
        zeros = add("Expand", np.zeros(1, kind), total)
    flat = [add("Reshape", value, np.array([-1])) for value in (indices, x)]
    spread = add("ScatterElements", zeros, *flat, axis=0)
    result = add("Reshape", spread, np.array([-1, channels, *full]))
    if wanted is not None:
        room = [int(size) - have for size, have in zip(wanted[2:], full, strict=True)]
        if min(room) < 0:
            raise RefusedError(f"output_shape {list(wanted)} is smaller than what is unpooled, {full}")
        if any(room):
            behind = np.array([*[0] * (count + 4), *room])
            result = add("Pad", result, behind, np.array(0, kind))
    add.finish({"output": result})
