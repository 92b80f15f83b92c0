"""Simplification on probation: every reason to keep the graph before is planted once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from engine import host, intake
from engine.graph import probation, simplifier
from engine.graph.provenance import MODULE
from engine.steps.context import Context
from engine.values import StepResult
from tests.conftest import RECIPE, dedent

# "zero" adds nothing and "same" does nothing: what a simplifier may take out. Two nodes share "large".
TEXT = """
<ir_version: 10, opset_import: ["": 18]>
g (float[batch, 8] x) => (float[batch, 8] y) <float[1] z = {0}, int64[2] shape = {1, 512}> {
  [first_zero] a = Add(x, z)
  [first_same] b = Identity(a)
  [first_times] c = MatMul(b, w)
  [last_times] d = MatMul(c, w)
  [last_wide] e = Expand(f, shape)
  [last_sum] s = ReduceSum <keepdims = 0> (e)
  [last_most] l1 = ReduceMax <keepdims = 0> (large)
  [last_least] l2 = ReduceMin <keepdims = 0> (large)
  [last_add] t = Add(s, l1)
  [last_more] u = Add(d, l2)
  [last_end] y = Add(u, t)
}
"""
Edit = Callable[[onnx.ModelProto], object]


def graph() -> onnx.ModelProto:
    model = onnx.parser.parse_model(TEXT)
    rng = np.random.default_rng(0)
    for name, shape in (("w", (8, 8)), ("f", (1, 1)), ("large", (32, 32))):
        model.graph.initializer.append(
            numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
        )
    for node in model.graph.node:
        node.name = "/" + node.name.replace("_", "/")  # as the tracing exporter names modules
    return model


def useful(model: onnx.ModelProto) -> None:
    """What an honest simplifier does: without the addition of zero and the identity."""
    for node in list(model.graph.node[:2]):
        model.graph.node.remove(node)
    node_of(model, "c").input[0] = "x"
    model.graph.initializer.remove(next(item for item in model.graph.initializer if item.name == "z"))


def node_of(model: onnx.ModelProto, made: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if made in node.output)


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, StepResult]]:
    """A run up to the check step."""
    folder = tmp_path_factory.mktemp("simplify")
    text = dedent(RECIPE).replace("python: model.py:load", "onnx: m.onnx")
    (folder / "recipe.yaml").write_text(text.replace("precision:", "simplify: onnxsim\nprecision:"))
    onnx.save(graph(), folder / "m.onnx")
    _, plan = intake.make_plan(folder)
    (folder / "port").mkdir()
    context = Context(plan, folder / "port", {}, quiet)
    for name in ("source", "export", "check"):
        result, failure = host.run_step(name, context)
        assert failure is None, failure
        assert result is not None
        context.earlier[name] = result
    return folder, context.earlier


def quiet(text: str, done: int, total: int) -> None:
    pass


@pytest.fixture
def context(taken: tuple[Path, dict[str, StepResult]], tmp_path: Path) -> Context:
    folder = tmp_path / "copy"
    shutil.copytree(taken[0], folder)
    _, plan = intake.make_plan(folder)
    return Context(plan, folder / "port", dict(taken[1]), quiet)


def simplify(context: Context) -> StepResult:
    result, failure = host.run_step("simplify", context)
    assert failure is None, failure
    assert result is not None
    left = sorted(path.name for path in (context.out / "onnx").iterdir())
    assert [name for name in left if "probation" in name or "part" in name] == []
    assert ("simplify.onnx" in left) == result.facts["kept"]
    return result


def returns(monkeypatch: pytest.MonkeyPatch, *edits: Edit) -> None:
    """A simplifier whose result is the graph before with ``edits``."""

    def simplified(before: Path, draft: Path, log: Path) -> str:
        model = onnx.load(before)
        for edit in edits:
            edit(model)
        onnx.save(model, draft)
        return ""

    monkeypatch.setattr(simplifier, "simplified", simplified)


def test_an_honest_simplification_is_kept(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    returns(monkeypatch, useful)
    result = simplify(context)
    assert result.facts["kept"] is True, result.facts
    assert result.facts["nodes_after"] == result.facts["nodes_before"] - 2
    assert result.facts["compared_at"] == ["min", "odd"]
    assert result.issues == ()


def test_onnxsim_itself(context: Context) -> None:
    """It may fold Expand and ReduceMax of constants to scalars, and leaves no large weight behind."""
    result = simplify(context)
    if result.facts["kept"]:
        after = ir.load(context.out / "onnx" / "simplify.onnx")
        assert result.facts["nodes_after"] < result.facts["nodes_before"]
        assert all(node.name for node in after.graph)
    else:
        assert result.facts["why"]


def bigger(model: onnx.ModelProto) -> None:
    model.graph.node.insert(0, helper.make_node("Identity", ["x"], ["x2"], name="new"))
    node_of(model, "a").input[0] = "x2"


def grown(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((40, 40), np.float32), "more"))


def unfolded(model: onnx.ModelProto) -> None:
    expand = node_of(model, "e")
    value = next(item for item in model.graph.initializer if item.name == "f")
    model.graph.node.remove(expand)
    wide = np.broadcast_to(numpy_helper.to_array(value), (1, 512)).copy()
    model.graph.initializer.append(numpy_helper.from_array(wide, "e"))


def unshared(model: onnx.ModelProto) -> None:
    value = next(item for item in model.graph.initializer if item.name == "large")
    model.graph.initializer.append(numpy_helper.from_array(numpy_helper.to_array(value).T.copy(), "large_t"))
    node_of(model, "l2").input[0] = "large_t"


def axis_frozen(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 4


def axis_frozen_inside(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 4
    node = node_of(model, "y")
    node.output[0] = "free"
    model.graph.initializer.append(numpy_helper.from_array(np.array([4, 8]), "four"))
    model.graph.node.append(helper.make_node("Reshape", ["free", "four"], ["y"], name="frozen"))
    bypass(model)


def bypass(model: onnx.ModelProto) -> None:
    node_of(model, "c").input[0] = "x"
    for name in ("b", "a"):
        model.graph.node.remove(node_of(model, name))


def output_renamed(model: onnx.ModelProto) -> None:
    node_of(model, "y").output[0] = "z2"
    model.graph.output[0].name = "z2"


def output_dropped_type(model: onnx.ModelProto) -> None:
    node_of(model, "y").output[0] = "wide"
    model.graph.node.append(
        helper.make_node("Cast", ["wide"], ["y"], name="cast", to=onnx.TensorProto.DOUBLE)
    )
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE


def other_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 19


def other_domain(model: onnx.ModelProto) -> None:
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    node = node_of(model, "d")
    node.op_type, node.domain = "FusedMatMul", "com.microsoft"


def moved(model: onnx.ModelProto) -> None:
    value = next(item for item in model.graph.initializer if item.name == "w")
    value.raw_data = (numpy_helper.to_array(value) * np.float32(1.5)).tobytes()


def not_finite(model: onnx.ModelProto) -> None:
    value = next(item for item in model.graph.initializer if item.name == "w")
    value.raw_data = np.full((8, 8), np.nan, np.float32).tobytes()


def unsound(model: onnx.ModelProto) -> None:
    node_of(model, "d").input[0] = "nowhere"


def nameless(model: onnx.ModelProto) -> None:
    """Nodes and values of other names: nothing tells where they came from."""
    names = {name: f"v{index}" for index, name in enumerate(
        name for node in model.graph.node for name in node.output if name != "y")}  # fmt: skip
    for node in model.graph.node:
        node.ClearField("metadata_props")
        node.name = ""
        for field in (node.input, node.output):
            for index, name in enumerate(field):
                field[index] = names.get(name, name)


PLANTED: dict[str, tuple[tuple[Edit, ...], str]] = {
    "more nodes": ((bigger,), "11 nodes became 12"),
    "as many nodes": ((), "11 nodes became 11"),
    "growth": ((useful, grown), "the weights grew from {old} to {new} bytes"),
    "unfolded": ((useful, unfolded), "Expand '/last/wide' became a weight of 2,048 bytes"),
    "unshared": ((useful, unshared), "the weight 'large', which 2 nodes share, became 2 weights"),
    "axis frozen": ((useful, axis_frozen), "the shape of input 'x' was [batch,8] and became [4,8]"),
    "axis frozen inside": ((axis_frozen_inside,), "dimension 0 of 'y' was the axis batch and became 4"),
    "output renamed": ((useful, output_renamed), "the outputs y became z2"),
    "output of another type": ((useful, output_dropped_type), "'y' was float and became double"),
    "another opset": ((useful, other_opset), "opset 18 became 19"),
    "another domain": ((useful, other_domain), "nodes of the domain 'com.microsoft' came in"),
    "not finite": ((useful, not_finite), "output 'y' at min: 8 of 8 values not finite where the reference is, or"
                   " the reverse"),
    "unsound": ((useful, unsound), "the simplified graph is not valid ONNX: node '/last/times' (MatMul) reads"
                " 'nowhere', which nothing makes"),
}  # fmt: skip


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_reason(case: str, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    edits, why = PLANTED[case]
    returns(monkeypatch, *edits)
    result = simplify(context)
    assert result.facts["kept"] is False
    if "{old}" in why:
        old, new = (model_bytes(one) for one in ((), (useful, grown)))
        why = why.format(old=f"{old:,}", new=f"{new:,}")
    assert result.facts["why"] == why
    (issue,) = result.issues
    assert issue.symptom == f"simplification not kept: {why}"
    assert issue.fix == "the graph before it is used; 'simplify: none' saves the time"


def model_bytes(edits: tuple[Edit, ...]) -> int:
    model = graph()
    for edit in edits:
        edit(model)
    return sum(numpy_helper.to_array(item).nbytes for item in model.graph.initializer)


def test_values_that_moved(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    returns(monkeypatch, useful, moved)
    why = simplify(context).facts["why"]
    assert why.startswith("output 'y' moved by rel_l2 ")
    assert why.endswith(" at min")


def test_nodes_that_lost_their_module(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    returns(monkeypatch, useful, nameless)
    why = simplify(context).facts["why"]
    assert why.endswith("of 9 nodes lost the module that they came from")


def test_a_graph_that_runs_only_once_simplified(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index out of range in a branch of the graph that the simplifier folds away."""
    path = context.out / "onnx" / "export.onnx"
    model = onnx.load(path)
    model.graph.initializer.append(numpy_helper.from_array(np.array(99), "far"))
    model.graph.node.insert(0, helper.make_node("Gather", ["x", "far"], ["dead"], name="bad", axis=1))
    onnx.save(model, path)
    context.unseen.clear()  # the export step wrote it so

    def gone(model: onnx.ModelProto) -> None:
        model.graph.node.remove(node_of(model, "dead"))

    returns(monkeypatch, gone, useful)
    why = simplify(context).facts["why"]
    assert why.startswith("the graph before it does not run: ONNX Runtime failed while running: ")


FAKES: dict[str, tuple[str, str]] = {
    "raises": ("raise RuntimeError('no way\\nat all')", "onnxsim failed: no way"),
    "crashes": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "killed by signal 11"),
    "exits": ("import os; os._exit(3)", "ended with exit code 3 without a result"),
    "breaks": ("return None, True", "ended with exit code 1 without a result"),
    "hangs": ("import time; time.sleep(60)", "no answer within 3 s, stopped"),
}


@pytest.mark.parametrize("case", FAKES)
def test_a_simplifier_that_dies(
    case: str, context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, words = FAKES[case]
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "onnxsim.py").write_text(f"def simplify(*args, **options):\n    {body}\n")
    root = Path(__file__).resolve().parent.parent
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'fake'}:{root}")
    monkeypatch.setattr(simplifier, "SECONDS", 3.0)
    result = simplify(context)
    assert words in result.facts["why"]


def model_of(text: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 18]>\n' + text))


def test_names_come_back_with_the_value() -> None:
    before = model_of(
        "g (float[n] x) => (float[n] y) { [one] t = Relu(x) [two] u = Neg(t) [three] y = Abs(u) }"
    )
    after = model_of("g (float[n] x) => (float[n] y) { [n1] t = Relu(x) [n2] u = Abs(t) y = Abs(u) }")
    assert probation.restore_names(after, before) == 2
    # Neg became Abs: another op does not get the old one's name.
    assert [node.name for node in after.graph] == ["one", "n2", "three"]


def test_other_symbols_may_become_numbers() -> None:
    before = model_of("g (float[n] x) => (float[m] y) { [a] y = Relu(x) [b] z = Neg(x) }")
    after = model_of("g (float[n] x) => (float[8] y) { [a] y = Relu(x) }")
    assert probation.refusal(before, after) == ""


def test_constants_count_as_weights() -> None:
    before = model_of("g (float[n] x) => (float[n] y) { [a] t = Relu(x) [b] y = Neg(t) }")
    after = model_of("g (float[n] x) => (float[n] y) { [c] y = Neg(x) }")
    wide = ir.Value(name="c")
    ir.Node("", "Constant", [], attributes=[ir.AttrTensor("value", ir.tensor(np.zeros(2000, np.float32)))],
            outputs=[wide], graph=None)  # fmt: skip
    after.graph.insert_before(after.graph[0], wide.producer())  # type: ignore[arg-type]
    assert probation._bytes(before, after) == "the weights grew from 0 to 8,000 bytes"
    assert MODULE not in after.graph[0].metadata_props


def test_small_weights_are_not_unfolded_into_large_ones(tmp_path: Path) -> None:
    """onnxsim left to itself makes 8 MB of these 4 KB."""
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 18]>
        g (float[n, 1024] x) => (float[n, 1024] y) <int64[2] s = {1024, 1024}, int64[2] r = {1024, 1}> {
          e = Expand(w, s) f = Tile(w, r) c = ConstantOfShape(s)
          t = MatMul(x, e) u = MatMul(t, f) v = MatMul(u, c) y = Identity(v)
        }""")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 1024), np.float32), "w"))
    onnx.save(model, tmp_path / "a.onnx")
    assert simplifier.simplified(tmp_path / "a.onnx", tmp_path / "b.onnx", tmp_path / "log") == ""
    after = onnx.load(tmp_path / "b.onnx")
    assert "Identity" not in {node.op_type for node in after.graph.node}
    assert sum(numpy_helper.to_array(item).nbytes for item in after.graph.initializer) < 3 * 4096
