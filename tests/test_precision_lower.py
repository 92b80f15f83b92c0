"""Lowering: types in the graph, as few casts as possible, and a file that every checker accepts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from engine.errors import StepError
from engine.graph import files
from engine.graph.provenance import MODULE
from engine.plain import from_plain, to_plain
from engine.precision.lower import lower
from engine.precision.report import LoweringReport
from engine.precision.selectors import resolve
from engine.precision.verify import check_file, disagreements, verify_types
from engine.recipe import Override


def parse(body: str, opset: int = 18) -> ir.Model:
    text = f'<ir_version: 10, opset_import: ["": {opset}, "local": 1]>\n{body}'
    return ir.from_proto(onnx.parser.parse_model(text))


def wide(type: str = "fp32", **keys: object) -> Override:
    return Override(type=type, because="test", **keys)  # type: ignore[arg-type]


def lowered(
    folder: Path, body: str, *overrides: Override, base: str = "fp16", io: str = "keep", opset: int = 18
) -> tuple[ir.Model, LoweringReport]:
    """Lower, save, check the file with every checker, and prove the types on the model read back."""
    model = parse(body, opset)
    assignment = resolve(model, base, overrides)  # type: ignore[arg-type]
    report = lower(model, assignment, io=io)  # type: ignore[arg-type]
    files.save(model, folder / "low.onnx", "low.weights")
    check_file(folder / "low.onnx")
    back = files.load(folder / "low.onnx")
    assert disagreements(back) == []
    assert verify_types(back, assignment, {item.node for item in report.kept_wide}) == ()
    return back, report


def types(model: ir.Model) -> dict[str, str]:
    return {
        value.name or "": value.dtype.name
        for node in all_nodes(model)
        for value in node.outputs
        if value.dtype
    }


def all_nodes(model: ir.Model) -> list[ir.Node]:
    return list(ir.traversal.RecursiveGraphIterator(model.graph))


def casts(model: ir.Model) -> list[str]:
    return [node.name or "" for node in all_nodes(model) if node.op_type == "Cast"]


MLP = """
g (float[n, 2] x) => (float[n, 2] y)
<float[2, 2] w = {1, 2, 3, 4}, float[2] b = {0.5, 0.5}>
{
  [mm] h = MatMul (x, w)
  [add] a = Add (h, b)
  [relu] r = Relu (a)
  [again] y = MatMul (r, w)
}
"""


def test_keep_puts_one_cast_at_each_boundary(tmp_path: Path) -> None:
    model, report = lowered(tmp_path, MLP)
    assert casts(model) == ["x_to_fp16", "y_to_fp32"]
    assert [value.dtype for value in (*model.graph.inputs, *model.graph.outputs)] == [ir.DataType.FLOAT] * 2
    assert [value.name for value in model.graph.outputs] == ["y"]
    assert {
        node.name: report.node_types[node.name or ""] for node in model.graph if node.op_type != "Cast"
    } == {
        "mm": "fp16",
        "add": "fp16",
        "relu": "fp16",
        "again": "fp16",
    }
    assert [(weight.value, weight.stored, weight.type) for weight in report.weights] == [
        ("w", "w", "fp16"),
        ("b", "b", "fp16"),
    ]
    assert report.weight_bytes == 12


def test_lower_takes_the_boundary_along(tmp_path: Path) -> None:
    model, report = lowered(tmp_path, MLP, io="lower")
    assert casts(model) == []
    assert [value.dtype for value in (*model.graph.inputs, *model.graph.outputs)] == [ir.DataType.FLOAT16] * 2
    assert report.casts == ()


def test_fp32_without_overrides_changes_nothing(tmp_path: Path) -> None:
    model, report = lowered(tmp_path, MLP, base="fp32")
    assert casts(model) == []
    assert report.weights == ()
    assert set(report.node_types.values()) == {"fp32"}


def test_a_weight_read_in_two_types_is_stored_in_both(tmp_path: Path) -> None:
    model, report = lowered(tmp_path, MLP, wide(node="again"))
    stored = {name: value.dtype.name for name, value in model.graph.initializers.items() if value.dtype}
    assert stored == {"w": "FLOAT", "w_fp16": "FLOAT16", "b": "FLOAT16"}
    assert casts(model) == ["x_to_fp16", "r_to_fp32"]
    assert report.overrides[0].nodes == ("again",)


def test_one_cast_is_shared_and_belongs_to_its_reader(tmp_path: Path) -> None:
    body = """
    g (float[2] x) => (float[2] a, float[2] b, float[2] c)
    { [e] h = Exp (x)  [one] a = Sqrt (h)  [two] b = Log (h)  [three] c = Neg (h) }
    """
    model = parse(body)
    for node in model.graph:
        node.metadata_props[MODULE] = f"layer.{node.name}"
    report = lower(model, resolve(model, "fp32", [wide("fp16", node="one"), wide("fp16", node="two")]))
    down = [cast for cast in report.casts if cast.target == "fp16"]
    assert [(cast.name, cast.value, cast.consumers, cast.module) for cast in down] == [
        ("h_to_fp16", "h", ("one", "two"), "layer.one")
    ]
    assert (
        next(node for node in model.graph if node.name == "h_to_fp16").metadata_props[MODULE] == "layer.one"
    )


def test_data_movement_between_wide_nodes_stays_wide(tmp_path: Path) -> None:
    body = """
    g (float[2, 3] x) => (float[6] y)
    <int64[1] flat = {6}>
    { [low] l = Tanh (x)  [a] e = Exp (l)  [t] m = Transpose (e)  [r] f = Reshape (m, flat)
      [b] s = Softmax (f)  [out] y = Tanh (s) }
    """
    model, report = lowered(tmp_path, body, wide(node="a"), wide(node="b"))
    assert report.followed == ("t", "r")
    assert casts(model) == ["x_to_fp16", "l_to_fp32", "s_to_fp16", "y_to_fp32"]


def test_data_movement_with_a_narrow_side_is_narrow(tmp_path: Path) -> None:
    body = """
    g (float[2, 3] x) => (float[3, 2] y)
    { [a] e = Exp (x)  [t] m = Transpose (e)  [b] y = Tanh (m) }
    """
    model, report = lowered(tmp_path, body, wide(node="a"), io="lower")
    assert types(model)["m"] == "FLOAT16"
    assert report.followed == ()
    _, report = lowered(tmp_path, body, wide(node="t"), wide(node="a"))  # an override is not asked to follow
    assert report.node_types["t"] == "fp32"


def test_an_input_that_is_only_moved_is_not_rounded(tmp_path: Path) -> None:
    body = "g (float[2, 3] x) => (float[3, 2] y) { [t] y = Transpose (x) }"
    model, report = lowered(tmp_path, body)
    assert casts(model) == []
    assert report.followed == ("t",)


def test_two_narrow_types(tmp_path: Path) -> None:
    model, report = lowered(tmp_path, MLP, wide("bf16", node="again"))
    assert types(model)["r_bf16"] == "BFLOAT16"
    assert [(cast.value, cast.source, cast.target) for cast in report.casts] == [
        ("x", "fp32", "fp16"),
        ("r", "fp16", "bf16"),
        ("y_bf16", "bf16", "fp32"),
    ]


def test_inputs_that_the_schema_fixes_stay_float(tmp_path: Path) -> None:
    body = """
    g (float[1, 1, 2, 2] x) => (float[1, 1, 4, 4] y)
    <float[8] roi = {0,0,0,0,1,1,1,1}, float[4] scales = {1, 1, 2, 2}>
    { [up] y = Resize <mode = "nearest"> (x, roi, scales) }
    """
    model, report = lowered(tmp_path, body)
    assert report.node_types["up"] == "fp16"
    assert model.graph.initializers["scales"].dtype == ir.DataType.FLOAT
    assert model.graph.initializers["roi"].dtype == ir.DataType.FLOAT16


@pytest.mark.parametrize(
    ("body", "opset", "node", "reason"),
    [
        (
            "g (float a, float b, float c) => (float[m] y) { [r] y = Range (a, b, c) }",
            18,
            "r",
            "Range takes no FLOAT16 at opset 18",
        ),
        (
            "g (float[2] x) => (bool[2] y) { [i] s = Tanh (x) [r] y = IsInf (s) }",
            18,
            "r",
            "IsInf takes no FLOAT16 at opset 18 (from opset 20 it does)",
        ),
        (
            """g (float[1, 6, 4] boxes, float[1, 1, 6] scores) => (int64[m, 3] y)
            <int64[1] most = {3}, float[1] iou = {0.5}, float[1] least = {0.1}>
            { [r] y = NonMaxSuppression (boxes, scores, most, iou, least) }""",
            18,
            "r",
            "NonMaxSuppression takes no FLOAT16 at opset 18",
        ),
    ],
)
def test_what_onnx_excludes_is_kept_wide(
    tmp_path: Path, body: str, opset: int, node: str, reason: str
) -> None:
    _, report = lowered(tmp_path, body, opset=opset)
    assert [item.node for item in report.kept_wide] == [node]
    assert report.kept_wide[0].reason.startswith(reason)
    assert any(issue.cause.startswith(reason) for issue in report.issues())


def test_bf16_convolution_needs_opset_22(tmp_path: Path) -> None:
    body = "g (float[1, 1, 4] x, float[1, 1, 2] w) => (float[1, 1, 3] y) { [conv] y = Conv (x, w) }"
    _, report = lowered(tmp_path, body, base="bf16")
    assert report.kept_wide[0].reason == "Conv takes no BFLOAT16 at opset 18 (from opset 22 it does)"
    _, report = lowered(tmp_path, body, base="bf16", opset=22)
    assert report.kept_wide == ()


def test_what_tensorrt_does_not_build_is_kept_wide_unless_named(tmp_path: Path) -> None:
    body = "g (float[2] x) => (float[2] y) { [m] y = Mish (x) }"
    _, report = lowered(tmp_path, body, base="bf16", opset=22)
    assert report.kept_wide[0].reason == "TensorRT-RTX 1.7.1 does not build Mish in BFLOAT16"
    _, report = lowered(tmp_path, body, base="fp16", opset=22)
    assert report.kept_wide == ()
    _, report = lowered(tmp_path, body, wide("bf16", op="Mish"), base="fp32", opset=22)
    assert report.node_types["m"] == "bf16"


def test_an_override_that_onnx_excludes_is_an_error() -> None:
    model = parse("g (float a, float b, float c) => (float[m] y) { [r] y = Range (a, b, c) }")
    assignment = resolve(model, "fp32", [wide("fp16", op="Range")])
    with pytest.raises(StepError) as caught:
        lower(model, assignment)
    failure = caught.value.failure
    assert failure.symptom.startswith(
        "op: Range cannot compute in fp16: r: Range takes no FLOAT16 at opset 18"
    )
    assert (failure.where, failure.usage) == ("precision.overrides[0]", True)


def test_unknown_op_keeps_its_float_inputs(tmp_path: Path) -> None:
    model = parse("g (float[2] x) => (float[2] y) { [a] h = Tanh (x) [p] y = local.plugin (h) }")
    report = lower(model, resolve(model, "fp16"))
    assert report.kept_wide[0].reason == "local::plugin is not an op of ONNX itself"
    assert types(model)["y"] == "FLOAT"
    assert casts(model) == ["x_to_fp16", "h_to_fp32"]


def test_shape_arithmetic_and_positions_stay_wide(tmp_path: Path) -> None:
    body = """
    g (float[n, 4] x) => (float[n, 4] y, float[n] angle)
    <float half = {0.5}, int64[1] one = {1}, int64 zero = {0}, int64 step = {1}, int64 all = {-1}>
    {
      [count] s = Shape <start = 0, end = 1> (x)
      [tofloat] f = Cast <to = 1> (s)
      [halve] h = Mul (f, half)
      [floor] fl = Floor (h)
      [toint] i = Cast <to = 7> (fl)
      [grow] g1 = Mul (i, one)
      [end] e = Add (g1, g1)
      [cut] part = Slice (x, one, e)
      [pad] back = Concat <axis = 0> (part, x)
      [cut2] y2 = Slice (back, one, s)
      [low] t = Tanh (x)
      [sum] y = Add (t, x)
      [flat] n0 = Squeeze (s)
      [range] positions = Range (zero, n0, step)
      [pos] p = Cast <to = 1> (positions)
      [scale] ps = Mul (p, half)
      [sin] angle = Sin (ps)
    }
    """
    _, report = lowered(tmp_path, body)
    kept = {item.node: item.reason.split(":")[0] for item in report.kept_wide}
    assert kept == {
        "tofloat": "shape arithmetic",
        "halve": "shape arithmetic",
        "floor": "shape arithmetic",
        "pos": "positions and their angles",
        "scale": "positions and their angles",
        "sin": "positions and their angles",
    }


def test_a_sine_of_data_is_lowered(tmp_path: Path) -> None:
    _, report = lowered(tmp_path, "g (float[2] x) => (float[2] y) { [s] y = Sin (x) }")
    assert report.kept_wide == ()


def test_ops_that_name_their_own_type(tmp_path: Path) -> None:
    body = """
    g (float[2, 2] x, int64[2] k) => (float[2, 2] y)
    <int64[2] shape = {2, 2}>
    {
      [ones] o = ConstantOfShape <value = float[1] {1.5}> (shape)
      [zeros] z = ConstantOfShape (shape)
      [eye] e = EyeLike (x)
      [noise] r = RandomNormal <shape = [2, 2], dtype = 1> ()
      [like] l = RandomUniformLike (x)
      [int] i = Cast <to = 1> (k)
      [alike] c = CastLike (k, x)
      [const] q = Constant <value_float = 0.25> ()
      [sum] s = Sum (x, o, z, e, r, l, i, c, q)
      [out] y = Tanh (s)
    }
    """
    model, report = lowered(tmp_path, body)
    found = types(model)
    assert {found[name] for name in "ozerlics"} == {"FLOAT16"}
    assert found["y_fp16"] == "FLOAT16"
    assert "q" in {weight.value for weight in report.weights}
    assert not any(node.op_type in {"CastLike", "Constant"} for node in model.graph)
    assert casts(model) == ["x_to_fp16", "int", "alike", "y_to_fp32"]


def test_the_models_own_casts_follow_the_recipe(tmp_path: Path) -> None:
    body = """
    g (float16[2] x) => (float16[2] y)
    { [a] h = Tanh (x)  [up] w = Cast <to = 1> (h)  [sq] s = Mul (w, w)  [down] d = Cast <to = 10> (s)
      [b] y = Tanh (d) }
    """
    model, report = lowered(tmp_path, body)
    assert casts(model) == []
    assert report.folded_casts == ("up", "down")
    assert report.issues()[0].symptom == "the model's own cast up was removed"
    model, report = lowered(tmp_path, body, wide(node="sq"))
    assert casts(model) == ["up", "down"]
    assert report.folded_casts == ()
    model, _ = lowered(tmp_path, body, wide(op="Cast"))  # a node that an override names never vanishes
    assert {"up", "down"} <= set(casts(model))


def test_quantisation_is_left_as_calibrated(tmp_path: Path) -> None:
    body = """
    g (float[2, 2] x) => (float[2, 2] y)
    <float s = {0.1}, int8 z = {0}, int8[2, 2] w = {1, 2, 3, 4}>
    {
      [t] h = Tanh (x)
      [q] i = QuantizeLinear (h, s, z)
      [dq] d = DequantizeLinear (i, s, z)
      [dqw] v = DequantizeLinear (w, s, z)
      [mm] y = MatMul (d, v)
    }
    """
    model, report = lowered(tmp_path, body, opset=19)
    assert {item.node for item in report.kept_wide} == {"q", "dq", "dqw"}
    assert model.graph.initializers["s"].dtype == ir.DataType.FLOAT
    assert report.node_types["mm"] == "fp16"


def test_normalisations_with_several_outputs(tmp_path: Path) -> None:
    body = """
    g (float[2, 3, 4] x) => (float[2, 3, 4] y, float[2, 3, 1] mean)
    <float[4] scale = {1, 1, 1, 1}, float[3] one = {1, 1, 1}>
    {
      [bn] n = BatchNormalization (x, one, one, one, one)
      [ln] l, mean, inv = LayerNormalization <stash_type = 1> (n, scale)
      [out] y = Tanh (l)
    }
    """
    model, report = lowered(tmp_path, body)
    assert types(model)["l"] == "FLOAT16"
    assert types(model)["mean"] == "FLOAT"
    assert set(report.node_types.values()) == {"fp16"}


BRANCH = """
g (bool c, float[2] x) => (float[2] y)
<float[2] w = {1, 2}>
{
  [t] h = Tanh (x)
  [if] b = If (c) <
    then_branch = yes () => (float[2] p) { [mul] m = Mul (h, w)  [exp] p = Exp (m) },
    else_branch = no () => (float[2] q) { [neg] q = Neg (h) }
  >
  [out] y = Tanh (b)
}
"""


def test_branches_are_entered(tmp_path: Path) -> None:
    model, report = lowered(tmp_path, BRANCH, wide(node="exp"))
    assert report.node_types == {
        "t": "fp16",
        "if": "fp16",
        "mul": "fp16",
        "exp": "fp32",
        "neg": "fp16",
        "out": "fp16",
    }
    assert casts(model) == ["x_to_fp16", "m_to_fp32", "p_to_fp16", "y_to_fp32"]


def test_a_cast_of_an_outer_value_is_made_once_outside(tmp_path: Path) -> None:
    model, _ = lowered(tmp_path, BRANCH, wide(node="mul"), wide(node="neg"))
    outer = [node.name for node in model.graph if node.op_type == "Cast"]
    assert outer == ["x_to_fp16", "h_to_fp32", "y_to_fp32"]


LOOP = """
g (float[2] x, int64 times) => (float[2] y, float[k, 2] each)
<bool go = {1}, float[2] step = {0.5, 0.25}>
{
  [t] h = Tanh (x)
  [loop] y, each = Loop (times, go, h) <
    body = round (int64 i, bool on, float[2] a) => (bool still, float[2] b, float[2] seen)
    { [still] still = Identity (on)  [add] b = Add (a, step)  [exp] seen = Exp (b) }
  >
}
"""


@pytest.mark.parametrize("base", ["fp16", "bf16"])
def test_loops_carry_one_type(tmp_path: Path, base: str) -> None:
    model, report = lowered(tmp_path, LOOP, wide(node="exp"), base=base, opset=19)
    low = {"fp16": "FLOAT16", "bf16": "BFLOAT16"}[base]
    assert report.node_types["loop"] == base
    assert types(model)["b"] == low
    body = next(node for node in model.graph if node.name == "loop").attributes["body"].as_graph()
    assert [value.dtype.name for value in body.inputs if value.dtype] == ["INT64", "BOOL", low]
    _, report = lowered(tmp_path, LOOP, wide(node="loop"), base=base, opset=19)
    assert report.node_types["loop"] == "fp32"


def test_a_graph_input_that_is_an_initializer_too(tmp_path: Path) -> None:
    model = parse(MLP)
    model.graph.inputs.append(model.graph.initializers["b"])
    report = lower(model, resolve(model, "fp16"))
    assert [cast.value for cast in report.casts] == ["x", "y_fp16"]
    assert model.graph.initializers["b"].dtype == ir.DataType.FLOAT16


def test_new_names_avoid_those_that_exist(tmp_path: Path) -> None:
    body = """
    g (float[2] x) => (float[2] y)
    { [x_to_fp16] x_fp16 = Exp (x)  [b] y = Tanh (x_fp16) }
    """
    model, report = lowered(tmp_path, body)
    names = [node.name for node in model.graph]
    assert len(names) == len(set(names))
    assert report.casts[0].name == "x_to_fp16_2"


def test_values_without_a_declared_type_are_inferred(tmp_path: Path) -> None:
    model, _ = lowered(tmp_path, MLP)
    assert set(types(model)) == {"x_fp16", "h", "a", "r", "y_fp16", "y"}


def test_report_is_plain_data(tmp_path: Path) -> None:
    _, report = lowered(tmp_path, MLP, wide(node="again"))
    assert from_plain(LoweringReport, to_plain(report)) == report


def test_verify_sees_a_type_that_is_not_as_asked(tmp_path: Path) -> None:
    model = parse(MLP)
    assignment = resolve(model, "fp16", [wide(node="relu")])
    lower(model, assignment)
    assert verify_types(model, assignment) == ()
    moved = replace(assignment, types={**assignment.types, "mm": "fp32", "relu": "bf16"})
    assert [str(item) for item in verify_types(model, moved)] == [
        "node 'mm': precision.base asks fp32, the graph says fp16",
        "node 'relu': precision.overrides[0] asks bf16, the graph says fp32",
    ]
    gone = next(node for node in model.graph if node.name == "relu")
    gone.name = "other"
    assert [item.found for item in verify_types(model, assignment)] == ["no such node"]


def test_verify_sees_a_node_left_in_the_wrong_type(tmp_path: Path) -> None:
    model = parse(MLP)
    assignment = resolve(model, "fp16")
    found = verify_types(model, assignment)
    assert {item.node for item in found} == {"mm", "add", "relu", "again"}
    assert {item.found for item in found} == {"fp32"}


def test_disagreeing_inputs_are_seen() -> None:
    model = parse("g (float[2] x, float16[2] z) => (float[2] y) { [a] y = Add (x, z) }")
    assert disagreements(model) == ["Add 'a' reads FLOAT, FLOAT16"]


def test_check_file_refuses_mixed_types(tmp_path: Path) -> None:
    model = parse("g (float[2] x, float16[2] z) => (float[2] y) { [a] y = Add (x, z) }")
    files.save(model, tmp_path / "bad.onnx")
    with pytest.raises(StepError, match="not valid"):
        check_file(tmp_path / "bad.onnx")


def test_check_file_says_what_it_did_not_run(tmp_path: Path) -> None:
    model = parse(MLP)
    lower(model, resolve(model, "bf16"))
    files.save(model, tmp_path / "low.onnx", "low.weights")
    assert "no BF16 kernels" in check_file(tmp_path / "low.onnx")


def test_weights_are_streamed_and_right(tmp_path: Path) -> None:
    values = np.linspace(-2, 2, 3 * 2**20, dtype=np.float32).reshape(3, -1)
    model = parse("g (float[n, 3] x) => (float[n, 1048576] y) { [mm] y = MatMul (x, w) }".replace("w)", "x)"))
    weight = ir.Value(name="w", shape=ir.Shape(values.shape), type=ir.TensorType(ir.DataType.FLOAT))
    weight.const_value = ir.tensor(values, name="w")
    model.graph.register_initializer(weight)
    model.graph[0].replace_input_with(1, weight)
    files.save(model, tmp_path / "wide.onnx", "wide.weights")
    model = files.load(tmp_path / "wide.onnx")
    lower(model, resolve(model, "fp16"))
    files.save(model, tmp_path / "low.onnx", "low.weights")
    back = files.load(tmp_path / "low.onnx").graph.initializers["w"].const_value
    assert back is not None
    np.testing.assert_array_equal(back.numpy(), values.astype(np.float16))
    assert (tmp_path / "low.weights").stat().st_size == values.size * 2


@pytest.mark.parametrize(("narrow", "kind"), [(True, "FLOAT16"), (False, "FLOAT")])
def test_a_table_is_narrow_where_a_reader_of_its_rows_is(tmp_path: Path, narrow: bool, kind: str) -> None:
    other = "Sigmoid" if narrow else "Exp"
    body = f"""agraph (int64[n] i) => (float[n, 2] y, float[n, 2] z)
    <float[3, 2] table = {{1.0, 2.0, 3.0, 4.0, 5.0, 6.0}}> {{
      [look] row = Gather (table, i)
      [wide] y = Exp (row)
      [other] z = {other} (row)
    }}"""
    model, report = lowered(tmp_path, body, wide(op="Exp"))
    assert model.graph.initializers["table"].dtype == ir.DataType[kind]
    assert len(report.casts) == (2 if narrow else 0)  # before Exp, and behind Sigmoid
