"""An If whose condition is known becomes the branch that it takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import StepError
from engine.graph import filled
from engine.rules import branches, library
from engine.rules.apply import Applications, apply_rule
from engine.rules.language import load_rule
from engine.rules.prove import application_prover
from tests.rules_tools import check, model, ops, run

SQUEEZE = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[b,q,4] x) => (float[b,4] y)
<int64 axis = {1}, int64 one = {1}, int64[1] axes = {1}>
{
  shape = Shape (x)
  size = Gather (shape, axis)
  single = Equal (size, one)
  kept = If (single) <
    then_branch = then () => (float[b,4] squeezed) { squeezed = Squeeze (x, axes) },
    else_branch = other () => (float[b,q,4] same) { same = Identity (x) }
  >
  twice = Add (kept, kept)
  y = Neg (twice)
}
"""
AS_EXPORTED = ("kept", "twice")  # the exporter says of these what the first branch gives


def exported(text: str = SQUEEZE) -> ir.Model:
    """As the torchscript exporter writes it: the shapes after the If are those of its first branch."""
    proto = onnx.parser.parse_model(text.strip())
    for index, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type}_{index}"
    model: ir.Model = ir.from_proto(proto)
    for value in (value for node in model.graph for value in node.outputs if value.name in AS_EXPORTED):
        value.shape, value.type = ir.Shape(["b", 4]), ir.TensorType(ir.DataType.FLOAT)
    filled.fill(model)
    return model


def applied(model: ir.Model, **sizes: tuple[int, ...]) -> Applications:
    prover = application_prover(sizes)
    return apply_rule(model, load_rule(library.path_of("if-of-known-size")), prover=prover, sizes=sizes)


def test_what_follows_gets_the_rank_of_the_branch_that_is_taken() -> None:
    model = exported()
    applied(model, b=(1, 3), q=(2, 5))
    check(model)
    assert ops(model) == ["Add", "Neg"]
    assert [len(value.shape or ()) for node in model.graph for value in node.outputs] == [3, 3]
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(run(model, {"x": x})["y"], -2 * x)


def test_an_axis_of_size_1_is_squeezed() -> None:
    model = exported()
    applied(model, b=(1, 3), q=(1,))
    check(model)
    assert ops(model) == ["Squeeze", "Add", "Neg"]
    assert [len(value.shape or ()) for node in model.graph for value in node.outputs] == [2, 2, 2]


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"q": (1, 4)}, "q, the size of axis 1 of x, is 1 to 4: both branches are needed"),
        ({"b": (1, 4)}, "nothing says what size axis 1 of x has (q)"),
    ],
)
def test_a_size_that_decides_nothing_is_refused(sizes: dict[str, tuple[int, ...]], said: str) -> None:
    with pytest.raises(StepError, match="if-of-known-size was refused") as caught:
        applied(exported(), **sizes)
    assert said in caught.value.failure.symptom


def test_the_wrong_branch_is_caught_by_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    right = branches.decided
    monkeypatch.setattr(branches, "decided", lambda node, sizes: not right(node, sizes))
    model = exported(SQUEEZE.replace("Identity (x)", "Abs (x)").replace("Squeeze (x, axes)", "Neg (x)"))
    with pytest.raises(StepError, match="not proven equal"):
        applied(model, b=(1, 3), q=(2, 5))


def test_nodes_that_read_the_size_stay_where_others_use_them() -> None:
    model = exported(SQUEEZE.replace("(float[b,4] y)", "(float[b,4] y, int64 size)"))
    applied(model, q=(2, 5))
    check(model)
    assert ops(model) == ["Shape", "Gather", "Add", "Neg"]


def test_an_if_inside_the_branch_that_is_not_taken_is_not_counted() -> None:
    inner = """inner = If (no) <
        then_branch = a () => (float[b,q,4] a1) { a1 = Neg (x) },
        else_branch = b () => (float[b,q,4] b1) { b1 = Abs (x) }
      >"""
    text = SQUEEZE.replace(
        "float[b,4] squeezed) { squeezed = Squeeze (x, axes) }", f"float[b,q,4] inner) {{ {inner} }}"
    )
    text = text.replace("int64 one", "bool no = {0}, int64 one")
    done = applied(exported(text), q=(2, 5))
    assert len(done.accepted) == 1
    model = exported(text)
    assert len(applied(model, q=(1,)).accepted) == 2
    assert ops(model) == ["Abs", "Add", "Neg"]


@settings(max_examples=10)
@given(st.integers(1, 3), st.integers(1, 3), st.sampled_from(["size, one", "one, size"]))
def test_squeeze_of_random_sizes(rows: int, size: int, order: str) -> None:
    text = SQUEEZE.replace("b,q", f"{rows},{size}").replace("size, one", order)
    before, after = exported(text), exported(text)
    applied(after)
    check(after)
    x = np.random.default_rng(size).standard_normal((rows, size, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(after, {"x": x})["y"], run(before, {"x": x})["y"])


def test_rewrite_finds_the_if_around_a_refused_squeeze(tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx", reason="tensorrt-rtx is not installed")
    from engine import toolchain
    from engine.rewriting.rewrite import Options, rewrite_files

    path = tmp_path / "squeeze.onnx"
    ir.save(exported(), path)
    options = Options(toolchain.resolve("tensorrt-rtx"), {"b": (1, 2, 3), "q": (2, 3, 5)})
    (result,) = rewrite_files([path], tmp_path / "out", options)
    assert (result.verdict, [used.rule for used in result.used]) == ("builds", ["if-of-known-size"]), result
    assert "output 'y' has 3 axes; the file said 2" in result.notes
    wanted = "if-of-known-size: right for the sizes given (b=1:2:3, q=2:3:5); others may need the other branch"
    assert wanted in result.notes


@settings(max_examples=15)
@given(st.sampled_from(["ReduceMean", "ReduceMax", "ReduceL2"]), st.integers(-3, 2), st.booleans())
def test_random_axes_up_to_the_rank_are_folded(op: str, first: int, dynamic: bool) -> None:
    kept = first % 3
    shape = ",".join(["2", "3", "n" if dynamic else "4"][:kept] + ["1"] * (3 - kept))
    begin = "Identity (first)" if first >= 0 else "Add (rank, first)"
    text = f"""
    <ir_version: 10, opset_import: ["" : 18]>
    net (float[2,3,{"n" if dynamic else 4}] x) => (float[{shape}] y) <int64 first = {{{first}}}, int64 one = {{1}}> {{
      sizes = Shape (x)
      rank = Size (sizes)
      begin = {begin}
      axes = Range (begin, rank, one)
      y = {op} (x, axes)
    }}"""
    before, after = model(text), model(text)
    apply_rule(after, load_rule(library.path_of("reduction-axes-folded")), prover=application_prover())
    check(after)
    assert ops(after) == [op]
    x = np.random.default_rng(first % 7).standard_normal((2, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(after, {"x": x})["y"], run(before, {"x": x})["y"])
