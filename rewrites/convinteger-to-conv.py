"""ConvInteger as float32 convolutions that are exact."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from engine.rules import quantized
from engine.rules.python_rule import Captured
from engine.rules.surgeon import INT32, Part


def apply(graph: gs.Graph, match: Captured) -> None:
    """Subtract the zero points, so that padding is zero, convolve, and give whole numbers back as int32."""
    part = Part(graph)
    x, w, x_zero, w_zero = (part.input(index) for index in range(4))
    image, kernel = (x, match.dtypes["x"], x_zero), (w, match.dtypes["w"], w_zero)
    part.result(0, "Cast", quantized.conv(part, image, kernel, match.shapes["w"]), to=INT32)
