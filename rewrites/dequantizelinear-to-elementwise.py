"""DequantizeLinear of what TensorRT does not take as float arithmetic."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from engine.rules.blocks import laid_out
from engine.rules.python_rule import Captured
from engine.rules.quantized import centred
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part, array_of

HALF = 10


def apply(graph: gs.Graph, match: Captured) -> None:
    """The distance from the zero point as a float, times the scale."""
    part = Part(graph)
    x, scale, zero = (part.input(index) for index in range(3))
    known, dtype = array_of(zero), match.dtypes["x"]
    if dtype == "int8" and (zero is None or (known is not None and not known.any())):
        raise RefusedError("TensorRT takes int8 with a zero point of 0 as it is")
    if dtype == "int32" and zero is not None and (known is None or known.any()):
        raise RefusedError("an int32 has no zero point other than 0")
    axis, block = match.attributes.get("axis", 1), match.attributes.get("block_size") or 0
    shape = match.shapes["x"]
    factor = laid_out(part, scale, shape, axis, block)
    offset = laid_out(part, zero, shape, axis, block) if zero is not None else None
    distance = centred(part, x, offset)
    if match.dtypes["y"] == "float32":
        part.result(0, "Mul", distance, factor)
    else:
        part.result(0, "Cast", part("Mul", distance, factor), to=HALF)
