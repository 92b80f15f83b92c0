"""Constants that a narrow type cannot hold: clamped, kept wide, or reported; never silently lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from engine.graph import files
from engine.precision.lower import lower
from engine.precision.report import LoweringReport
from engine.precision.selectors import resolve
from engine.precision.verify import check_file
from engine.precision.weights import ConvertedTensor, convert, scan
from engine.recipe import Override


def lowered(
    folder: Path, body: str, *overrides: Override, base: str = "fp16"
) -> tuple[ir.Model, LoweringReport]:
    model = ir.from_proto(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]>\n{body}'))
    report = lower(model, resolve(model, base, overrides))  # type: ignore[arg-type]
    files.save(model, folder / "low.onnx", "low.weights")
    check_file(folder / "low.onnx")
    return files.load(folder / "low.onnx"), report


def kept(report: LoweringReport) -> set[str]:
    return {item.node for item in report.kept_wide}


def content(model: ir.Model, name: str) -> list[float]:
    tensor = model.graph.initializers[name].const_value
    assert tensor is not None
    return [float(number) for number in tensor.numpy().reshape(-1)]


MASK = """
g (float[n, 4] x, bool[n, 4] keep) => (float[n, 4] y)
<float zero = {{0}}, float off = {{{value}}}>
{{
  [pick] m = Where (keep, zero, off)
  [add] s = Add (x, m)
  [soft] y = Softmax (s)
}}
"""


@pytest.mark.parametrize("value", ["-3.4028235e38", "-1e9", "-1e5"])
def test_masks_before_a_softmax_are_clamped(tmp_path: Path, value: str) -> None:
    model, report = lowered(tmp_path, MASK.format(value=value))
    assert content(model, "off") == [-32752.0]
    assert np.isfinite(np.float16(-32752) + np.float16(-32752))
    (change,) = report.constants
    assert (change.action, change.became, change.consumers) == ("clamped", -32752.0, ("add",))
    assert change.was == pytest.approx(float(value), rel=1e-6)
    assert kept(report) == set()
    fix = report.issues()[0].fix
    assert fix == "clamped to -32752; a row that is masked throughout comes out differently"


def test_a_mask_in_range_or_infinite_is_left_alone(tmp_path: Path) -> None:
    model, report = lowered(tmp_path, MASK.format(value="-10000"))
    assert content(model, "off") == [-10000.0]
    assert report.constants == ()
    values = np.array([-np.inf, -1e9, 1e9, 3.0], np.float32)
    assert convert(values, "fp16", 32752.0).tolist() == [-np.inf, -32752.0, 32752.0, 3.0]


def test_bf16_clamps_what_rounds_to_infinity(tmp_path: Path) -> None:
    model, report = lowered(tmp_path, MASK.format(value="-3.4028235e38"), base="bf16")
    assert content(model, "off")[0] == pytest.approx(-1.69e38, rel=1e-2)
    assert report.constants[0].action == "clamped"
    _, report = lowered(tmp_path, MASK.format(value="-1e9"), base="bf16")
    assert report.constants == ()


def test_a_mask_is_clamped_for_a_narrow_mover_before_a_wide_softmax(tmp_path: Path) -> None:
    body = """
    g (float[n, 4] x, bool[n, 4] keep) => (float[n, 4] y)
    <float off = {-1e9}>
    { [low] h = Tanh (x)  [pick] m = Where (keep, h, off)  [soft] y = Softmax (m) }
    """
    wide = Override(type="fp32", because="test", op="Softmax")
    model, report = lowered(tmp_path, body, wide)
    assert report.node_types["pick"] == "fp16"
    assert content(model, "off") == [-32752.0]


def test_a_precomputed_mask_buffer_is_clamped_value_by_value(tmp_path: Path) -> None:
    body = """
    g (float[2, 2] x) => (float[2, 2] y)
    <float[2, 2] buffer = {0, -3e38, -5, 0}>
    { [add] s = Add (x, buffer)  [soft] y = Softmax (s) }
    """
    model, report = lowered(tmp_path, body)
    assert content(model, "buffer") == [0.0, -32752.0, -5.0, 0.0]
    assert report.constants[0].count == 1


def test_an_inverted_mask_is_clamped_where_it_only_reaches_a_softmax(tmp_path: Path) -> None:
    body = """
    g (float[n, 4] x, int64[n, 4] keep) => (float[n, 4] y{more})
    <float one = {{1}}, float off = {{-3.4e38}}>
    {{
      [f] k = Cast <to = 1> (keep)  [inv] i = Sub (one, k)  [mul] m = Mul (i, off)
      [add] scores = Add (x, m)  [soft] y = Softmax (scores)
    }}
    """
    model, _ = lowered(tmp_path, body.format(more=""))
    assert content(model, "off") == [-32752.0]
    # As an output the number itself counts.
    model, report = lowered(tmp_path, body.format(more=", float[n, 4] scores"))
    assert content(model, "off") == [pytest.approx(-3.4e38)]
    assert "mul" in kept(report)


def test_a_huge_number_that_may_come_out_is_not_clamped(tmp_path: Path) -> None:
    body = """
    g (float[n, 4] x) => (float[n, 4] y) <float ten = {10}, float off = {-1e30}>
    { [big] b = Greater (x, ten)  [pick] y = Where (b, off, x) }
    """
    model, report = lowered(tmp_path, body)
    assert content(model, "off") == [pytest.approx(-1e30)]
    assert report.node_types["pick"] == "fp32"


def test_a_bound_goes_to_the_largest_value(tmp_path: Path) -> None:
    body = """
    g (float[4] x) => (float[4] y)
    <float low = {-3.4e38}, float high = {1e9}>
    { [clip] y = Clip (x, low, high) }
    """
    model, report = lowered(tmp_path, body)
    assert (content(model, "low"), content(model, "high")) == ([-65504.0], [65504.0])
    assert {change.reason for change in report.constants} == {"a bound beyond FP16's largest value 65504"}


@pytest.mark.parametrize(
    "op",
    ["Mul (x, big)", "Div (x, big)", "Add (x, big)", "Pow (big, x)"],
)
def test_other_values_out_of_range_keep_their_reader_wide(tmp_path: Path, op: str) -> None:
    body = f"g (float[4] x) => (float[4] y) <float big = {{70000}}> {{ [t] h = Tanh (x) [op] y = {op} }}"
    model, report = lowered(tmp_path, body)
    assert kept(report) == {"op"}
    assert report.kept_wide[0].reason == "constant big reaches 70000, past FP16's range"
    assert content(model, "big") == [70000.0]
    assert report.constants[0].action == "kept-wide"


def test_a_huge_factor_on_data_is_no_mask(tmp_path: Path) -> None:
    body = "g (float[4] x) => (float[4] y) <float big = {1e9}> { [op] y = Mul (x, big) }"
    _, report = lowered(tmp_path, body)
    assert kept(report) == {"op"}


def test_a_constant_out_of_range_is_followed_through_movement(tmp_path: Path) -> None:
    body = """
    g (float[2, 2] x) => (float[2, 2] y)
    <float[1] big = {70000}, int64[2] shape = {2, 2}>
    { [grow] b = Expand (big, shape)  [op] s = Div (x, b)  [out] y = Tanh (s) }
    """
    model, report = lowered(tmp_path, body)
    assert kept(report) == {"grow", "op"}
    assert content(model, "big") == [70000.0]


def test_a_fill_value_is_a_constant_too(tmp_path: Path) -> None:
    body = """
    g (float[2, 2] x) => (float[2, 2] y)
    <int64[2] shape = {2, 2}>
    { [fill] m = ConstantOfShape <value = float[1] {-3.4e38}> (shape)
      [upper] u = Trilu (m)  [add] s = Add (x, u)  [soft] y = Softmax (s) }
    """
    model, report = lowered(tmp_path, body)
    fill = next(node for node in model.graph if node.name == "fill").attributes["value"].as_tensor()
    assert fill.dtype == ir.DataType.FLOAT16
    assert fill.numpy().tolist() == [-32752.0]
    assert report.constants[0].value == "m"


RMS = """
g (float[n, 4] x) => (float[n, 4] y)
<float eps = {{{eps}}}, float two = {{2}}, int64[1] axes = {{-1}}>
{{
  [low] h = Tanh (x)
  [sq] s = Mul (h, h)
  [mean] v = ReduceMean (s, axes)
  [eps] e = Add (v, eps)
  [root] r = Sqrt (e)
  {end}
  [out] y = Tanh (z)
}}
"""


@pytest.mark.parametrize(
    ("end", "last"),
    [
        ("[div] z = Div (h, r)", {"div"}),
        ("[rec] q = Reciprocal (r) [mul] z = Mul (h, q)", {"rec", "mul"}),
    ],
)
def test_an_epsilon_keeps_the_division_that_it_protects(tmp_path: Path, end: str, last: set[str]) -> None:
    _, report = lowered(tmp_path, RMS.format(eps="1e-12", end=end))
    assert kept(report) == {"eps", "root"} | last
    assert report.kept_wide[0].reason == "constant eps = 1e-12 becomes zero in FP16"
    assert report.node_types["out"] == "fp16"
    _, report = lowered(tmp_path, RMS.format(eps="1e-5", end=end))
    assert report.kept_wide[0].reason == "constant eps = 1e-05 becomes subnormal in FP16"
    _, report = lowered(tmp_path, RMS.format(eps="1e-3", end=end))
    assert report.kept_wide == ()
    _, report = lowered(tmp_path, RMS.format(eps="1e-12", end=end), base="bf16")
    assert report.kept_wide == ()


def test_a_numerator_is_not_protected(tmp_path: Path) -> None:
    body = """
    g (float[4] x, float[4] d) => (float[4] y)
    <float eps = {1e-9}>
    { [add] a = Add (x, eps)  [div] q = Div (a, d)  [out] y = Tanh (q) }
    """
    _, report = lowered(tmp_path, body)
    assert kept(report) == {"add"}


def test_a_clamped_norm_is_protected_through_its_expansion(tmp_path: Path) -> None:
    body = """
    g (float[2, 4] x) => (float[2, 4] y)
    <float eps = {1e-12}, int64[1] axes = {-1}, int64[2] shape = {2, 4}>
    { [norm] n = ReduceL2 (x, axes)  [max] m = Max (n, eps)  [grow] g1 = Expand (m, shape)  [div] y = Div (x, g1) }
    """
    _, report = lowered(tmp_path, body)
    assert kept(report) == {"max", "div"}
    assert report.node_types["grow"] == "fp32"  # between two wide nodes


def test_an_override_that_insists_is_obeyed_and_reported(tmp_path: Path) -> None:
    body = "g (float[4] x) => (float[4] y) <float eps = {1e-12}> { [add] y = Add (x, eps) }"
    insist = Override(type="fp16", because="test", node="add")
    _, report = lowered(tmp_path, body, insist, base="fp32")
    (change,) = report.constants
    assert (change.action, change.became) == ("rounded", 0.0)
    assert kept(report) == set()
    assert report.issues()[0].disposition == "open"


def test_small_weights_do_not_keep_a_layer_wide(tmp_path: Path) -> None:
    weight = ir.tensor(np.full((16, 16), 1e-9, np.float32), name="w")
    model = ir.from_proto(
        onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 18]>
        g (float[n, 16] x, float[16, 16] w) => (float[n, 16] y) { [mm] h = MatMul (x, w) [add] y = Add (h, x) }
        """)
    )
    value = model.graph.inputs.pop(1)
    value.const_value = weight
    model.graph.register_initializer(value)
    report = lower(model, resolve(model, "fp16"))
    assert kept(report) == set()
    assert report.weights[0].to_zero == 256


def test_counts_of_what_a_type_does_to_a_weight() -> None:
    values = np.array(
        [0, -0.0, 1, 65519, 65520, -7e4, np.inf, np.nan, 2**-24, 2**-25, 2**-26, 2**-15], np.float32
    )
    found = scan(ir.tensor(values), "fp16")
    half = values.astype(np.float64)
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float16)
    assert found.size == values.size
    assert found.to_inf == np.sum(np.isinf(rounded) & np.isfinite(half)) == 2
    assert found.to_zero == np.sum((rounded == 0) & (half != 0)) == 2
    assert found.to_subnormal == 2
    assert (found.low, found.high, found.least, found.extreme) == (-70000.0, 65520.0, 65520.0, -70000.0)


def test_a_converted_tensor_is_the_same_read_or_written(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    for kind, dtype in (("fp16", ir.DataType.FLOAT16), ("bf16", ir.DataType.BFLOAT16)):
        tensor = ConvertedTensor(ir.tensor(values), kind)  # type: ignore[arg-type]
        with (tmp_path / kind).open("wb") as file:
            tensor.tofile(file)
        assert (tmp_path / kind).read_bytes() == tensor.tobytes() == values.astype(dtype.numpy()).tobytes()
        assert tensor.shape == (2, 3)
    scalar = ConvertedTensor(ir.tensor(np.float32(3)), "fp16")
    assert scalar.numpy().shape == ()
