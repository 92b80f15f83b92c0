"""QLinearConv as float32 convolutions that are exact, scaled and rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules import quantized, rounding
from engine.rules.python_rule import Captured
from engine.rules.surgeon import FLOAT, INT32, Part, array_of


def apply(graph: gs.Graph, match: Captured) -> None:
    """The exact convolution of the integers and the bias, times one scale a channel, rounded and saturated."""
    part = Part(graph)
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = (part.input(index) for index in range(9))
    shape = match.shapes["w"]
    total = quantized.conv(part, (x, match.dtypes["x"], x_zero), (w, match.dtypes["w"], w_zero), shape)
    assert shape is not None  # conv refuses it
    lay = np.array([1, -1, *[1] * (len(shape) - 2)], dtype=np.int64)
    if bias is not None:
        total = _biased(part, total, bias, lay)
    elif quantized.is_cut(total):
        total = part("Cast", total, to=FLOAT)
    ratio = rounding.ratio(part, x_scale, w_scale, y_scale)
    if match.shapes["w_scale"] not in ((), (1,)):
        known = array_of(ratio)
        ratio = part("Reshape", ratio, lay) if known is None else known.reshape(lay)
    rounding.saturated(part, part("Mul", total, ratio), y_zero, match.dtypes["y_zero_point"])


def _biased(part: Part, total: Any, bias: Any, lay: np.ndarray) -> Any:
    """Added as int32, which holds what float32 does not; the one rounding is that of the sum."""
    known = array_of(bias)
    offset = part("Reshape", bias, lay) if known is None else known.reshape(lay)
    whole = total if quantized.is_cut(total) else part("Cast", total, to=INT32)
    return part("Cast", part("Add", whole, offset), to=FLOAT)
