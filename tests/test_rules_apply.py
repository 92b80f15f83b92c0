"""Applying a rule: what is left of the graph, and every way in which it must not be applied."""

# ruff: noqa: E501 (ONNX text reads best on one line)

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from engine.errors import RecipeError, StepError
from engine.graph import files, provenance
from engine.rules.apply import RuleRefusedError, apply_rule
from engine.rules.interval import Interval
from engine.rules.language import Rule, load_rule
from engine.rules.match import Match
from engine.rules.prove import application_prover
from engine.rules.verdict import Proof
from tests.rules_tools import PROOF, check, model, ops, rule, rule_file, run

NEG_NEG = "g (float[n,3] x) => (float[n,3] y) { a = Relu (x) b = Neg (a) c = Neg (b) y = Exp (c) }"


@pytest.fixture
def cancel(tmp_path: Path) -> Rule:
    return rule(tmp_path, "(x) => (y) { a = Neg (x) y = Neg (a) }", "(x) => (y) { y = Identity (x) }")


def failure_of(graph: ir.Model, wanted: Rule, **more: object) -> StepError:
    with pytest.raises(StepError) as caught:
        apply_rule(graph, wanted, **{"prover": application_prover(), **more})  # type: ignore[arg-type]
    return caught.value


def test_identity_in_a_replacement_costs_no_node(cancel: Rule) -> None:
    graph = model(NEG_NEG)
    done = apply_rule(graph, cancel, prover=application_prover({"n": (1, 4)}))
    check(graph)
    assert ops(graph) == ["Relu", "Exp"]
    assert (done.nodes_before, done.nodes_after) == (4, 2)
    assert done.accepted[0].removed == ("node_Neg_1", "node_Neg_2")
    assert done.accepted[0].added == ()
    proof = done.accepted[0].proof
    assert proof is not None
    assert (proof.equal, proof.max_abs) == (True, 0.0)
    assert proof.numbers > 0


def test_graph_output_keeps_its_name_type_and_shape(cancel: Rule) -> None:
    graph = model("g (float[n,3] x) => (float[n,3] y) { a = Neg (x) y = Neg (a) }")
    apply_rule(graph, cancel, prover=application_prover())
    check(graph)
    assert ops(graph) == ["Identity"]
    output = graph.graph.outputs[0]
    assert (output.name, output.dtype, str(output.shape)) == ("y", ir.DataType.FLOAT, "[n,3]")
    np.testing.assert_array_equal(run(graph, {"x": np.ones((2, 3), np.float32)})["y"], 1.0)


def test_output_that_is_used_and_a_graph_output(cancel: Rule) -> None:
    graph = model(
        "g (float[n,3] x) => (float[n,3] c, float[n,3] y) { a = Relu (x) b = Neg (a) c = Neg (b) y = Exp (c) }"
    )
    apply_rule(graph, cancel, prover=application_prover())
    check(graph)
    assert sorted(ops(graph)) == ["Exp", "Identity", "Relu"]
    assert set(run(graph, {"x": np.ones((2, 3), np.float32)})) == {"c", "y"}


def test_new_matches_that_arise_are_taken_too(cancel: Rule) -> None:
    graph = model(
        "g (float[n,3] x) => (float[n,3] y) { a = Neg (x) b = Neg (a) c = Neg (b) d = Neg (c) y = Exp (d) }"
    )
    assert len(apply_rule(graph, cancel, prover=application_prover()).accepted) == 2
    assert ops(graph) == ["Exp"]


def test_a_rule_that_feeds_itself_ends(tmp_path: Path) -> None:
    endless = rule(tmp_path, "(x) => (y) { y = Abs (x) }", "(x) => (y) { a = Abs (x) y = Abs (a) }")
    failure = failure_of(
        model("g (float[n,3] x) => (float[n,3] y) { y = Abs (x) }"), endless, prover=None
    ).failure
    assert failure.symptom == "rule some-rule keeps matching its own result"


def test_metadata_is_that_of_the_root_and_names_are_new(tmp_path: Path) -> None:
    wanted = rule(
        tmp_path, "(x, b) => (y) { a = Neg (x) y = Add (a, b) }", "(x, b) => (y) { y = Sub (b, x) }"
    )
    graph = model("""g (float[n,3] x, float[n,3] b) => (float[n,3] y) {
      a = Neg (x) c = Add (a, b) d = Neg (c) e = Add (d, b) y = Exp (e) }""")  # fmt: skip
    for node in graph.graph:
        node.metadata_props.update(
            {provenance.MODULE: f"m.{node.name}", provenance.CLASS: "C", "other": "kept"}
        )
    apply_rule(graph, wanted, prover=application_prover(), matches=2)
    check(graph)
    made = [node for node in graph.graph if node.op_type == "Sub"]
    assert [node.metadata_props[provenance.MODULE] for node in made] == ["m.node_Add_1", "m.node_Add_3"]
    assert made[0].metadata_props[provenance.RULE] == "some-rule"
    assert made[0].metadata_props[provenance.CLASS] == "C"
    assert made[0].metadata_props["other"] == "kept"
    assert made[0].name == "node_Add_1/some-rule/Sub"
    assert [node.outputs[0].name for node in made] == ["c", "e"], "values keep their names"


def test_names_that_are_taken_are_avoided(tmp_path: Path) -> None:
    wanted = rule(tmp_path, "(x) => (y) { a = Neg (x) y = Exp (a) }",
                  "(x) => (y) { one = Constant <value_float = 1.0> () a = Exp (x) y = Div (one, a) }")  # fmt: skip
    graph = model("g (float[n,3] x) => (float[n,3] y) { a = Neg (x) b = Exp (a) y = Relu (b) }")
    taken = ir.Value(name="node_Exp_1/some-rule/one", const_value=ir.tensor(np.float32(7)))
    taken.type, taken.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([])
    graph.graph.register_initializer(taken)
    graph.graph.node(2).name = "node_Exp_1/some-rule/Div"
    apply_rule(graph, wanted, prover=None)
    check(graph)
    assert set(graph.graph.initializers) == {"node_Exp_1/some-rule/one", "node_Exp_1/some-rule/one_2"}
    assert "node_Exp_1/some-rule/Div_2" in {node.name for node in graph.graph}
    inner = next(node for node in graph.graph if node.op_type == "Exp").outputs[0]
    assert inner.dtype == ir.DataType.FLOAT, "types of new inner values are inferred"
    assert str(inner.shape) == "[n,3]"


def test_unused_constants_go(tmp_path: Path) -> None:
    wanted = rule(
        tmp_path,
        "(x) => (y) { c = Constant <value_float = 2.0> () y = Mul (x, c) }",
        "(x) => (y) { y = Add (x, x) }",
    )
    graph = model(
        "g (float[n,3] x) => (float[n,3] y) <float c = {2}, float d = {2}> { a = Mul (x, c) y = Sub (a, d) }"
    )
    apply_rule(graph, wanted, prover=application_prover())
    check(graph)
    assert set(graph.graph.initializers) == {"d"}


def test_shared_inner_nodes_stay(tmp_path: Path) -> None:
    wanted = rule(
        tmp_path,
        "(x) => (y) { a = Neg (x) y = Neg (a) }",
        "(x) => (y) { y = Identity (x) }",
        "{a: {shared: true}}",
    )
    graph = model(
        "g (float[n,3] x) => (float[n,3] y, float[n,3] z) { a = Neg (x) b = Neg (a) y = Exp (b) z = Relu (a) }"
    )
    done = apply_rule(graph, wanted, prover=application_prover())
    check(graph)
    assert ops(graph) == ["Neg", "Exp", "Relu"]
    assert done.accepted[0].removed == ("node_Neg_1",)


def test_several_outputs(tmp_path: Path) -> None:
    """The first output is used before the node of the last one: new nodes must come before either user."""
    wanted = rule(tmp_path, "(x, a, b) => (p, q) { p = Mul (x, a) q = Div (x, b) }",
                  "(x, a, b) => (p, q) { one = Div (x, b) p = Mul (a, x) q = Identity (one) }",
                  inputs="\n".join(f"    {name}: {{dtype: float32, shape: [3], values: normal}}" for name in "xab"))  # fmt: skip
    text = """g (float[n,3] x, float[n,3] a, float[n,3] b) => (float[n,3] y) {
      p = Mul (x, a) r = Exp (p) q = Div (x, b) y = Add (q, r) }"""
    graph = model(text)
    apply_rule_once(graph, wanted)
    check(graph)
    assert sorted(ops(graph)) == ["Add", "Div", "Exp", "Mul"]
    feeds = {name: np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32) for name in "xab"}
    np.testing.assert_array_equal(run(graph, feeds)["y"], run(model(text), feeds)["y"])


def apply_rule_once(graph: ir.Model, wanted: Rule) -> None:
    """The replacement matches again: prove the first place and refuse the rest."""
    judge, seen = application_prover({"n": (1, 4)}), list[str]()

    def first_only(match: Match, before: ir.Model, after: ir.Model, known: dict[ir.Value, Interval]) -> Proof:
        seen.append(match.root.name or "")
        return judge(match, before, after, known) if len(seen) == 1 else Proof(False, "once is enough")

    assert len(apply_rule(graph, wanted, prover=first_only).accepted) == 1


def test_inside_a_subgraph(cancel: Rule) -> None:
    text = """g (bool c, float[2,3] x) => (float[2,3] y) {
        y = If (c) <then_branch = t () => (float[2,3] p) { a = Neg (x) b = Neg (a) p = Exp (b) },
                    else_branch = e () => (float[2,3] q) { q = Neg (x) }> }"""
    graph = model(text)
    apply_rule(graph, cancel, prover=application_prover(), matches=1)
    check(graph)
    assert [node.op_type for part in graph.graphs() for node in part] == ["If", "Exp", "Neg"]
    feeds = {"c": np.array(True), "x": np.full((2, 3), 0.5, np.float32)}
    np.testing.assert_array_equal(run(graph, feeds)["y"], run(model(text), feeds)["y"])


def test_no_match_says_the_nearest(cancel: Rule) -> None:
    error = failure_of(
        model("g (float[n,3] x) => (float[n,3] y) { a = Exp (x) y = Neg (a) }"), cancel, where="rewrites[2]"
    )
    assert error.exit_code == 2
    assert error.failure.symptom == "rule some-rule matches nothing"
    assert (
        error.failure.cause == "nearest: node_Neg_1 (Neg), 1 of 2 nodes match, but node_Exp_0 is Exp, not Neg"
    )
    assert error.failure.where == "rewrites[2]"
    none = failure_of(model("g (float[n,3] x) => (float[n,3] y) { y = Exp (x) }"), cancel)
    assert none.failure.cause == "the graph has no Neg"


def test_another_number_of_matches_is_an_error(cancel: Rule) -> None:
    error = failure_of(model(NEG_NEG), cancel, matches=2)
    assert error.exit_code == 2
    assert error.failure.symptom == "rule some-rule applied 1 times, not 2"
    assert error.failure.cause == "applied at node_Neg_2"


def test_opset_outside_the_rule(tmp_path: Path) -> None:
    wanted = rule(tmp_path, "(x) => (y) { y = Abs (x) }", "(x) => (y) { y = Relu (x) }", opset="[13, 17]")
    error = failure_of(model("g (float[n,3] x) => (float[n,3] y) { y = Abs (x) }"), wanted)
    assert error.failure.symptom == "rule some-rule needs opset 13 to 17; the graph has 18"
    assert error.exit_code == 2


def test_unequal_application_is_refused_and_names_the_input(tmp_path: Path) -> None:
    wrong = rule(tmp_path, "(x) => (y) { y = Abs (x) }", "(x) => (y) { y = Relu (x) }")
    graph = model("g (float[n,3] x) => (float[n,3] y) { y = Abs (x) }")
    error = failure_of(graph, wrong)
    assert isinstance(error, RuleRefusedError)
    assert error.exit_code == 3
    assert error.failure.symptom.startswith("rule some-rule was refused at node_Abs_0: not proven equal: y[")
    assert "with x = normal [1, 3]" in error.failure.symptom
    assert ops(graph) == ["Abs"]


def test_some_refused_some_accepted(cancel: Rule) -> None:
    """The prover decides match by match; what it refuses is left alone and reported."""
    graph = model("""g (float[n,3] x) => (float[n,3] y) {
      a = Neg (x) b = Neg (a) c = Exp (b) d = Neg (c) e = Neg (d) y = Exp (e) }""")  # fmt: skip
    done = apply_rule(graph, cancel, prover=lambda m, *_: Proof(m.root.name == "node_Neg_4", "not today"))
    assert [one.node for one in done.accepted] == ["node_Neg_4"]
    assert [(one.node, one.why) for one in done.refused] == [("node_Neg_1", "not proven equal: not today")]
    assert ops(graph) == ["Neg", "Neg", "Exp", "Exp"]


def test_weights_stay_where_they_are(tmp_path: Path, cancel: Rule) -> None:
    """A graph whose weights lie in a file: proofs read them there, the rewritten graph still points there."""
    graph = model(
        "g (float[n,3] x, float[3,9000] w) => (float[n,9000] y) { a = Neg (x) b = Neg (a) y = MatMul (b, w) }"
    )
    value = graph.graph.inputs.pop()
    value.const_value = ir.tensor(np.arange(27000, dtype=np.float32).reshape(3, 9000) / 27000, name="w")
    graph.graph.register_initializer(value)
    files.save(graph, tmp_path / "a.onnx", weights="w.data")
    loaded = files.load(tmp_path / "a.onnx")
    apply_rule(loaded, cancel, prover=application_prover({"n": (1, 2)}))
    negated = rule(tmp_path, "(x, w) => (y) { y = MatMul (x, w) }",
                   "(x, w) => (y) { n = Neg (x) s = Sub (n, n) m = MatMul (x, w) y = Identity (m) }",
                   inputs="    x: {dtype: float32, shape: [2, 3], values: normal}\n"
                          "    w: {dtype: float32, shape: [3, 5], values: normal}")  # fmt: skip
    apply_rule_once(loaded, negated)
    assert isinstance(loaded.graph.initializers["w"].const_value, ir.ExternalTensor)
    files.save(loaded, tmp_path / "b.onnx")
    assert (tmp_path / "b.onnx").stat().st_size < 2000
    feeds = {"x": np.ones((2, 3), np.float32)}
    np.testing.assert_array_equal(run(files.load(tmp_path / "b.onnx"), feeds)["y"], run(graph, feeds)["y"])


PYTHON = "rule: some-rule\nclass: op\nwhy: a test\nmatch: '(x) => (y) { y = Abs (x) }'\napply: some-rule.py\n"


def python_rule(folder: Path, body: str) -> Rule:
    (folder / "some-rule.py").write_text(body)
    proof = PROOF.format(inputs="    x: {dtype: float32, shape: [2, 3], values: [normal, edges]}")
    return load_rule(rule_file(folder, PYTHON + proof))


ABS = "g (float[n,3] x) => (float[n,3] y) { a = Exp (x) b = Abs (a) y = Neg (b) }"


def test_python_rule_edits_the_matched_part(tmp_path: Path) -> None:
    wanted = python_rule(tmp_path, """
import onnx_graphsurgeon as gs
def apply(graph, match):
    assert match.shapes["x"] == ("n", 3) and match.dtypes["x"] == "float32" and match.opset == 18
    x, y = graph.tensors()["x"], graph.tensors()["y"]
    y.inputs.clear()
    n = gs.Variable("n")
    graph.nodes += [gs.Node("Neg", inputs=[x], outputs=[n]), gs.Node("Max", inputs=[x, n], outputs=[y])]
""")  # fmt: skip
    graph = model(ABS)
    graph.graph.node(1).metadata_props[provenance.MODULE] = "some.module"
    done = apply_rule(graph, wanted, prover=application_prover())
    check(graph)
    assert ops(graph) == ["Exp", "Neg", "Max", "Neg"]
    assert graph.graph.node(2).metadata_props[provenance.MODULE] == "some.module"
    assert graph.graph.node(1).outputs[0].dtype == ir.DataType.FLOAT
    assert done.accepted[0].proof is not None


def test_python_rule_may_refuse(tmp_path: Path) -> None:
    wanted = python_rule(tmp_path, """
from engine.rules.refuse import RefusedError
def apply(graph, match):
    raise RefusedError("x is too nice")
""")  # fmt: skip
    error = failure_of(model(ABS), wanted)
    assert error.failure.symptom == "rule some-rule was refused at node_Abs_1: x is too nice"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("import onnx_graphsurgeon as gs\ndef apply(graph, match):\n    graph.outputs = [graph.inputs[0]]\n", "apply changed the outputs"),
        ("import onnx_graphsurgeon as gs\nimport numpy as np\ndef apply(graph, match):\n"
         "    v = gs.Variable('extra', np.float32, (3,))\n    graph.inputs.append(v)\n"
         "    y = graph.outputs[0]\n    y.inputs.clear()\n    graph.nodes.append(gs.Node('Add', inputs=[graph.inputs[0], v], outputs=[y]))\n",
         "apply added inputs ['extra']"),
    ],
)  # fmt: skip
def test_python_rule_that_breaks_its_contract(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        apply_rule(model(ABS), python_rule(tmp_path, body), prover=application_prover())
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("body", "symptom"),
    [
        ("def apply(graph, match):\n    return graph.nowhere\n",
         "rule some-rule: apply at node_Abs_1 raised AttributeError: 'Graph' object has no attribute 'nowhere'"),
        ("import no_such_module\n\ndef apply(graph, match): pass\n",
         "rule some-rule: importing some-rule.py raised ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)  # fmt: skip
def test_what_python_raises_is_told_with_its_line(tmp_path: Path, body: str, symptom: str) -> None:
    with pytest.raises(StepError) as caught:
        apply_rule(model(ABS), python_rule(tmp_path, body), prover=None)
    assert caught.value.failure.symptom == symptom
    assert caught.value.failure.cause.startswith(f"some-rule.py:{2 if 'nowhere' in body else 1}: ")
