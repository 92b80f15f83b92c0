"""QLinearMatMul as float32 products that are exact, scaled and rounded."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from engine.rules import quantized, rounding
from engine.rules.python_rule import Captured
from engine.rules.surgeon import FLOAT, Part


def apply(graph: gs.Graph, match: Captured) -> None:
    """The exact product of the integers, times one scale, rounded to even and saturated."""
    part = Part(graph)
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (part.input(index) for index in range(8))
    shape = match.shapes["a"]
    for given in (a_zero, a_scale):
        quantized.per_row(given, len(shape) if shape else None)
    first, second = (a, match.dtypes["a"], a_zero), (b, match.dtypes["b"], b_zero)
    total = quantized.matmul(part, first, second, quantized.inner_size(match.shapes["a"], match.shapes["b"]))
    if quantized.is_cut(total):
        total = part("Cast", total, to=FLOAT)
    scaled = part("Mul", total, rounding.ratio(part, a_scale, b_scale, y_scale))
    rounding.saturated(part, scaled, y_zero, match.dtypes["y_zero_point"])
