"""The rehearsal: the shadow rounds exactly where a low-precision graph rounds, and the probe names the place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.checker
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.graph import files
from engine.precision import blocked
from engine.precision.lower import lower
from engine.precision.rehearsal import Probe, probe, run_shadow
from engine.precision.selectors import resolve
from engine.precision.shadow import build_shadow
from engine.recipe import Override
from engine.samples import Array


def parse(body: str, opset: int = 18) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]>\n{body}'))


def lowered(folder: Path, body: str, *overrides: Override, base: str = "fp16", io: str = "keep") -> ir.Model:
    model = parse(body)
    lower(model, resolve(model, base, overrides), io=io)  # type: ignore[arg-type]
    files.save(model, folder / "low.onnx", "low.weights")
    return files.load(folder / "low.onnx")


def rehearse(folder: Path, model: ir.Model, **feeds: object) -> dict[str, Array]:
    files.save(build_shadow(model), folder / "shadow.onnx")
    onnx.checker.check_model(str(folder / "shadow.onnx"), full_check=True)
    return run_shadow(folder / "shadow.onnx", {name: np.asarray(value) for name, value in feeds.items()})


def probed(folder: Path, model: ir.Model, **feeds: object) -> Probe:
    return probe(model, folder / "probe.onnx", {name: np.asarray(value) for name, value in feeds.items()})


SQUARE = "g (float[n] x) => (float[n] y) <float h = {0.001}> { [sq] s = Mul (x, x)  [back] y = Mul (s, h) }"


@pytest.mark.parametrize("io", ["keep", "lower"])
def test_overflow_between_two_ops_shows(tmp_path: Path, io: str) -> None:
    model = lowered(tmp_path, SQUARE.replace("0.001", "0.5"), io=io)
    out = rehearse(tmp_path, model, x=[2.0, 300.0, -300.0])
    assert out["y"].dtype == np.float32
    np.testing.assert_array_equal(out["y"], [2.0, np.inf, np.inf])
    assert probed(tmp_path, model, x=[2.0, 300.0]).first is not None


def test_a_wide_island_is_not_rounded(tmp_path: Path) -> None:
    wide = Override(type="fp32", because="test", op="Mul")
    out = rehearse(tmp_path, lowered(tmp_path, SQUARE, wide), x=[2.0, 300.0])
    np.testing.assert_allclose(out["y"], [0.004, 90.0], rtol=1e-3)
    body = "g (float[1] x) => (float[1] y, float[1] z) { [a] y = Exp (x)  [b] z = Sqrt (y) }"
    model = lowered(tmp_path, body, Override(type="fp32", because="test", node="a"))
    out = rehearse(tmp_path, model, x=[np.float32(0.1)])
    assert out["y"][0] == pytest.approx(np.exp(np.float32(np.float16(0.1)) * 0 + np.float32(0.1)), rel=1e-6)
    assert out["z"][0] == np.float32(np.float16(out["z"][0]))  # rounded


def test_weights_and_inputs_are_rounded(tmp_path: Path) -> None:
    body = "g (float[1] x) => (float[1] y) <float w = {1.0004}> { [a] y = Mul (x, w) }"
    out = rehearse(tmp_path, lowered(tmp_path, body), x=[1.0])
    assert out["y"][0] == np.float32(np.float16(1.0004)) != np.float32(1.0004)
    out = rehearse(tmp_path, lowered(tmp_path, body, io="lower"), x=[np.float32(1.0004)])
    assert out["y"][0] == np.float32(np.float16(np.float32(np.float16(1.0004)) ** 2))


def test_bf16_keeps_range_and_loses_digits(tmp_path: Path) -> None:
    body = "g (float[2] x) => (float[2] y) { [sq] s = Mul (x, x)  [one] y = Add (s, x) }"
    out = rehearse(tmp_path, lowered(tmp_path, body, base="bf16"), x=[300.0, 1.0078125])
    bf16 = ir.DataType.BFLOAT16.numpy()
    x = np.array([300.0, 1.0078125], np.float32).astype(bf16)
    np.testing.assert_array_equal(out["y"], ((x * x).astype(bf16) + x).astype(np.float32))
    assert np.isfinite(out["y"]).all()


def test_values_inside_a_fused_layer_can_be_left_unrounded(tmp_path: Path) -> None:
    model = lowered(tmp_path, SQUARE.replace("0.001", "0.5"))
    shadow = build_shadow(model, unrounded=["s"])
    files.save(shadow, tmp_path / "shadow.onnx")
    out = run_shadow(tmp_path / "shadow.onnx", {"x": np.array([300.0], np.float32)})
    np.testing.assert_array_equal(out["y"], [45000.0 // 32 * 32])


def test_the_lowered_model_is_untouched_and_weights_stay_where_they_are(tmp_path: Path) -> None:
    model = lowered(tmp_path, SQUARE)
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    build_shadow(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
    probed(tmp_path, model, x=[1.0])
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


NESTED = """
g (bool c, float[2] x, int64 times) => (float[2] y)
<float[2] w = {200, 2}, bool go = {1}>
{
  [t] h = Mul (x, w)
  [if] b = If (c) <
    then_branch = yes () => (float[2] p) { [mul] m = Mul (h, w)  [div] p = Div (m, w) },
    else_branch = no () => (float[2] q) { [id] q = Identity (h) }
  >
  [loop] l = Loop (times, go, b) <
    body = round (int64 i, bool on, float[2] a) => (bool still, float[2] d)
    { [still] still = Identity (on)  [add] d = Add (a, a) }
  >
  [out] y = Neg (l)
}
"""


def test_subgraphs_are_entered(tmp_path: Path) -> None:
    model = lowered(tmp_path, NESTED)
    out = rehearse(tmp_path, model, c=False, x=[1.0, 3.0], times=1)
    np.testing.assert_array_equal(out["y"], [-400.0, -12.0])
    out = rehearse(tmp_path, model, c=True, x=[2.0, 3.0], times=0)
    np.testing.assert_array_equal(out["y"], [-np.inf, -6.0])  # 400 * 200 leaves the range inside the branch
    out = rehearse(tmp_path, model, c=False, x=[2.0, 3.0], times=8)
    np.testing.assert_array_equal(out["y"], [-np.inf, -6.0 * 2**8])
    found = probed(tmp_path, model, c=True, x=[2.0, 3.0], times=0)
    assert found.first is None  # branches run, but only the main graph is looked into
    assert "if" in found.affected


def test_ops_that_name_their_own_type_run_wide(tmp_path: Path) -> None:
    body = """
    g (float[2] x, int64[2] k) => (float[2] y)
    <int64[1] shape = {2}>
    { [fill] f = ConstantOfShape <value = float[1] {1.0004}> (shape)  [int] i = Cast <to = 1> (k)
      [like] r = RandomNormalLike <dtype = 1, seed = 1.0> (x)  [zero] z = Sub (r, r)
      [sum] y = Sum (x, f, i, z) }
    """
    out = rehearse(tmp_path, lowered(tmp_path, body), x=[0.0, 0.0], k=[2049, 1])
    np.testing.assert_array_equal(out["y"], [2048.0, 2.0])  # 2049 rounds to 2048, 1.0004 to 1


ATTENTION = """
g (float[2, 4] q, bool[2, 4] keep) => (float[2, 4] y)
<float zero = {0}, float off = {-3.4028235e38}, float big = {1000}>
{
  [scale] s = Mul (q, big)
  [pick] m = Where (keep, zero, off)
  [add] a = Add (s, m)
  [soft] y = Softmax (a)
}
"""


@pytest.mark.parametrize("base", ["fp16", "bf16"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_table_is_not_widened_to_look_up_some_of_its_rows(tmp_path: Path, base: str, tied: bool) -> None:
    other = "MatMul (table, row)" if tied else "Relu (row)"
    body = f"""g (int64 i) => (float[2] y) <float[2, 2] table = {{0.1, 1.0, 300.0, 0.3}}> {{
      [look] row = Gather (table, i)  [out] y = {other} }}"""
    model = lowered(tmp_path, body, base=base)
    readers = [node.op_type for node in build_shadow(model).graph.initializers["table"].consumers()]
    assert sorted(readers) == (["Cast", "Gather"] if tied else ["Gather"])
    kind = (ir.DataType.BFLOAT16 if base == "bf16" else ir.DataType.FLOAT16).numpy()
    table = np.array([[0.1, 1.0], [300.0, 0.3]], np.float32).astype(kind).astype(np.float32)
    for index in (0, 1):
        wide = table @ table[index] if tied else table[index]
        with np.errstate(over="ignore"):
            narrow = wide.astype(kind).astype(np.float32)
        np.testing.assert_array_equal(rehearse(tmp_path, model, i=index)["y"], narrow)
        culprits = [item.node for item in probed(tmp_path, model, i=index).culprits]
        assert culprits == (["out"] if np.isinf(narrow).any() else [])


def test_a_table_with_infinities_does_not_make_the_look_up_a_culprit(tmp_path: Path) -> None:
    model = parse("""g (int64 i) => (float[2] y) <float[2, 2] table = {0, 0, 0, 0}> {
      [look] row = Gather (table, i)  [out] y = Relu (row) }""")
    model.graph.initializers["table"].const_value = ir.tensor(
        np.full((2, 2), np.inf, np.float32), name="table"
    )
    lower(model, resolve(model, "fp16", ()))
    files.save(model, tmp_path / "low.onnx", "low.weights")
    found = probed(tmp_path, files.load(tmp_path / "low.onnx"), i=1)
    assert found.culprits == ()
    assert "look" in found.affected


def test_masks_are_not_blamed(tmp_path: Path) -> None:
    keep = np.array([[True, False, True, True], [True, True, False, False]])
    for overrides in (
        (),
        (Override(type="fp32", because="test", node="pick"),),
        (Override(type="fp32", because="test", node="pick"), Override(type="fp32", because="t", node="add")),
    ):
        model = lowered(tmp_path, ATTENTION, *overrides)
        found = probed(tmp_path, model, q=np.ones((2, 4)), keep=keep)
        assert found.culprits == (), overrides
        found = probed(tmp_path, model, q=np.full((2, 4), 100.0), keep=keep)
        assert [(item.node, item.kind) for item in found.culprits] == [("scale", "overflow")], overrides
        assert found.culprits[0].high == 1e5


def test_an_infinite_mask_is_not_blamed_but_an_overflow_beside_it_is(tmp_path: Path) -> None:
    body = """
    g (float[3] x, float[3] mask) => (float[3] y) { [t] h = Mul (x, x)  [add] y = Add (h, mask) }
    """
    model = lowered(tmp_path, body)
    mask = np.array([-np.inf, 0, 60000], np.float32)
    assert probed(tmp_path, model, x=[1, 1, 1], mask=mask).culprits == ()
    found = probed(tmp_path, model, x=[1, 1, 200], mask=mask)
    assert [(item.node, item.kind) for item in found.culprits] == [("add", "overflow")]


def test_nan_is_seen_wherever_it_lies_and_the_follower_is_not_blamed(tmp_path: Path) -> None:
    body = (
        "g (float[n] x) => (float[n] y) { [sub] s = Sub (x, x)  [root] r = Sqrt (x)  [add] y = Add (s, r) }"
    )
    model = lowered(tmp_path, body)
    for place in range(5):  # the runtime's ReduceMin and ReduceMax skip a NaN that is not the first element
        x = np.ones(5)
        x[place] = -1
        found = probed(tmp_path, model, x=x)
        assert [(item.node, item.kind) for item in found.culprits] == [("root", "invalid")]
        assert found.affected == ("root", "add")
    assert probed(tmp_path, model, x=np.ones(5)).affected == ()


def test_probe_of_empty_tensors(tmp_path: Path) -> None:
    found = probed(tmp_path, lowered(tmp_path, SQUARE), x=np.zeros(0))
    assert found.culprits == ()


def test_a_cast_is_blamed_for_what_it_cannot_hold(tmp_path: Path) -> None:
    wide = Override(type="fp32", because="test", node="sq")
    found = probed(tmp_path, lowered(tmp_path, SQUARE.replace("0.001", "0.5"), wide), x=[300.0])
    assert [(item.op, item.kind) for item in found.culprits] == [("Cast", "overflow")]
    assert {item.node: item.high for item in found.seen if item.type == "fp32"}["sq"] == 90000.0


HALF = {
    "Add": np.add,
    "Mul": np.multiply,
    "Sub": np.subtract,
    "Div": np.divide,
    "Exp": np.exp,
    "Sqrt": lambda a: np.sqrt(np.abs(a)),
    "MatMul": lambda a, b: np.matmul(a.astype(np.float32), b.astype(np.float32)),
    "ReduceSum": lambda a: np.broadcast_to(np.sum(a.astype(np.float32), axis=-1, keepdims=True), a.shape),
    "Softmax": lambda a: _softmax(a.astype(np.float32)),
}
LINES = {
    "Sqrt": "a{0} = Abs ({1}) [n{0}] v{0} = Sqrt (a{0})",
    "ReduceSum": "[n{0}] s{0} = ReduceSum ({1}, last) v{0} = Expand (s{0}, shape)",
    "Softmax": "[n{0}] v{0} = Softmax ({1})",
    "Exp": "[n{0}] v{0} = Exp ({1})",
}


def _softmax(a: Array) -> Array:
    e = np.exp(a - a.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)  # type: ignore[no-any-return]


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, tuple[int, ...]]]:
    """A few ops, each with the numbers of the values it reads (0 and 1 are the inputs)."""
    steps = []
    for index in range(draw(st.integers(2, 7))):
        op = draw(st.sampled_from(sorted(HALF)))
        arity = 1 if op in LINES else 2
        steps.append((op, tuple(draw(st.integers(max(0, index - 1), index + 1)) for _ in range(arity))))
    return steps


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=programs(),
    scale=st.sampled_from([0.01, 1.0, 30.0, 200.0, 3000.0]),
    seed=st.integers(0, 2**16),
)
def test_no_overflow_of_numpy_float16_is_missed(
    tmp_path: Path, steps: list[tuple[str, tuple[int, ...]]], scale: float, seed: int
) -> None:
    """Each value of the shadow is numpy's, computed in FP32 per op and rounded to float16 after it.

    The same inputs go into both at every op (the shadow's own values, read from its graph), so that
    a last-digit difference cannot grow. Values within one part in a thousand of the edge may fall either way.
    """
    lines = []
    for index, (op, reads) in enumerate(steps, start=2):
        form = LINES.get(op, f"[n{{0}}] v{{0}} = {op} ({{1}})")
        lines.append(form.format(index, ", ".join(f"v{number}" for number in reads)))
    outputs = ", ".join(f"float[4, 4] v{index}" for index in range(2, len(steps) + 2))
    model = lowered(
        tmp_path,
        f"g (float[4, 4] v0, float[4, 4] v1) => ({outputs}) "
        f"<int64[1] last = {{-1}}, int64[2] shape = {{4, 4}}> {{ {' '.join(lines)} }}",
    )
    rng = np.random.default_rng(seed)
    feeds = {name: (rng.normal(size=(4, 4)) * scale).astype(np.float32) for name in ("v0", "v1")}
    got = rehearse(tmp_path, model, **feeds)
    ranges = {item.node: item for item in probed(tmp_path, model, **feeds).seen}
    known = {name: value.astype(np.float16) for name, value in feeds.items()}
    for index, (op, reads) in enumerate(steps, start=2):
        with np.errstate(all="ignore"):
            arguments = [known[f"v{number}"] for number in reads]
            wide = HALF[op](*[item.astype(np.float32) for item in arguments])
            expected = wide.astype(np.float16)
        actual = got[f"v{index}"].astype(np.float16)
        clear = ~(np.abs(np.abs(wide.astype(np.float64)) - 65520) < 66)
        np.testing.assert_array_equal(np.isinf(actual)[clear], np.isinf(expected)[clear], err_msg=op)
        np.testing.assert_array_equal(np.isnan(actual)[clear], np.isnan(expected)[clear], err_msg=op)
        both = np.isfinite(actual) & np.isfinite(expected)
        np.testing.assert_allclose(
            actual[both].astype(np.float64), expected[both].astype(np.float64), rtol=2e-3, atol=1e-7
        )
        seen = ranges[f"n{index}"]
        if np.isinf(expected[clear]).any() and not np.isnan(expected).any():
            assert seen.has_inf, op
        if np.isnan(expected[clear]).any():
            assert seen.has_nan or seen.has_inf, op
        known[f"v{index}"] = actual


@pytest.mark.parametrize("base", ["fp16", "bf16"])
def test_a_large_weight_is_widened_block_by_block(
    tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocked, "BLOCK", 600)
    monkeypatch.setattr(blocked, "_LEAST", 1200)
    rng = np.random.default_rng(0)
    model = parse("g (float[n, 70] x) => (float[n, 20] y) { [a] h = MatMul (x, w)  [b] y = MatMul (h, v) }")
    for name, shape in {"w": (70, 40), "v": (40, 20)}.items():
        tensor = ir.tensor(rng.normal(size=shape).astype(np.float32), name=name)
        value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=ir.Shape(shape))
        node = next(node for node in model.graph if node.name == {"w": "a", "v": "b"}[name])
        node.replace_input_with(1, value)
        model.graph.register_initializer(value)
    lower(model, resolve(model, base, ()))  # type: ignore[arg-type]
    files.save(model, tmp_path / "low.onnx", "low.weights")
    low = files.load(tmp_path / "low.onnx")
    blocked.write(low, tmp_path / "blocked.onnx")
    onnx.checker.check_model(str(tmp_path / "blocked.onnx"), full_check=True)
    split = files.load(tmp_path / "blocked.onnx").graph
    assert sum(node.op_type == "MatMul" for node in split) == 5 + 1  # the second weight is small
    feeds = {"x": rng.normal(size=(3, 70)).astype(np.float32)}
    whole, parts = rehearse(tmp_path, low, **feeds)["y"], run_shadow(tmp_path / "blocked.onnx", feeds)["y"]
    np.testing.assert_allclose(parts, whole, rtol=2e-2 if base == "bf16" else 2e-3, atol=0.05)
    assert not np.array_equal(parts, rehearse(tmp_path, low, x=feeds["x"] * 1.5)["y"])
