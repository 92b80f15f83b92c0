"""What lowering writes is what TensorRT-RTX accepts in a strongly typed network, without a GPU."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx.helper
import onnx.numpy_helper
import onnx.parser
import onnx_ir as ir
import pytest

from engine.graph import files
from engine.precision.lower import lower
from engine.precision.selectors import resolve
from engine.quantize import insert
from engine.recipe import Override

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None, reason="tensorrt_rtx is not installed"
)

BUILD = """
import json, sys
import tensorrt_rtx as trt
logger = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(logger)
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
parser = trt.OnnxParser(network, logger)
answer = {"parsed": parser.parse_from_file(sys.argv[1]), "built": False}
answer["errors"] = [parser.get_error(i).desc() for i in range(parser.num_errors)]
if answer["parsed"]:
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    target = sys.argv[2] if len(sys.argv) > 2 else "SM89"
    config.set_compute_capability(getattr(trt.ComputeCapability, target), 0)
    answer["built"] = builder.build_serialized_network(network, config) is not None
    layers = [network.get_layer(i) for i in range(network.num_layers)]
    answer["types"] = {layer.name: layer.get_output(0).dtype.name for layer in layers if layer.num_outputs}
print("ANSWER" + json.dumps(answer))
"""

BLOCK = """
<ir_version: 10, opset_import: ["": 18]>
g (float[2, 8, 16] x, bool[2, 8, 8] keep) => (float[2, 8, 16] y)
<float zero = {0}, float off = {-3.4028235e38}, float root = {0.25}>
{
  [ln] h = LayerNormalization <axis = -1> (x, scale, bias)
  [q] q = MatMul (h, w)
  [k] k = Transpose <perm = [0, 2, 1]> (h)
  [qk] s = MatMul (q, k)
  [scale] t = Mul (s, root)
  [mask] m = Where (keep, zero, off)
  [add] a = Add (t, m)
  [soft] p = Softmax (a)
  [pv] o = MatMul (p, h)
  [res] y = Add (o, x)
}
"""


def build(path: Path, target: str = "SM89") -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(path), target], capture_output=True, text=True, timeout=120, check=True
    )
    return json.loads(done.stdout.partition("ANSWER")[2])  # type: ignore[no-any-return]


def block() -> ir.Model:
    proto = onnx.parser.parse_model(BLOCK)
    rng = np.random.default_rng(0)
    for name, shape in {"w": (16, 16), "scale": (16,), "bias": (16,)}.items():
        array = rng.normal(size=shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return ir.from_proto(proto)


@pytest.mark.parametrize("base", ["fp16", "bf16"])
def test_a_lowered_attention_block_builds_in_the_types_asked(tmp_path: Path, base: str) -> None:
    model = block()
    norm = Override(type="fp32", because="test", op="LayerNormalization")
    lower(model, resolve(model, base, [norm]))  # type: ignore[arg-type]
    files.save(model, tmp_path / "low.onnx", "low.weights")
    answer = build(tmp_path / "low.onnx")
    assert answer["built"], answer["errors"]
    low = {"fp16": "HALF", "bf16": "BF16"}[base]
    types = answer["types"]
    assert isinstance(types, dict)
    assert {name: types[name] for name in ("q", "qk", "soft", "pv", "ln")} == {
        "q": low,
        "qk": low,
        "soft": low,
        "pv": low,
        "ln": "FLOAT",
    }


def test_mixed_types_without_lowering_are_refused(tmp_path: Path) -> None:
    model = block()
    weight = model.graph.initializers["w"]
    assert weight.const_value is not None
    weight.const_value = ir.tensor(weight.const_value.numpy().astype(np.float16), name="w")
    weight.type = ir.TensorType(ir.DataType.FLOAT16)
    files.save(model, tmp_path / "mixed.onnx", "mixed.weights")
    answer = build(tmp_path / "mixed.onnx")
    assert not answer["parsed"]
    assert "Half" in str(answer["errors"])


PRODUCTS = """
<ir_version: 10, opset_import: ["": 21]>
g (float[4, 3, 8, 8] x) => (float[4, 64] y) <int64[2] flat = {4, 512}>
{
  [conv] c = Conv <pads = [1, 1, 1, 1]> (x, k)
  [relu] r = Relu (c)
  [flat] f = Reshape (r, flat)
  [m] h = MatMul (f, w)
  [g] y = Gemm <transB = 1> (h, v, b)
}
"""


@pytest.mark.parametrize(
    ("kind", "floats", "target"),
    [("int8", "fp16", "SM75"), ("int8", "fp32", "SM86"), ("int8", "bf16", "SM80"), ("fp8", "fp16", "SM89"),
     ("fp8", "bf16", "SM120"), ("int4", "fp16", "SM80"), ("int4", "fp16", "SM120")],
)  # fmt: skip
def test_every_quantised_type_builds_where_the_target_has_it(
    tmp_path: Path, kind: str, floats: str, target: str
) -> None:
    proto = onnx.parser.parse_model(PRODUCTS)
    rng = np.random.default_rng(0)
    for name, shape in {"k": (8, 3, 3, 3), "w": (512, 128), "v": (64, 128), "b": (64,)}.items():
        array = rng.normal(size=shape).astype(np.float32) / 8
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    model = ir.from_proto(proto)
    ranges = {"x": 4.0, "f": 4.0, "h": 8.0}
    assignment, done = insert.quantise(model, resolve(model, kind, (), floats), ranges)  # type: ignore[arg-type]
    lower(model, assignment)
    files.save(model, tmp_path / "q.onnx", "q.weights")
    assert set(done.nodes) == ({"m", "g"} if kind == "int4" else {"conv", "m", "g"})
    answer = build(tmp_path / "q.onnx", target)
    assert answer["built"], answer
    types = set(answer["types"].values())  # type: ignore[attr-defined]
    assert {"int8": "INT8", "fp8": "FP8", "int4": "INT4"}[kind] in types or kind == "int4", types
