"""Q/DQ in the graph: who is quantised, by which scales, what the weights become, and what stays out with a reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx.checker
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import types_proof
from engine.errors import StepError
from engine.fused_plan import FusedLayer, TensorInfo
from engine.graph import files
from engine.plan import PlannedCalibration
from engine.precision.lower import lower
from engine.precision.quantizable import Weight, weight_of
from engine.precision.rehearsal import run_shadow
from engine.precision.selectors import resolve
from engine.precision.shadow import build_shadow
from engine.quantize import collect, grid, insert, legacy, verify
from engine.quantize.weights import QuantisedTensor, largest
from engine.recipe import FloatType, NodeType, Override, QuantType
from engine.runtime import run, session
from engine.steps import build

RNG = np.random.default_rng(7)
TWO = """
g (float[b, 128] x) => (float[b, 64] y) {
  [first] h = MatMul (x, w)
  [act] r = Relu (h)
  [second] y = Gemm <transB = 1> (r, v, c)
}
"""
WEIGHTS = {"w": RNG.normal(size=(128, 192)), "v": RNG.normal(size=(64, 192)), "c": RNG.normal(size=(64,))}
RANGES = {"x": 4.0, "r": 60.0}


def model(body: str = TWO, weights: Any = None, opset: int = 21) -> ir.Model:
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]>\n{body}')
    for name, array in (WEIGHTS if weights is None else weights).items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, np.float32), name))
    return ir.from_proto(proto)


def quantised(
    folder: Path, graph: ir.Model, base: NodeType, *overrides: Override, floats: FloatType = "fp16",
    ranges: Any = None,
) -> tuple[ir.Model, insert.Quantised]:  # fmt: skip
    assignment = resolve(graph, base, overrides, floats)
    assignment, done = insert.quantise(graph, assignment, RANGES if ranges is None else ranges)
    lower(graph, assignment)
    verify.require(graph, done)
    files.save(graph, folder / "low.onnx", "low.weights")
    onnx.checker.check_model(str(folder / "low.onnx"), full_check=True)
    return files.load(folder / "low.onnx"), done


def rehearsed(folder: Path, low: ir.Model, x: Any) -> Any:
    files.save(build_shadow(low), folder / "shadow.onnx")
    return run_shadow(folder / "shadow.onnx", {"x": np.asarray(x, np.float32)})["y"]


def reference(x: Any) -> Any:
    return np.maximum(x @ WEIGHTS["w"], 0) @ WEIGHTS["v"].T + WEIGHTS["c"]


@pytest.mark.parametrize(("base", "most"), [("int8", 0.03), ("fp8", 0.08), ("int4", 0.2)])
@pytest.mark.parametrize("floats", ["fp32", "fp16", "bf16"])
def test_products_are_near_the_reference(tmp_path: Path, base: NodeType, most: float, floats: FloatType) -> None:
    x = RNG.normal(size=(16, 128)).clip(-4, 4)
    low, done = quantised(tmp_path, model(), base, floats=floats)
    assert done.nodes == {"first": base, "second": base}
    error = np.linalg.norm(rehearsed(tmp_path, low, x) - reference(x)) / np.linalg.norm(reference(x))
    assert 1e-4 < error < most


def test_int8_is_what_numpy_computes(tmp_path: Path) -> None:
    """Every number of the first product by hand: activations by one scale, weights by one a column."""
    x = RNG.normal(size=(5, 128)).astype(np.float32) * 2
    body = TWO.replace("y = Gemm <transB = 1> (r, v, c)", "y = Identity (r)").replace("b, 64", "b, 192")
    low, _ = quantised(tmp_path, model(body, {"w": WEIGHTS["w"]}), "int8", floats="fp32")
    w = WEIGHTS["w"].astype(np.float32)
    scale = np.float32(4.0 / 127)
    scales = (np.abs(w).max(axis=0).astype(np.float64) / 127).astype(np.float32)
    codes = np.rint(np.clip(x / scale, -128, 127)) * scale
    rounded = np.rint(np.clip(w / scales, -128, 127)) * scales
    np.testing.assert_allclose(rehearsed(tmp_path, low, x), np.maximum(codes @ rounded, 0), atol=1e-4)


def test_weights_are_a_quarter_and_the_floats_are_gone(tmp_path: Path) -> None:
    low, done = quantised(tmp_path, model(), "int8")
    assert sum(done.weights.values()) == 128 * 192 + 64 * 192
    names = {value.name: value.dtype for value in low.graph.initializers.values()}
    assert "w" not in names
    assert names["w_int8"] == ir.DataType.INT8
    assert (tmp_path / "low.weights").stat().st_size < 1.05 * (128 * 192 + 64 * 192)


@pytest.mark.parametrize("kind", ["int8", "fp8", "int4"])
@pytest.mark.parametrize(("shape", "channel"), [((64, 7), 1), ((7, 64), 0), ((128, 33), 1), ((5, 192), 0)])
def test_what_is_streamed_is_what_is_computed(
    tmp_path: Path, kind: QuantType, shape: tuple[int, int], channel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.quantize.weights._CHUNK", 100)  # several pieces
    array = RNG.normal(size=shape).astype(np.float32)
    value = ir.Value(name="w", const_value=ir.tensor(array, name="w"), type=ir.TensorType(ir.DataType.FLOAT))
    weight, block = Weight(value, channel, 1 - channel), 64 if kind == "int4" else None
    tops = largest(weight, block)
    if block is None:
        assert tops.tolist() == np.abs(array).max(axis=1 - channel).tolist()
    tensor = QuantisedTensor(weight, grid.scale_for(tops, kind, "fp32"), kind, block, "q")
    with (tmp_path / "bytes").open("wb") as stream:
        tensor.tofile(stream)
    assert (tmp_path / "bytes").read_bytes() == tensor.tobytes()
    spread = np.repeat(grid.scale_for(tops, kind, "fp32"), block, 1 - channel) if block else (
        grid.scale_for(tops, kind, "fp32").reshape((-1, 1) if channel == 0 else (1, -1)))  # fmt: skip
    restored = tensor.numpy().astype(np.float32) * spread
    step = spread * (0.5 if kind != "fp8" else 16.0)
    assert (np.abs(restored - array) <= step * 1.001).all()


@settings(max_examples=200, deadline=None)
@given(st.floats(-500, 500, width=32), st.floats(2.0**-10, 2.0, width=32))
def test_rounding_is_that_of_the_field(value: float, scale: float) -> None:
    one, by = np.array([value], np.float32), np.array([scale], np.float32)
    assert grid.quantise(one, by, "int8")[0] == np.clip(np.rint(one / by), -128, 127)[0]
    assert grid.quantise(one, by, "fp8")[0] == np.clip(one / by, -448, 448).astype(ml_dtypes.float8_e4m3fn)[0]
    assert np.isfinite(grid.quantise(one, by, "fp8").astype(np.float32)).all()


def test_scales_are_exact_in_the_float_type(tmp_path: Path) -> None:
    low, done = quantised(tmp_path, model(), "int8", ranges={"x": 3.3333, "r": 57.77})
    for scale in done.scales.values():
        assert float(np.float16(scale)) == scale
    kinds = {node.op_type: node.inputs[1].dtype for node in low.graph if node.op_type.endswith("Linear")}  # type: ignore[union-attr]
    assert kinds["DequantizeLinear"] == ir.DataType.FLOAT16


def test_one_pair_serves_all_readers(tmp_path: Path) -> None:
    three = """g (float[b, 128] x) => (float[b, 192] y) {
      [a] p = MatMul (x, w)  [b] q = MatMul (x, w)  [c] y = Add (p, q) }"""
    low, done = quantised(tmp_path, model(three, {"w": WEIGHTS["w"]}), "int8")
    assert sorted(node.op_type for node in low.graph if node.op_type.endswith("Linear")) == [
        "DequantizeLinear", "DequantizeLinear", "QuantizeLinear"]  # fmt: skip
    assert done.readers["a"] == done.readers["b"]


def test_no_cast_stands_beside_a_pair(tmp_path: Path) -> None:
    wide = Override("fp32", "test", op="Relu")
    low, _ = quantised(tmp_path, model(), "int8", wide)
    for node in low.graph:
        if node.op_type == "QuantizeLinear":
            maker = node.inputs[0].producer()  # type: ignore[union-attr]
            assert maker is None or maker.op_type != "Cast"
        if node.op_type == "DequantizeLinear":
            assert all(user.op_type != "Cast" for user, _ in node.outputs[0].uses())


def test_an_override_takes_a_node_out_and_another_puts_one_in(tmp_path: Path) -> None:
    _, done = quantised(tmp_path, model(), "int8", Override("fp16", "test", node="first"))
    assert done.nodes == {"second": "int8"}
    _, done = quantised(tmp_path, model(), "fp16", Override("int8", "test", op="MatMul"))
    assert done.nodes == {"first": "int8"}
    _, done = quantised(tmp_path, model(), "int8", Override("fp8", "test", node="first"))
    assert done.nodes == {"first": "fp8", "second": "int8"}


def test_an_override_that_can_quantise_nothing_is_an_error() -> None:
    with pytest.raises(StepError, match=r"matches 1 node\(s\), none of which can be int8") as caught:
        resolve(model(), "fp16", [Override("int8", "test", op="Relu")])
    assert "Conv, Gemm, MatMul" in caught.value.failure.fix
    with pytest.raises(StepError) as caught:
        resolve(model("g (float[b, 96] x) => (float[b, 8] y) { [m] y = MatMul (x, w) }",
                      {"w": RNG.normal(size=(96, 8))}), "fp16", [Override("int4", "test", op="MatMul")])  # fmt: skip
    assert "blocks of 64; 96 is no multiple" in caught.value.failure.fix


@pytest.mark.parametrize(
    ("change", "ranges", "reason"),
    [({"w": np.full((128, 192), np.inf)}, RANGES, "not finite"), ({}, {"r": 3.0}, "no range is known"),
     ({}, {"x": 0.0, "r": 3.0}, "was 0 throughout"), ({}, {"x": 1e9, "r": 3.0}, "does not fit into FP16"),
     ({"w": WEIGHTS["w"] * 1e-7}, RANGES, "does not fit into FP16")],
)  # fmt: skip
def test_what_cannot_be_quantised_stays_and_says_why(tmp_path: Path, change: Any, ranges: Any, reason: str) -> None:
    graph = model(weights={**WEIGHTS, **change})
    assignment = resolve(graph, "int8", (), "fp16")
    _, done = insert.quantise(graph, assignment, ranges)
    assert done.nodes == {"second": "int8"}
    assert [item.node for item in done.kept] == ["first"]
    assert reason in done.kept[0].reason
    assert reason in done.issues()[0].cause


def test_a_channel_of_zeros_keeps_its_neighbours(tmp_path: Path) -> None:
    w = WEIGHTS["w"].copy()
    w[:, 3] = 0
    low, done = quantised(tmp_path, model(weights={**WEIGHTS, "w": w}), "int8")
    assert "first" in done.nodes
    x = RNG.normal(size=(4, 128)).clip(-4, 4)
    expected = np.maximum(x @ w, 0) @ WEIGHTS["v"].T + WEIGHTS["c"]
    assert np.linalg.norm(rehearsed(tmp_path, low, x) - expected) < 0.03 * np.linalg.norm(expected)


def test_a_weight_with_a_float_reader_keeps_its_floats(tmp_path: Path) -> None:
    body = """g (float[b, 128] x) => (float[b, 192] y) <int64[1] ax = {0}> {
      [a] p = MatMul (x, w)  [s] t = ReduceSum (w, ax)  [c] y = Add (p, t) }"""
    low, done = quantised(tmp_path, model(body, {"w": WEIGHTS["w"]}), "int8")
    assert done.nodes == {"a": "int8"}
    assert {"w", "w_int8"} <= set(low.graph.initializers)


def test_a_weight_that_a_branch_reads_first(tmp_path: Path) -> None:
    body = """g (float[b, 128] x, bool go) => (float[b, 192] y) {
      i = If (go) <then_branch = t () => (float[b, 192] p) { [inner] p = MatMul (x, w) },
                   else_branch = e () => (float[b, 192] q) { [twin] q = MatMul (x, w) }>
      [outer] o = MatMul (x, w)
      [sum] y = Add (i, o)
    }"""
    low, done = quantised(tmp_path, model(body, {"w": WEIGHTS["w"]}), "int8")
    assert done.nodes == {"inner": "int8", "twin": "int8", "outer": "int8"}
    files.save(build_shadow(low), tmp_path / "shadow.onnx")
    x = RNG.normal(size=(4, 128)).clip(-4, 4).astype(np.float32)
    found = run_shadow(tmp_path / "shadow.onnx", {"x": x, "go": np.array(True)})["y"]
    expected = 2 * x @ WEIGHTS["w"]
    assert np.linalg.norm(found - expected) < 0.03 * np.linalg.norm(expected)


def test_products_of_two_activations_stay() -> None:
    graph = model("g (float[b, 8, 8] x) => (float[b, 8, 8] y) { [m] y = MatMul (x, x) }", {})
    node = next(iter(graph.graph))
    assert weight_of(node) is None
    assert resolve(graph, "int8", (), "fp16").quantised == {}


def test_the_tampered_graph_is_noticed(tmp_path: Path) -> None:
    graph = model()
    _, done = insert.quantise(graph, resolve(graph, "int8", (), "fp16"), RANGES)
    node = next(item for item in graph.graph if item.name == "first")
    node.replace_input_with(0, graph.graph.inputs[0])
    with pytest.raises(StepError, match="inconsistent"):
        verify.require(graph, done)


@pytest.mark.parametrize("method", ["max", "entropy", "percentile"])
def test_ranges(tmp_path: Path, method: Any) -> None:
    graph = model()
    files.save(graph, tmp_path / "g.onnx", "g.weights")
    graph = files.load(tmp_path / "g.onnx")
    batches = [{"x": RNG.normal(size=(64, 128)).astype(np.float32)} for _ in range(4)]
    batches[2]["x"][0, 0] = 1000.0  # one outlier among 32,768
    calibration = PlannedCalibration(method, percentile=99.9)
    found = collect.ranges(graph, ["x", "r"], tmp_path / "c.onnx", batches, calibration, lambda _: None)
    outputs = [run(session(tmp_path / "c.onnx"), batch) for batch in batches]
    top = max(float(np.abs(item["r"]).max()) for item in outputs)
    if method == "max":
        assert found["x"] == 1000.0
        assert top <= found["r"] <= top * 1.001
    else:
        assert found["x"] < 200.0  # the outlier is cut off


def test_ranges_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    files.save(model(), tmp_path / "g.onnx", "g.weights")
    graph = files.load(tmp_path / "g.onnx")
    batch = {"x": np.full((2, 128), 3e38, np.float32)}
    with pytest.raises(StepError, match="tensor r is not finite in FP32 on calibration batch 0"):
        collect.ranges(graph, ["r"], tmp_path / "c.onnx", [batch], PlannedCalibration(), lambda _: None)


CACHE = "TRT-8601-EntropyCalibration2\nx: 3c010a14\nr: 3f800000\n"


def test_a_calibration_cache_gives_ranges(tmp_path: Path) -> None:
    (tmp_path / "a.cache").write_text(CACHE)
    found = legacy.read(tmp_path / "a.cache")
    assert found["x"] == pytest.approx(127 * 0.0078759, rel=1e-4)
    assert found["r"] == 127.0


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [("", 1, "begins with"), ("x: 3c010a14\n", 1, "begins with"), (CACHE + "z: 3c01\n", 4, "eight hexadecimal"),
     (CACHE + "z: 7fc00000\n", 4, "is nan"), (CACHE + "x: 3c010a14\n", 4, "stands twice"),
     (CACHE + "z: bf800000\n", 4, "is -1.0")],
)  # fmt: skip
def test_a_damaged_cache_is_refused_at_its_line(tmp_path: Path, text: str, line: int, what: str) -> None:
    (tmp_path / "a.cache").write_text(text)
    with pytest.raises(StepError, match=what) as caught:
        legacy.read(tmp_path / "a.cache")
    assert caught.value.failure.symptom.startswith(f"a.cache:{line}: ")
    assert caught.value.failure.usage


def layer(nodes: str, inputs: str, constants: str = "") -> FusedLayer:
    def tensors(names: str) -> tuple[TensorInfo, ...]:
        return tuple(TensorInfo("t", name, ()) for name in names.split())

    return FusedLayer(nodes, "gemm", tensors(inputs), (), tensors(constants), tuple(nodes.split()))


@pytest.mark.parametrize(
    ("kind", "layers", "wide", "apart"),
    [("int8", [layer("m qx qw", "int8", "int8")], 0, 0), ("int8", [layer("m qx qw", "float16", "int8")], 1, 0),
     ("int8", [layer("qx", "int8"), layer("m", "float16")], 1, 0), ("fp8", [layer("m", "int8")], 1, 0),
     ("int4", [layer("m qw", "float16", "int4")], 0, 0),
     ("int4", [layer("qw", "", "int4"), layer("m", "float16")], 0, 1),
     ("int4", [layer("m qw", "float16", "float16")], 1, 0)],
)  # fmt: skip
def test_a_quantised_node_that_runs_in_floats_is_seen(kind: str, layers: Any, wide: int, apart: int) -> None:
    asked = [{"node": "m", "op": "MatMul", "type": kind, "outputs": [], "override": -1, "behind": ["qx", "qw"]}]
    proof = types_proof.prove_plan(asked, layers)[f"base, {kind}"]
    assert (len(proof.wide), proof.shown, proof.apart) == (wide, 1 - wide, apart)
    if wide:
        with pytest.raises(StepError, match=f"1 of 1 {kind} nodes do not run in {kind}"):
            build._quantised(asked, layers)


@pytest.mark.parametrize("kind", ["int8", "fp8", "int4"])
def test_a_region_that_the_plan_does_not_open_is_told_and_no_fault(kind: str) -> None:
    asked = [{"node": "m", "op": "MatMul", "type": kind, "outputs": [], "override": -1, "behind": ["qx", "qw"]}]
    region = replace(layer("m qx qw", "float16"), kind="Myelin")
    proof = types_proof.prove_plan(asked, [region])[f"base, {kind}"]
    assert (proof.wide, proof.shown, proof.hidden, proof.shows) == ((), 0, 1, False)
    assert "1 in regions that the plan does not open" in proof.text
    build._quantised(asked, [region])
    (told,) = build._unseen({f"base, {kind}": proof.text}, asked, [region])
    assert told.disposition == "open"
    (told,) = build._unseen({}, asked, [])
    assert told.symptom == f"whether 1 nodes run in {kind} is not known (base, {kind})"
    assert told.disposition == "open"


def test_a_tensor_in_two_quantised_types_has_both_scales(tmp_path: Path) -> None:
    body = """g (float[b, 128] x) => (float[b, 192] y) {
      [a] p = MatMul (x, w)  [b] q = MatMul (x, w)  [c] y = Add (p, q) }"""
    _, done = quantised(tmp_path, model(body, {"w": WEIGHTS["w"]}), "int8", Override("fp8", "test", node="b"))
    assert list(done.scales) == ["x", "x (fp8, fp16)"]
