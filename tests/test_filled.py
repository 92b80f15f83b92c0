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


def test_a_sequence_is_not_taken_for_a_tensor() -> None:
    """Or the graph would not be valid any more, for a loop would carry something else than it was given."""
    text = """<ir_version: 10, opset_import: ["" : 18]>
    g (float[2] x, int64 n) => (float[k] y) <bool go = {1}> {
      none = SequenceEmpty ()
      all = Loop (n, go, none) <body = f (int64 i, bool c, seq(float[]) before) => (bool d, seq(float[]) after) {
        after = SequenceInsert (before, x)
        d = Identity (c)
      }>
      z = ConcatFromSequence <axis = 0> (all)
      y = Neg (z)
    }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    filled.fill(model)
    kinds = {value.name: value.type for node in model.graph for value in node.outputs}
    assert kinds["all"] == ir.SequenceType(ir.TensorType(ir.DataType.FLOAT))
    assert kinds["z"] == ir.TensorType(ir.DataType.FLOAT)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
