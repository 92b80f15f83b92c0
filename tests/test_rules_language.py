"""Rule files: what is read, and the place and wording of everything that can be wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.errors import RecipeError
from engine.rules import library
from engine.rules.language import load_library, load_rule
from engine.rules.pattern import Capture
from engine.rules.why import Why
from tests.rules_tools import rule_file

GOOD = """\
rule: some-rule
class: op
why: >
  two
  lines
opset: [13, 20]
match: |
  (x, w) => (y) {
    two = Constant <value_float = 2.0> ()
    a = Mul (x, two)
    y = Elu <alpha: float = @alpha> (a)
  }
where:
  x: {rank: 2}
replace: |
  (x) => (y) {
    y = Elu <alpha: float = @alpha> (x)
  }
proof:
  axes: {n: [1, 3]}
  attributes: {alpha: [0.5, 1.0]}
  inputs:
    x: {dtype: float32, shape: [n, 8], values: edges}
    w: {dtype: [float32, float16], shape: [], values: {constant: 2}}
  opsets: [13, 18]
  equal: {max_abs: 1.0e-6}
needed_by: {tensorrt-rtx: "*"}
"""
WITHOUT_W = GOOD.replace("(x, w)", "(x)").replace(
    "    w: {dtype: [float32, float16], shape: [], values: {constant: 2}}\n", ""
)


def problems(folder: Path, text: str, name: str = "some-rule") -> list[str]:
    with pytest.raises(RecipeError) as caught:
        load_rule(rule_file(folder, text, name))
    return [str(problem).removeprefix(f"{folder}/") for problem in caught.value.problems]


def test_reads_every_part(tmp_path: Path) -> None:
    rule = load_rule(rule_file(tmp_path, WITHOUT_W))
    assert (rule.name, rule.klass, rule.why) == ("some-rule", "op", Why("two lines"))
    assert rule.opset == (13, 20)
    assert [rule.allows(opset) for opset in (12, 13, 20, 21)] == [False, True, True, False]
    assert [node.op for node in rule.match.nodes] == ["Mul", "Elu"]
    assert rule.match.constants["two"] == 2.0
    assert rule.match.nodes[1].attributes["alpha"] == Capture("alpha", 1)
    assert rule.proof.opsets == (13, 18)
    assert rule.proof.inputs["x"].shape == ("n", 8)
    assert rule.needed_by == {"tensorrt-rtx": "*"}


HEADINGS = "why:\n  breaks: >\n    two\n    lines\n  idea: an idea\n  cost: none\n  tolerance: exact\n"


def test_reads_why_under_its_headings(tmp_path: Path) -> None:
    text = WITHOUT_W.replace("why: >\n  two\n  lines\n", HEADINGS)
    assert load_rule(rule_file(tmp_path, text)).why == Why("two lines", "an idea", "none", "exact")


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "message"),
    [("  cost: none\n", "", 3, 1, "why: 'cost' is missing"),
     ("  idea:", "  ideas:", 7, 3, "why: unknown key 'ideas'"),
     ("tolerance: exact", "tolerance: ' '", 9, 14, "why.tolerance: must not be empty"),
     ("tolerance: exact", "tolerance: 0", 9, 14, "why.tolerance: expected text, got 0"),
     (HEADINGS, "why: []\n", 3, 6, "why: expected text or a mapping, got a list"),
     (HEADINGS, "why: ' '\n", 3, 6, "why: must not be empty")],
)  # fmt: skip
def test_what_is_wrong_with_why(
    tmp_path: Path, old: str, new: str, line: int, column: int, message: str
) -> None:
    text = WITHOUT_W.replace("why: >\n  two\n  lines\n", HEADINGS)
    assert text.count(old) == 1
    found = problems(tmp_path, text.replace(old, new))
    assert any(one.startswith(f"some-rule.yaml:{line}:{column}: {message}") for one in found), found


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "message"),
    [
        ("Elu <alpha: float = @alpha> (a)", "Elu <alpha: float = @alpha (a)", 11, 36, "not valid ONNX text"),
        ("Mul (x, two)", "Mull (x, two)", 10, 9, "match: unknown operator Mull"),
        ("Mul (x, two)", "Mul (x, tow)", 10, 17, "match: tow is used but nothing above makes it"),
        ("Mul (x, two)", "Mul (x, two, x)", 10, 9, "match: Mul takes 2 to 2 inputs, not 3"),
        ("Mul (x, two)", "Gelu (x)", 10, 9, "match: opset 13 has no Gelu"),
        ("<alpha: float = @alpha> (a)", "<alfa: float = @alpha> (a)", 11, 14, "Elu has no attribute alfa"),
        ("<alpha: float = @alpha> (a)", "<alpha = @alpha> (a)", 11, 14, "attribute alpha needs a type"),
        ("    a = Mul", "    x = Mul", 10, 5, "match: x is made twice"),
        ("(x) => (y) {\n    two", "(x) => (z) {\n    two", 8, 11, "match: output z is not made"),
        ("(x) => (y) {\n    two", "(x, b) => (y) {\n    two", 8, 7, "match: input b is never used"),
        ("(x) => (y) {\n    y", "(x, q) => (y) {\n    y", 16, 7, "replace: q is not an input of match"),
        ("@alpha> (x)", "@beta> (x)", 17, 30, "replace: @beta is not captured in match"),
        ("  x: {rank: 2}", "  p: {rank: 2}", 14, 3, "where: match has no 'p'"),
        ("  x: {rank: 2}", "  x: {rnk: 2}", 14, 7, "where.x: unknown key 'rnk'"),
        ("  x: {rank: 2}", "  x: {attribute: 2}", 14, 7, "where.x: 'attribute' is not for values"),
        ("  x: {rank: 2}", "  alpha: {rank: 2}", 14, 11, "where.alpha: 'rank' is not for attributes"),
        ("shape: [n, 8]", "shape: [m, 8]", 23, 33, "axis 'm' has no sizes"),
        ("    x: {dtype", "    z: {dtype", 22, 3, "proof.inputs: nothing is said about input x"),
        ("{alpha: [0.5, 1.0]}", "{alpa: [0.5]}", 21, 16, "match captures no @alpa"),
        ("rule: some-rule", "rule: other-rule", 1, 7, "must have the name of its file, 'some-rule'"),
        ("opset: [13, 20]", "upstream: true", 6, 1, "upstream is for a rule with op"),
        ("opset: [13, 20]", "upstream: true", 6, 1, "upstream: only an apply function can replace so much"),
        ("opset: [13, 20]", "opset: [20, 13]", 6, 8, "a range is [lowest, highest]"),
        ('{tensorrt-rtx: "*"}', '{tensorflow: "*"}', 26, 13, "is no valid name here"),
    ],
)
def test_every_problem_at_its_place(
    tmp_path: Path, old: str, new: str, line: int, column: int, message: str
) -> None:
    assert WITHOUT_W.count(old) >= 1
    found = problems(tmp_path, WITHOUT_W.replace(old, new, 1))
    wanted = [text for text in found if message in text]
    assert wanted, found
    assert wanted[0].startswith(f"some-rule.yaml:{line}:{column}: "), found


def test_caret_stands_under_the_word(tmp_path: Path) -> None:
    found = problems(tmp_path, WITHOUT_W.replace("Mul (x, two)", "Mull (x, two)"))
    assert found == [
        "some-rule.yaml:10:9: match: unknown operator Mull\n"
        "   10 |     a = Mull (x, two)\n"
        "      |         ^^^^\n"
        "        did you mean 'Mul'?"
    ]


def test_all_problems_at_once(tmp_path: Path) -> None:
    text = WITHOUT_W.replace("Mul (x, two)", "Mull (x, tow)").replace("rule: some-rule", "rule: other")
    assert len(problems(tmp_path, text)) >= 3


def test_text_on_one_line_has_its_column(tmp_path: Path) -> None:
    text = re.sub(
        r"match: \|\n(  .*\n)+", "match: '(x) => (y) { y = Eluu <alpha: float = @alpha> (x) }'\n", WITHOUT_W
    )
    assert problems(tmp_path, text)[0].startswith("some-rule.yaml:7:26: match: unknown operator Eluu")


def test_text_after_the_brace_is_refused(tmp_path: Path) -> None:
    text = WITHOUT_W.replace("(a)\n  }\n", "(a)\n  }\n  z = Neg (y)\n")
    assert "text after the closing brace" in problems(tmp_path, text)[0]


def test_outputs_must_be_the_same(tmp_path: Path) -> None:
    text = WITHOUT_W.replace("(x) => (y) {\n    y = Elu", "(x) => (z) {\n    z = Elu")
    assert "replace: outputs (z) differ from match (y)" in problems(tmp_path, text)[0]


def test_disconnected_nodes_are_refused(tmp_path: Path) -> None:
    text = WITHOUT_W.replace(
        "    y = Elu <alpha: float = @alpha> (a)", "    b = Neg (a)\n    y = Elu <alpha: float = @alpha> (c)"
    )
    text = text.replace("(x) => (y) {\n    two", "(x, c) => (y) {\n    two")
    text = text.replace("  opsets:", "    c: {dtype: float32, shape: [n, 8], values: edges}\n  opsets:")
    assert "match: a is not connected to the last output" in "\n".join(problems(tmp_path, text))


def test_replace_or_apply_but_not_both(tmp_path: Path) -> None:
    both = WITHOUT_W.replace("opset:", "apply: some-rule.py\nopset:")
    said = "either 'replace' (ONNX text), 'apply' (a Python file), 'definition', 'branch' or 'fold'"
    assert said in "\n".join(problems(tmp_path, both))
    neither = re.sub(r"replace: \|\n(  .*\n)+", "", WITHOUT_W)
    assert said in "\n".join(problems(tmp_path, neither))


def test_apply_file_must_exist_and_bear_the_name(tmp_path: Path) -> None:
    text = re.sub(r"replace: \|\n(  .*\n)+", "apply: some-rule.py\n", WITHOUT_W)
    assert "some-rule.py does not exist beside the rule" in "\n".join(problems(tmp_path, text))
    other = text.replace("apply: some-rule.py", "apply: other.py")
    assert "must be named 'some-rule.py'" in "\n".join(problems(tmp_path, other))
    (tmp_path / "some-rule.py").write_text("def apply(graph, match): pass\n")
    assert load_rule(rule_file(tmp_path, text)).apply == tmp_path / "some-rule.py"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import numpy\n\ndef apply(graph, match):\n    x = = 1\n",
         "some-rule.py:4:9: not valid Python: invalid syntax\n    4 |     x = = 1\n      |         ^"),
        ("def aply(graph, match): pass\n",
         "some-rule.py:1:1: defines no function apply(graph, match), which the rule's 'apply' calls\n"
         "    1 | def aply(graph, match): pass\n      | ^"),
        ("x = 1\ndef apply(graph): pass\n",
         "some-rule.py:2:1: apply takes other arguments than (graph, match)\n"
         "    2 | def apply(graph): pass\n      | ^^^^^^^^^"),
        ("", "some-rule.py:1:1: defines no function apply(graph, match), which the rule's 'apply' calls"),
    ],
)  # fmt: skip
def test_python_beside_a_rule_is_looked_at_without_running_it(tmp_path: Path, code: str, said: str) -> None:
    (tmp_path / "some-rule.py").write_text(code)
    assert problems(tmp_path, re.sub(r"replace: \|\n(  .*\n)+", "apply: some-rule.py\n", WITHOUT_W)) == [said]


@pytest.mark.parametrize("code", ["def apply(graph, match, more=1): pass", "def apply(*both): pass"])
def test_other_ways_to_take_two_arguments(tmp_path: Path, code: str) -> None:
    (tmp_path / "some-rule.py").write_text(code)
    load_rule(rule_file(tmp_path, re.sub(r"replace: \|\n(  .*\n)+", "apply: some-rule.py\n", WITHOUT_W)))


def test_library_reports_the_problems_of_all_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        rule_file(tmp_path, WITHOUT_W.replace("Mul (", "Mull (").replace("some-rule", name), name)
    with pytest.raises(RecipeError) as caught:
        load_library(tmp_path)
    files = {Path(problem.place.file).name for problem in caught.value.problems if problem.place}
    assert files == {"one.yaml", "two.yaml"}


def test_unknown_rule_names_the_nearest() -> None:
    with pytest.raises(RecipeError, match="did you mean 'celu-to-elementwise'"):
        library.path_of("celu-to-elementwize")


TYPES = """\
rule: some-rule
class: op
why: a test
types: {uint8: int32, uint32: int64}
proof:
  cases:
    - "g (uint8[2] a, uint32[2] b) => (uint8[2] y, uint32[2] z) { y = Add (a, a) z = Add (b, b) }"
  equal: {max_abs: 0}
needed_by: {tensorrt-rtx: "*"}
"""


def test_reads_a_rule_for_types(tmp_path: Path) -> None:
    rule = load_rule(rule_file(tmp_path, TYPES))
    assert rule.types == {"uint8": "int32", "uint32": "int64"}
    assert rule.anchors == ()


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "message"),
    [
        ("uint32: int64", "uint32: int32", 4, 31, "types: int32 does not hold every number of uint32"),
        ("uint32: int64", "uint64: int64", 4, 23, "is no valid name here"),
        ("uint32: int64", "uint32: float32", 4, 31, "is not one of: int32, int64"),
        ("proof:", "op: Add\nproof:", 1, 1, "a rule has either 'match' (ONNX text), 'op'"),
        ("proof:", "definition: true\nproof:", 5, 1, "definition is for a rule with op"),
        ("proof:", "where: {x: {rank: 1}}\nproof:", 5, 1, "where is for a rule with match or op"),
        ("  equal", "  suite: true\n  equal", 8, 3, "proof.suite is for a rule with op"),
        ("{max_abs: 0}", "{max_abs: 1}", 8, 20, "proof.equal: a rule with types is exact"),
        ("z = Add (b, b) }", "z = Add (b, b)", 7, None, "proof.cases: not ONNX text"),
        ("  cases:\n    - ", "  # ", 5, 1, "proof: a rule with types needs cases"),
    ],
)
def test_every_problem_of_a_rule_for_types(
    tmp_path: Path, old: str, new: str, line: int, column: int | None, message: str
) -> None:
    assert TYPES.count(old) == 1
    found = problems(tmp_path, TYPES.replace(old, new))
    wanted = [text for text in found if message in text]
    assert wanted, found
    assert wanted[0].startswith(f"some-rule.yaml:{line}:{column or ''}"), found
