"""QuantizeLinear of an 8-bit type with a zero point as float32 arithmetic."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from engine.rules import rounding
from engine.rules.blocks import laid_out
from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part, array_of


def apply(graph: gs.Graph, match: Captured) -> None:
    """Divide by the scale, round to even, add the zero point and saturate."""
    part = Part(graph)
    x, scale, zero = (part.input(index) for index in range(3))
    known, dtype = array_of(zero), match.dtypes["y"]
    if dtype == "int8" and (zero is None or (known is not None and not known.any())):
        raise RefusedError("TensorRT takes int8 with a zero point of 0 as it is")
    axis, block = match.attributes.get("axis", 1), match.attributes.get("block_size") or 0
    divisor = laid_out(part, scale, match.shapes["x"], axis, block)
    offset = laid_out(part, zero, match.shapes["x"], axis, block) if zero is not None else None
    rounding.saturated(part, part("Div", x, divisor), offset, dtype)
