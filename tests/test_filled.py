"""Inner values get their types and shapes before rules look at them."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx_ir as ir

from engine.graph import filled

TEXT = """
<ir_version: 10, opset_import: ["" : 20]>
net (float[n,4] x, float s) => (float[n,4] y)
<uint8 z = {117}>
{
  q = QuantizeLinear (x, s, z)
  y = DequantizeLinear (q, s, z)
}
"""


def test_a_file_without_inner_types_gets_them() -> None:
    model = ir.from_proto(onnx.parser.parse_model(TEXT))
    (quantised,) = model.graph[0].outputs
    assert quantised.type is None
    filled.fill(model)
    assert quantised.dtype == ir.DataType.UINT8
    assert quantised.shape is not None
    assert quantised.shape[1] == 4


def test_what_is_said_stays() -> None:
    model = ir.from_proto(onnx.parser.parse_model(TEXT))
    (quantised,) = model.graph[0].outputs
    quantised.shape = ir.Shape(["rows", 4])
    filled.fill(model)
    assert quantised.shape == ir.Shape(["rows", 4])
