"""MatMulInteger as float32 products that are exact."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from engine.rules import quantized
from engine.rules.python_rule import Captured
from engine.rules.surgeon import INT32, Part


def apply(graph: gs.Graph, match: Captured) -> None:
    """Subtract the zero points, multiply in float32, and give the whole numbers back as int32."""
    part = Part(graph)
    a, b, a_zero, b_zero = (part.input(index) for index in range(4))
    shape = match.shapes["A"]
    quantized.per_row(a_zero, len(shape) if shape else None)
    first, second = (a, match.dtypes["A"], a_zero), (b, match.dtypes["B"], b_zero)
    total = quantized.matmul(part, first, second, quantized.inner_size(match.shapes["A"], match.shapes["B"]))
    part.result(0, "Cast", total, to=INT32)
