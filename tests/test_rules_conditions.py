"""Each condition of ``where``: once where it holds and once where it does not, with the words it says."""

# ruff: noqa: E501 (ONNX text reads best on one line)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine import schema
from engine.rules.conditions import CHECKS, STRUCTURAL
from engine.rules.language import load_library
from engine.rules.match import Search
from tests.rules_tools import model, rule

# condition, graph in which it holds, graph in which it does not, and why: the pattern is y = Mul (x, c)
G = "g (float[2,3] x, float[2,3] c) => (float[2,3] y) { y = Mul (x, c) }"
CASES: list[tuple[str, Any, str, str, str]] = [
    ("from", "Relu", "g (float[2,3] z, float[2,3] x) => (float[2,3] y) { c = Relu (z) y = Mul (x, c) }", G,
     "c comes from a graph input or constant, not from Relu"),
    ("from", ["Relu", "Sigmoid"], "g (float[2,3] z, float[2,3] x) => (float[2,3] y) { c = Sigmoid (z) y = Mul (x, c) }",
     "g (float[2,3] z, float[2,3] x) => (float[2,3] y) { c = Tanh (z) y = Mul (x, c) }",
     "c comes from Tanh, not from Relu or Sigmoid"),
    ("constant", True, "g (float[2,3] x) => (float[2,3] y) <float[3] c = {1,2,3}> { y = Mul (x, c) }", G,
     "c is not a constant"),
    ("constant", 0, "g (float[2,3] x) => (float[2,3] y) <float c = {0}> { y = Mul (x, c) }",
     "g (float[2,3] x) => (float[2,3] y) <float c = {0.5}> { y = Mul (x, c) }", "c is 0.5, not 0"),
    ("constant", 0, "g (float[2,3] x) => (float[2,3] y) <float[1] c = {0}> { y = Mul (x, c) }",
     "g (float[2,3] x) => (float[2,3] y) <float[3] c = {0,0,0}> { y = Mul (x, c) }",
     "c has 3 elements, not one equal to 0"),
    ("constant", {"below": -65504}, "g (float[2,3] x) => (float[2,3] y) <float c = {-1e30}> { y = Mul (x, c) }",
     "g (float[2,3] x) => (float[2,3] y) <float[3] c = {-1e30,-1e30,7}> { y = Mul (x, c) }", "not below -65504"),
    ("constant", {"above": 0}, "g (float[2,3] x) => (float[2,3] y) <float c = {1}> { y = Mul (x, c) }",
     "g (float[2,3] x) => (float[2,3] y) <float c = {0}> { y = Mul (x, c) }", "c holds 0.0, not above 0"),
    ("constant", {"at_least": 0, "at_most": 1}, "g (float[2,3] x) => (float[2,3] y) <float c = {1}> { y = Mul (x, c) }",
     "g (float[2,3] x) => (float[2,3] y) <float c = {1.5}> { y = Mul (x, c) }", "c holds 1.5, not at most 1"),
    ("constant", {"finite": True}, "g (float[2,3] x) => (float[2,3] y) <float c = {1e38}> { y = Mul (x, c) }",
     "g (float[2,3] x) => (float[2,3] y) { c = Constant <value_float = inf> () y = Mul (x, c) }",
     "c holds inf, which is not finite"),
    ("dtype", "float32", G, "g (float16[2,3] x, float16[2,3] c) => (float16[2,3] y) { y = Mul (x, c) }",
     "c is float16, not float32"),
    ("dtype", ["float32", "float64"], G, "g (int64[2,3] x, int64[2,3] c) => (int64[2,3] y) { y = Mul (x, c) }",
     "c is int64, not float32 or float64"),
    ("rank", 2, G, "g (float[2,3] x, float[3] c) => (float[2,3] y) { y = Mul (x, c) }", "c has rank 1, not 2"),
    ("rank", [0, 1], "g (float[2,3] x, float[3] c) => (float[2,3] y) { y = Mul (x, c) }", G,
     "c has rank 2, not 0 or 1"),
    ("static", [0, -1], G, "g (float[n,3] x, float[n,3] c) => (float[n,3] y) { y = Mul (x, c) }",
     "c has a dynamic axis 0 (n)"),
    ("at_most", {"-1": 3}, G, "g (float[2,4] x, float[2,4] c) => (float[2,4] y) { y = Mul (x, c) }",
     "c has size 4 on axis -1, more than 3"),
    ("finite", True, "g (float[2,3] x, int64[2,3] z) => (float[2,3] y) { c = Cast <to = 1> (z) y = Mul (x, c) }", G,
     "c is not proven finite: it depends on the input c (float32), which may hold NaN"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "argument", "holds", "fails", "reason"), CASES)
def test_condition(tmp_path: Path, key: str, argument: Any, holds: str, fails: str, reason: str) -> None:
    where = json.dumps({"c": {key: argument}})
    wanted = rule(tmp_path, "(x, c) => (y) { y = Mul (x, c) }", "(x, c) => (y) { y = Mul (c, x) }", where)
    good = model(holds)
    assert len(list(Search(good.graph, wanted, good.opset_imports))) == 1
    # the pattern is commutative: x and c can change places, so both must fail in the bad graph's order
    bad = model(fails)
    found = [
        m
        for m in Search(bad.graph, wanted, bad.opset_imports)
        if m.values["c"] is bad.graph.node(0).inputs[1]
    ]
    assert not [m for m in found if m.values["c"] and m.values["c"].name == "c"]
    looking = Search(bad.graph, rule(tmp_path, "(x, c) => (y) { n = Neg (x) y = Sub (n, c) }",
                                     "(x, c) => (y) { y = Sub (c, x) }", where), bad.opset_imports)  # fmt: skip
    swapped = model(fails.replace("y = Mul (x, c)", "n = Neg (x) y = Sub (n, c)"))
    looking = Search(swapped.graph, looking.rule, swapped.opset_imports)
    assert list(looking) == []
    assert looking.nearest is not None
    assert reason in looking.nearest.reason


def test_size_of_follows_shape_slice_gather_and_squeeze(tmp_path: Path) -> None:
    where = json.dumps({"n": {"size_of": {"value": "t", "axis": 1}}})
    wanted = rule(tmp_path, "(t, n) => (y) { u = Neg (t) y = Expand (u, n) }", "(t, n) => (y) { y = Expand (t, n) }",
                  where, "    t: {dtype: float32, shape: [1], values: normal}\n"
                         "    n: {dtype: int64, shape: [1], values: ones}")  # fmt: skip
    body = "g (float[a,b] t) => (float[c,d] y) <int64[1] one = {{1}}, int64[1] two = {{2}}> {{ s = Shape{0} (t) {1} u = Neg (t) y = Expand (u, n) }}"
    good = [("", "n = Slice (s, one, two)"), ("", "n = Gather <axis = 0> (s, one)"), (" <start = 1>", "n = Identity (s)"),
            (" <start = 1, end = 2>", "q = Squeeze (s) n = Unsqueeze (q, zero)")]  # fmt: skip
    for shape, rest in good:
        graph = model(body.format(shape, rest).replace("two = {2}", "two = {2}, int64[1] zero = {0}"))
        assert len(list(Search(graph.graph, wanted, graph.opset_imports))) == 1, rest
    bad = [("", "n = Slice (s, zero, one)"), ("", "n = Gather <axis = 0> (s, zero)"), (" <start = 0, end = 1>", "n = Identity (s)"),
           ("", "q = Gather <axis = 0> (s, one) n = Add (q, one)"), ("", "n = Identity (one)")]  # fmt: skip
    for shape, rest in bad:
        graph = model(body.format(shape, rest).replace("two = {2}", "two = {2}, int64[1] zero = {0}"))
        looking = Search(graph.graph, wanted, graph.opset_imports)
        assert list(looking) == [], rest
        assert looking.nearest is not None
        assert "the size of axis 1 of t" in looking.nearest.reason


@pytest.mark.parametrize(
    ("argument", "alpha", "reason"),
    [
        ("1.0", "1.0", ""),
        ("1.0", "2.0", "attribute a is 2.0, not 1.0"),
        ("[1.0, 2.0]", "2.0", ""),
        ("{above: 0}", "0.5", ""),
        ("{above: 0}", "-0.5", "attribute a is -0.5, not above 0"),
        ("{at_most: 1, at_least: 0}", "1.5", "attribute a is 1.5, not at most 1"),
        ("{below: 1}", "1.0", "attribute a is 1.0, not below 1"),
    ],
)
def test_attribute(tmp_path: Path, argument: str, alpha: str, reason: str) -> None:
    text = "(x) => (y) { y = Elu <alpha: float = @a> (x) }"
    wanted = rule(tmp_path, text, text, f"{{a: {{attribute: {argument}}}}}", attributes="{a: [1.0]}")
    graph = model(f"g (float[2,3] x) => (float[2,3] y) {{ y = Elu <alpha = {alpha}> (x) }}")
    looking = Search(graph.graph, wanted, graph.opset_imports)
    assert len(list(looking)) == (0 if reason else 1)
    assert (looking.nearest.reason if looking.nearest else "") == reason


def test_schema_and_code_know_the_same_conditions() -> None:
    named = set(schema.load("rule")["$defs"]["conditions"]["properties"])
    assert named == set(CHECKS) | set(STRUCTURAL)
    tested = {case[0] for case in CASES} | {"size_of"}
    assert tested == set(CHECKS)


def test_every_property_of_the_schema_is_described_closed_and_has_an_example() -> None:
    def walk(part: Any, at: str) -> None:
        if not isinstance(part, dict):
            return
        for name, prop in part.get("properties", {}).items():
            if "$ref" not in prop:
                assert prop.get("description"), f"{at}.{name}"
                assert prop.get("examples"), f"{at}.{name}"
        if "properties" in part:
            assert "additionalProperties" in part, at
        for key, value in part.items():
            walk(value, f"{at}.{key}")

    walk(schema.load("rule"), "rule")


@pytest.mark.parametrize(("name", "fires"), [("batch", True), ("other", False), ("3", False)])
def test_size_of_takes_another_input_whose_axis_has_the_same_name(name: str, fires: bool) -> None:
    text = (Path(__file__).parent / "rules" / "mask-gather-by-arange" / "fires.txt").read_text()
    text = text.replace("(int64[batch,length] mask", f"(int64[{name},length] ids, int64[batch,length] mask")
    text = text.replace("end = 1> (mask)", "end = 1> (ids)")
    graph = model(text)
    assert (
        bool(list(Search(graph.graph, load_library()["mask-gather-by-arange"], graph.opset_imports))) is fires
    )
