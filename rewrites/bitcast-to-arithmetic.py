"""BitCast between 8-bit types as arithmetic on int32."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import INT32, Part

INT8, UINT8 = 3, 2  # onnx.TensorProto's numbers


def apply(graph: gs.Graph, match: Captured) -> None:
    """A negative number is 256 less than its bits say."""
    part, source, target = Part(graph), match.dtypes["input"], match.attributes["to"]
    value = part.input(0)
    if (source, target) == ("bool", UINT8):
        part.result(0, "Cast", value, to=UINT8)
        return
    if (source, target) not in (("int8", UINT8), ("uint8", INT8)):
        raise RefusedError(f"from {source} to type {target}; TensorRT has no operator that reads these bits")
    whole, step = part("Cast", value, to=INT32), np.array(256, dtype=np.int32)
    if target == UINT8:
        moved = part("Mod", part("Add", whole, step), step)
    else:
        high = part("Div", whole, np.array(128, dtype=np.int32))
        moved = part("Sub", whole, part("Mul", high, step))
    part.result(0, "Cast", moved, to=target)
