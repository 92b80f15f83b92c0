"""Rules for an operator whatever its inputs and attributes, and the standard's definition as replacement."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.errors import RecipeError, StepError
from engine.rules import library, suite
from engine.rules.apply import apply_rule
from engine.rules.language import Rule, load_rule
from engine.rules.prove import application_prover, prove_rule
from tests.rules_tools import check, model, ops, random_feeds, rule_file, run

GOOD = """\
rule: some-rule
class: op
why: a test
op: [Gelu, HardSwish]
opset: 20
where:
  approximate: {attribute: none}
definition: true
proof:
  cases:
    - "g (float[2,3] X) => (float[2,3] Y) { Y = Gelu (X) }"
    - "g (float[2,3] X) => (float[2,3] Y) { Y = HardSwish (X) }"
  values: {X: [normal]}
  equal: {max_eps: 8}
needed_by: {tensorrt-rtx: never}
"""


def load(folder: Path, text: str = GOOD) -> Rule:
    return load_rule(rule_file(folder, text))


def refused(folder: Path, text: str) -> str:
    with pytest.raises(RecipeError) as caught:
        load(folder, text)
    return "\n".join(str(problem).removeprefix(f"{folder}/") for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("op: [Gelu, HardSwish]", "op: [Gelu, HardSwich]", "4:12: op: unknown operator HardSwich"),
        ("approximate: {", "aproximate: {", "7:3: where: the operator has no 'aproximate'"),
        ("attribute: none", "rank: 2", "where.approximate: 'rank' is not for attributes"),
        ("values: {X:", "values: {x:", "13:12: proof.values: the operator has no input 'x'"),
        ("definition: true", "branch: true", "8:1: branch is for a rule with op: If"),
        ("Y = Gelu (X)", "Y = Relu (X)", "proof.cases: the graph has no Gelu or HardSwish"),
        ("Y = Gelu (X)", "Y = Gelu (X", "proof.cases: not ONNX text"),
        ("definition: true", "replace: '(X) => (Y) { Y = Relu (X) }'\ndefinition: true", "one of them"),
        ("definition: true", "replace: '(X) => (Y) { Y = Relu (X) }'", "replace is for a rule with match"),
        ("  cases:\n", "  axes: {n: [1]}\n  cases:\n", "proof.axes is for a rule with match"),
        ("op: [Gelu", "match: '(x) => (y) { y = Relu (x) }'\nop: [Gelu", "either 'match'"),
        ("op: [Gelu, HardSwish]", "match: '(X) => (Y) { Y = Gelu (X) }'", "definition is for a rule with op"),
    ],
)
def test_refuses_what_does_not_fit_together(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    assert said in refused(tmp_path, GOOD.replace(old, new, 1))


def test_needs_something_to_be_proven_on(tmp_path: Path) -> None:
    text = GOOD[: GOOD.index("  cases:")] + GOOD[GOOD.index("  values:") :]
    assert "needs cases or suite" in refused(tmp_path, text)


def test_both_operators_are_replaced_and_proven(tmp_path: Path) -> None:
    text = """
    g (float[n,4] x) => (float[n,4] y) {
      a = Gelu (x)
      y = HardSwish (a)
    }
    """
    before, after = model(text, 20), model(text, 20)
    done = apply_rule(after, load(tmp_path), matches=2, prover=application_prover({"n": (1, 3)}))
    check(after)
    assert not {"Gelu", "HardSwish"} & set(ops(after))
    assert all(item.proof is not None and item.proof.numbers for item in done.accepted)
    feeds = {"x": np.linspace(-4, 4, 12, dtype=np.float32).reshape(3, 4)}
    np.testing.assert_allclose(run(after, feeds)["y"], run(before, feeds)["y"], rtol=1e-5, atol=1e-6)


def test_own_proof_covers_every_operator(tmp_path: Path) -> None:
    assert prove_rule(load(tmp_path)).why == ""
    one = GOOD.replace('    - "g (float[2,3] X) => (float[2,3] Y) { Y = HardSwish (X) }"\n', "")
    proof = prove_rule(load(tmp_path, one))
    assert not proof.equal
    assert "never runs HardSwish" in proof.why


def test_a_wrong_replacement_is_not_proven(tmp_path: Path) -> None:
    text = GOOD.replace("op: [Gelu, HardSwish]", "op: Gelu").replace(
        "definition: true", "apply: some-rule.py"
    )
    text = text.replace('    - "g (float[2,3] X) => (float[2,3] Y) { Y = HardSwish (X) }"\n', "")
    code = "def apply(graph, match):\n    graph.nodes[0].op = 'Relu'\n    graph.nodes[0].attrs.clear()\n"
    (tmp_path / "some-rule.py").write_text(code)
    proof = prove_rule(load(tmp_path, text))
    assert not proof.equal
    assert "Y[" in proof.why


def test_a_condition_on_an_attribute_is_kept(tmp_path: Path) -> None:
    graph = model('g (float[4] x) => (float[4] y) { y = Gelu <approximate = "tanh"> (x) }', 20)
    with pytest.raises(StepError) as caught:
        apply_rule(graph, load(tmp_path), prover=None)
    assert "approximate is tanh, not none" in str(caught.value.failure.cause)


def test_an_operator_without_a_definition_is_refused(tmp_path: Path) -> None:
    text = GOOD.replace("[Gelu, HardSwish]", "Relu").replace("where:\n  approximate: {attribute: none}\n", "")
    text = text.replace('    - "g (float[2,3] X) => (float[2,3] Y) { Y = HardSwish (X) }"\n', "")
    text = text.replace("Gelu", "Relu").replace("opset: 20", "opset: 13")
    proof = prove_rule(load(tmp_path, text))
    assert "opset 13 does not define Relu of these types by simpler operators" in proof.why


def test_a_subgraph_of_the_body_reads_the_values_of_the_graph() -> None:
    """The body of LinearAttention is a Scan over time that reads constants from around it."""
    text = (Path(__file__).parent / "rules/linear-attention-by-definition/fires.txt").read_text()
    before, after = model(text), model(text)
    apply_rule(after, load_rule(library.path_of("linear-attention-by-definition")), prover=None)
    check(after)
    (scan,) = [node for node in after.graph if node.op_type == "Scan"]
    inside = {value for node in scan.attributes["body"].as_graph() for value in node.outputs}
    body = scan.attributes["body"].as_graph()
    read = {value for node in body for value in node.inputs if value is not None}
    assert read - inside - set(body.inputs) - set(body.initializers.values())
    feeds = random_feeds(before, {"b": 2})
    first, second = run(before, feeds), run(after, feeds)
    for name, wanted in first.items():
        np.testing.assert_allclose(second[name], wanted, rtol=1e-5, atol=1e-5)


def test_indices_stay_inside_the_axis_that_they_index() -> None:
    text = "g (float[b,5] x, int64[b] t) => (float loss) { loss = NegativeLogLikelihoodLoss (x, t) }"
    done = apply_rule(
        model(text), load_rule(library.path_of("nll-loss-by-definition")), prover=application_prover()
    )
    proof = done.accepted[0].proof
    assert proof is not None
    assert proof.cases >= 4


def test_the_suite_holds_tensors_alone_and_constants_where_exporters_write_them() -> None:
    cases = suite.cases()
    assert 1700 < len(cases) < 1884
    names = {case.name for case in cases}
    assert not {"test_sequence_map_identity_1_sequence", "test_bernoulli", "test_adam"} & names
    reshape = next(case for case in cases if case.name == "test_reshape_reordered_all_dims")
    assert [value.name for value in reshape.model.graph.input] == ["data"]
    assert [tensor.name for tensor in reshape.model.graph.initializer] == ["shape"]
    attention = next(case for case in suite.of_ops(["Attention"]) if case.name == "test_attention_4d")
    assert len(attention.inputs) == 3


def test_an_output_that_nobody_reads_needs_no_replacement() -> None:
    graph = model("g (int64[4] x) => (int64[4] place) { values, first, place, counts = Unique (x) }")
    done = apply_rule(graph, load_rule(library.path_of("unique-to-compare")), prover=application_prover())
    check(graph)
    assert "Unique" not in ops(graph)
    assert done.accepted
