"""TensorScatter as ScatterElements with the written places spread over all other axes."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part


def apply(graph: gs.Graph, match: Captured) -> None:
    shape, mode = match.shapes["past_cache"], match.attributes["mode"]
    circular = mode in ("circular", b"circular")
    if len(shape) == 4 and not circular:
        raise RefusedError("TensorRT takes TensorScatter of four axes in linear mode as it is")
    rank, axis = len(shape), match.attributes["axis"] % len(shape)
    steps, length = match.shapes["update"][axis], shape[axis]
    if not isinstance(steps, int) or (circular and not isinstance(length, int)):
        raise RefusedError(f"axis {axis} of update ({steps}) or of past_cache ({length}) is dynamic")
    add, (past, update, *start) = Part(graph), graph.nodes[0].inputs
    column = [1] * rank
    column[axis] = steps
    places = np.arange(steps).reshape(column)
    if start:
        first = add("Unsqueeze", start[0], np.arange(1, rank))
        places = add("Add", first, places)
        if circular:
            places = add("Mod", places, np.array(length, np.int64))
    if all(isinstance(size, int) for size in match.shapes["update"]):
        whole = np.array(match.shapes["update"])
    else:
        whole = add("Shape", update)
    indices = add("Expand", places, whole)
    add.finish({"present_cache": add("ScatterElements", past, indices, update, axis=axis)})
