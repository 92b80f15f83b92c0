"""CumProd by products with copies shifted by 1, 2, 4, ..."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part


def apply(graph: gs.Graph, match: Captured) -> None:
    shape, axis = match.shapes["x"], match.constants.get("axis")
    if axis is None:
        raise RefusedError("axis is not a constant")
    at = int(axis.reshape(())) % len(shape)
    size = shape[at]
    if not isinstance(size, int):
        raise RefusedError(f"axis {at} of x is dynamic ({size}), and with it the number of steps")
    add, reverse = Part(graph), bool(match.attributes["reverse"])
    one = np.array(1, match.dtypes["x"])

    def shifted(value: gs.Tensor, by: int) -> gs.Tensor:
        """``value`` moved along the axis, ones in what becomes free."""
        start, end = (by, size) if reverse else (0, size - by)
        kept = add("Slice", value, np.array([start]), np.array([end]), np.array([at]))
        pads = np.zeros((2, len(shape)), np.int64)
        pads[1 if reverse else 0, at] = by
        return add("Pad", kept, pads.reshape(-1), one)

    product = graph.nodes[0].inputs[0]
    if match.attributes["exclusive"] and size:
        product = shifted(product, 1)
    step = 1
    while step < size:
        product = add("Mul", product, shifted(product, step))
        step *= 2
    add.finish({"y": product})
