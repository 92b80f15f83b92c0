"""From float32 to 8-bit integers as the standard's quantisers do it: to nearest, ties to even, saturated."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.rules.constants import Array
from engine.rules.quantized import RANGES, real
from engine.rules.surgeon import FLOAT, Part, array_of

NUMBERS = {"uint8": 2, "int8": 3}  # onnx.TensorProto's


def saturated(part: Part, value: Any, zero: Any, dtype: str) -> None:
    """``value`` rounded, moved by ``zero`` and cut to the type, as the node's only output.

    The last Cast gets whole numbers within the type; TensorRT takes a Cast to uint8 before an output.
    """
    moved = rounded(part, value)
    offset = array_of(zero)
    if zero is not None and (offset is None or offset.any()):
        moved = part(
            "Add", moved, part("Cast", zero, to=FLOAT) if offset is None else offset.astype(np.float32)
        )
    part.result(0, "Cast", clipped(part, moved, *RANGES[dtype]), to=NUMBERS[dtype])


def rounded(part: Part, value: Any) -> Any:
    """To the nearest whole number, a half to the even one. Opset 10 has no Round."""
    if part.opset >= 11:
        return part("Round", value)
    half, two = np.float32(0.5), np.float32(2)
    up = part("Floor", part("Add", value, half))
    tie = part("Cast", part("Not", part("Less", part("Sub", up, value), half)), to=FLOAT)
    odd = part("Sub", up, part("Mul", part("Floor", part("Mul", up, half)), two))
    return part("Sub", up, part("Mul", tie, odd))


def clipped(part: Part, value: Any, low: float, high: float) -> Any:
    if part.opset < 11:
        return part("Clip", value, min=float(low), max=float(high))
    return part("Clip", value, np.float32(low), np.float32(high))


def ratio(part: Part, first: Any, second: Any, result: Any) -> Any:
    """``first * second / result`` of scales in their own type, given as float32."""
    known = [array_of(scale) for scale in (first, second, result)]
    if all(array is not None for array in known):
        one, two, three = known
        quotient: Array = one * two / three  # type: ignore[operator]
        return quotient.astype(np.float32)
    found = part("Div", part("Mul", first, second), result)
    found.dtype = first.dtype
    return real(part, found)
