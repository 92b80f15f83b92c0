"""The matcher: what fits, what does not, and how it says so."""

# ruff: noqa: E501 (ONNX text reads best on one line)

from __future__ import annotations

from pathlib import Path

import pytest

from engine.rules.language import Rule
from engine.rules.match import Match, Search
from tests.rules_tools import model, rule


def search(text: str, wanted: Rule, opset: int = 18) -> tuple[list[Match], str]:
    graph = model(text, opset)
    looking = Search(graph.graph, wanted, graph.opset_imports)
    found = list(looking)
    return found, looking.nearest.reason if looking.nearest else ""


@pytest.fixture
def scale_and_shift(tmp_path: Path) -> Rule:
    return rule(
        tmp_path,
        "(x, s, b) => (y) { m = Mul (x, s) y = Add (m, b) }",
        "(x, s, b) => (y) { y = Sum (x, s, b) }",
    )


@pytest.mark.parametrize("product", ["Mul (x, s)", "Mul (s, x)"])
@pytest.mark.parametrize("total", ["Add (m, b)", "Add (b, m)"])
def test_commutative_inputs_in_either_order(scale_and_shift: Rule, product: str, total: str) -> None:
    text = f"g (float[2,3] x, float[2,3] s, float[2,3] b) => (float[2,3] y) {{ m = {product} y = {total} }}"
    found, _ = search(text, scale_and_shift)
    assert len(found) == 1
    assert found[0].values["b"] is not None
    assert found[0].values["b"].name == "b"


def test_order_matters_elsewhere(tmp_path: Path) -> None:
    wanted = rule(
        tmp_path, "(x, b) => (y) { n = Neg (x) y = Sub (n, b) }", "(x, b) => (y) { y = Add (x, b) }"
    )
    found, reason = search(
        "g (float[2,3] x, float[2,3] b) => (float[2,3] y) { n = Neg (x) y = Sub (b, n) }", wanted
    )
    assert found == []
    assert reason == "b, used by node_Sub_1 (Sub), is an input of the graph, not the output of Neg"


def test_backtracks_into_the_other_order(tmp_path: Path) -> None:
    """Both inputs of Add are Mul; only the second has the Neg that the pattern wants."""
    wanted = rule(tmp_path, "(x, a, b) => (y) { n = Neg (x) m = Mul (n, a) y = Add (m, b) }",
                  "(x, a, b) => (y) { y = Sum (x, a, b) }")  # fmt: skip
    text = """g (float[2,3] x, float[2,3] a) => (float[2,3] y) {
      first = Mul (x, a) n = Neg (x) second = Mul (a, n) y = Add (first, second) }"""
    found, _ = search(text, wanted)
    assert [node.name for node in found[0].nodes] == ["node_Neg_1", "node_Mul_2", "node_Add_3"]


def test_same_name_is_the_same_value(tmp_path: Path) -> None:
    wanted = rule(tmp_path, "(x) => (y) { y = Mul (x, x) }", "(x) => (y) { y = Abs (x) }")
    assert search("g (float[2,3] x) => (float[2,3] y) { y = Mul (x, x) }", wanted)[0]
    found, reason = search("g (float[2,3] x, float[2,3] z) => (float[2,3] y) { y = Mul (x, z) }", wanted)
    assert found == []
    assert reason == "node_Mul_0 (Mul) uses z where x is needed"


HALF = "(x) => (y) { c = Constant <value_float = 0.5> () y = Mul (x, c) }"


@pytest.mark.parametrize(
    ("constant", "reason"),
    [
        ("<float c = {0.5}>", ""),
        ("<float c = {0.25}>", "c, used by node_Mul_0 (Mul), is 0.25, not 0.5"),
        ("<float[1] c = {0.5}>", "c, used by node_Mul_0 (Mul), is float[1], not float32[]"),
    ],
)
def test_constants_match_by_value_type_and_shape(tmp_path: Path, constant: str, reason: str) -> None:
    wanted = rule(tmp_path, HALF, "(x) => (y) { y = Abs (x) }")
    found, said = search(f"g (float[2,3] x) => (float[2,3] y) {constant} {{ y = Mul (x, c) }}", wanted)
    assert (len(found), said) == (0 if reason else 1, reason)


def test_constant_node_is_a_constant_too(tmp_path: Path) -> None:
    wanted = rule(tmp_path, HALF, "(x) => (y) { y = Abs (x) }")
    text = "g (float[2,3] x) => (float[2,3] y) { c = Constant <value_float = 0.5> () y = Mul (x, c) }"
    assert len(search(text, wanted)[0]) == 1


def test_an_initializer_that_is_an_input_is_no_constant(tmp_path: Path) -> None:
    """A caller may feed it."""
    wanted = rule(tmp_path, HALF, "(x) => (y) { y = Abs (x) }")
    graph = model("g (float[2,3] x) => (float[2,3] y) <float c = {0.5}> { y = Mul (x, c) }")
    graph.graph.inputs.append(graph.graph.initializers["c"])
    looking = Search(graph.graph, wanted, graph.opset_imports)
    assert list(looking) == []
    assert looking.nearest is not None
    assert looking.nearest.reason == "c, used by node_Mul_0 (Mul), is not a constant"


def test_captured_constant_becomes_an_attribute(tmp_path: Path) -> None:
    wanted = rule(
        tmp_path,
        "(x) => (y) { c = Constant <value_float: float = @slope> () y = PRelu (x, c) }",
        "(x) => (y) { y = LeakyRelu <alpha: float = @slope> (x) }",
        attributes="{slope: [0.1]}",
    )
    found, _ = search("g (float[2,3] x) => (float[2,3] y) <float c = {0.25}> { y = PRelu (x, c) }", wanted)
    assert found[0].attributes == {"slope": 0.25}


def test_attributes_default_capture_and_literal(tmp_path: Path) -> None:
    wanted = rule(tmp_path, "(x) => (y) { y = Softmax <axis = -1> (x) }", "(x) => (y) { y = Abs (x) }")
    assert search("g (float[2,3] x) => (float[2,3] y) { y = Softmax (x) }", wanted)[0], "-1 is the default"
    found, reason = search("g (float[2,3] x) => (float[2,3] y) { y = Softmax <axis = 0> (x) }", wanted)
    assert (found, reason) == ([], "node_Softmax_0 (Softmax): axis is 0, not -1")
    silent = rule(tmp_path, "(x) => (y) { y = Softmax (x) }", "(x) => (y) { y = Abs (x) }")
    found, reason = search("g (float[2,3] x) => (float[2,3] y) { y = Softmax <axis = 0> (x) }", silent)
    assert (found, reason) == ([], "node_Softmax_0 (Softmax): axis is 0, which match does not mention")


def test_one_capture_must_be_one_value(tmp_path: Path) -> None:
    wanted = rule(
        tmp_path,
        "(x) => (y) { a = Elu <alpha: float = @a> (x) y = Elu <alpha: float = @a> (a) }",
        "(x) => (y) { y = Elu <alpha: float = @a> (x) }",
        attributes="{a: [1.0]}",
    )
    text = "g (float[2,3] x) => (float[2,3] y) { b = Elu <alpha = 2.0> (x) y = Elu <alpha = %s> (b) }"
    assert search(text % "2.0", wanted)[0]
    found, reason = search(text % "3.0", wanted)
    assert (found, reason) == ([], "node_Elu_0 (Elu): @a is 2.0 here and 3.0 elsewhere")


def test_optional_last_input(tmp_path: Path) -> None:
    given = "(x, w, b) => (y) { y = Conv (x, w, b) }"
    fed = "\n".join(f"    {n}: {{dtype: float32, shape: {s}, values: normal}}"
                    for n, s in (("x", "[1, 2, 4]"), ("w", "[3, 2, 1]"), ("b", "[3]")))  # fmt: skip
    wanted = rule(tmp_path, given, given, "{b: {optional: true}}", fed)
    with_bias = "g (float[1,2,4] x, float[3,2,1] w, float[3] b) => (float[1,3,4] y) { y = Conv (x, w, b) }"
    without = "g (float[1,2,4] x, float[3,2,1] w) => (float[1,3,4] y) { y = Conv (x, w) }"
    assert search(with_bias, wanted)[0][0].values["b"] is not None
    assert search(without, wanted)[0][0].values["b"] is None
    strict = rule(tmp_path, given, given, "{}", fed)
    assert search(without, strict) == ([], "node_Conv_0 (Conv) has 2 inputs, not 3")


def test_inner_values_used_outside_refuse(scale_and_shift: Rule) -> None:
    text = """g (float[2,3] x, float[2,3] s, float[2,3] b) => (float[2,3] y, float[2,3] z) {
      m = Mul (x, s) y = Add (m, b) z = Neg (m) }"""
    assert search(text, scale_and_shift) == ([], "m is also used by node_Neg_2 (Neg)")
    text = """g (float[2,3] x, float[2,3] s, float[2,3] b) => (float[2,3] y, float[2,3] m) {
      m = Mul (x, s) y = Add (m, b) }"""
    assert search(text, scale_and_shift) == ([], "m is an output of the graph as well")


def test_shared_allows_it(tmp_path: Path) -> None:
    wanted = rule(tmp_path, "(x, s, b) => (y) { m = Mul (x, s) y = Add (m, b) }",
                  "(x, s, b) => (y) { y = Sum (x, s, b) }", "{m: {shared: true}}")  # fmt: skip
    text = """g (float[2,3] x, float[2,3] s, float[2,3] b) => (float[2,3] y, float[2,3] z) {
      m = Mul (x, s) y = Add (m, b) z = Add (m, x) }"""
    assert len(search(text, wanted)[0]) == 2


def test_matches_do_not_overlap(tmp_path: Path) -> None:
    wanted = rule(tmp_path, "(x) => (y) { a = Neg (x) y = Neg (a) }", "(x) => (y) { y = Identity (x) }")
    text = "g (float[2,3] x) => (float[2,3] y) { a = Neg (x) b = Neg (a) y = Neg (b) }"
    found, reason = search(text, wanted)
    assert [match.root.name for match in found] == ["node_Neg_1"]
    assert reason == "node_Neg_1 (Neg) belongs to another match"


def test_second_output_is_found_through_its_input(tmp_path: Path) -> None:
    two = "(x, a, b) => (p, q) { p = Mul (x, a) q = Mul (x, b) }"
    wanted = rule(tmp_path, two, two)
    text = "g (float[2,3] x, float[2,3] a, float[2,3] b) => (float[2,3] p, float[2,3] q) { p = Mul (x, a) q = Mul (x, b) }"
    found, _ = search(text, wanted)
    assert {node.name for node in found[0].nodes} == {"node_Mul_0", "node_Mul_1"}


def test_input_that_depends_on_an_output_refuses(tmp_path: Path) -> None:
    """Replacing both products at once would make a node feed itself."""
    two = "(x, a, b) => (p, q) { p = Mul (x, a) q = Mul (x, b) }"
    text = "g (float[2,3] x, float[2,3] a) => (float[2,3] q) { p = Mul (x, a) n = Neg (p) q = Mul (x, n) }"
    found, reason = search(text, rule(tmp_path, two, two))
    assert found == []
    assert "depends on the output" in reason


def test_nearest_miss_is_the_candidate_that_came_furthest(tmp_path: Path) -> None:
    wanted = rule(
        tmp_path, "(x) => (y) { a = Exp (x) b = Neg (a) y = Relu (b) }", "(x) => (y) { y = Abs (x) }"
    )
    text = """g (float[2,3] x) => (float[2,3] y, float[2,3] z) {
      a = Exp (x) y = Relu (a) b = Abs (x) c = Neg (b) z = Relu (c) }"""
    graph = model(text)
    looking = Search(graph.graph, wanted, graph.opset_imports)
    assert list(looking) == []
    said = str(looking.nearest)
    assert said == "nearest: node_Relu_4 (Relu), 2 of 3 nodes match, but node_Abs_2 is Abs, not Exp"


def test_subgraphs_are_searched_and_borders_kept(tmp_path: Path) -> None:
    wanted = rule(tmp_path, "(x) => (y) { a = Neg (x) y = Neg (a) }", "(x) => (y) { y = Identity (x) }")
    graph = model("""
      g (bool c, float[2,3] x) => (float[2,3] y) {
        o = Neg (x)
        y = If (c) <then_branch = t () => (float[2,3] p) { a = Neg (x) p = Neg (a) },
                    else_branch = e () => (float[2,3] q) { q = Neg (o) }>
      }""")  # fmt: skip
    found = [match for part in graph.graphs() for match in Search(part, wanted, graph.opset_imports)]
    assert len(found) == 1
    assert found[0].root.graph is not graph.graph
