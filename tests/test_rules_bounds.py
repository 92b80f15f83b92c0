"""Bounds from the graph alone: sound on what really comes out, and refused with the node that spoils them."""

# ruff: noqa: E501 (ONNX text reads best on one line)

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from engine.rules import bounds
from engine.rules.bound_rules import FREE, MOVES, RULES, SATURATING
from engine.rules.interval import Interval, UnboundedError
from tests.rules_tools import model, random_feeds, run

HEAD = "g (int64[n,4] i, bool[n,4] b) => (float[n,m] y) <float[4,3] w = {1,-2,3,4,5,-6,7,8,9,-1,0,2}, float[4] k = {1,2,3,4}, "
HEAD += "float two = {2}, float[4] gain = {2,1,1,1}, float[4] shift = {1,0,0,0}, int64[1] one = {1}, int64[2] s = {-1,2}> "
HEAD += "{ f = Cast <to = 1> (i) t = Tanh (f) "

BODIES = [
    "y = Add (t, k)", "y = Sub (t, k)", "y = Mul (t, k)", "y = Mul (t, t)", "y = Div (t, k)", "y = Neg (t)",
    "y = Abs (t)", "y = Exp (t)", "y = Relu (t)", "y = Pow (t, two)", "y = Erf (t)", "y = Sigmoid (t)",
    "a = Abs (t) y = Sqrt (a)", "a = Exp (t) y = Reciprocal (a)", "y = Softmax <axis = -1> (t)", "y = Sin (t)",
    "y = Cos (t)", "y = MatMul (t, w)", "a = Transpose (t) y = MatMul (t, a)", "y = Gemm (t, w)",
    "y = LayerNormalization <axis = -1> (t, gain, shift)", "y = ReduceMean <keepdims = 1> (t, one)",
    "y = ReduceSum <keepdims = 1> (t, one)", "y = Where (b, t, k)", "y = Concat <axis = 1> (t, f)",
    "y = Max (t, k)", "y = Min (t, k)", "y = Clip (t, two, two)", "y = Reshape (t, s)", "a = Shape (t) y = Cast <to = 1> (a)",
    "a = Not (b) y = Cast <to = 1> (a)", "y = ReduceMax <keepdims = 1> (t)", "y = Trilu (t)", "y = Gather <axis = 1> (t, one)",
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_nothing_lies_outside(body: str) -> None:
    text = HEAD + body + " }"
    if "y = Cast <to = 1> (a)" in body and "Shape" in body:
        text = text.replace("float[n,m] y", "float[2] y")
    graph = model(text)
    found = bounds.of(graph.graph.outputs[0])
    for seed in range(3):
        feeds = random_feeds(graph, {"n": 3}, seed)
        feeds["i"] = np.random.default_rng(seed).integers(-5, 6, size=(3, 4))
        out = run(graph, feeds)["y"]
        assert out.min() >= found.low
        assert out.max() <= found.high
        assert np.isfinite(found.size)


def test_every_operator_of_the_tables_is_exercised_or_moves_data() -> None:
    tried = {word for body in BODIES + [HEAD] for word in body.replace("(", " ").split()}
    tested_elsewhere = {"Gelu", "Range"}  # Gelu needs opset 20; Range makes integers
    assert set(RULES) - tried - tested_elsewhere == set()
    assert not set(RULES) & set(MOVES)
    assert not set(FREE) & set(SATURATING)


def test_bounds_are_those_of_the_operands() -> None:
    graph = model(HEAD + "y = Add (t, k) }")
    found = bounds.of(graph.graph.outputs[0])
    assert (found.low, found.high) == pytest.approx((1 - 1.001, 4 + 1.001), abs=1e-6)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("g (float[n] x) => (float[n] y) { y = Tanh (x) }", "depends on the input x (float32), which may hold NaN"),
        ("g (int64[n] x) => (float[n] y) { a = Cast <to = 1> (x) y = Exp (a) }", "Exp (node_Exp_1) may reach"),
        ("g (int64[n] x) => (float[n] y) { a = Cast <to = 1> (x) y = Div (a, a) }", "may divide by zero"),
        ("g (int64[n] x) => (float[n] y) { a = Cast <to = 1> (x) y = Sqrt (a) }", "may see a negative number"),
        ("g (int64[n] x) => (float[n] y) { a = Cast <to = 1> (x) y = Log (a) }", "nothing is known about Log"),
        ("g (int64[n] x) => (float16[n] y) { y = Cast <to = 10> (x) }", "beyond float16"),
        ("g (bool[n] b) => (float[n] y) { z = Constant <value_float = 0.0> () i = Constant <value_float = -inf> () "
         "y = Where (b, z, i) }", "the constant i holds NaN or infinity"),
        ("g (int64[n] x) => (float[n] y) { a = Cast <to = 1> (x) b = Mul (a, a) c = Mul (b, b) d = Mul (c, c) "
         "y = Mul (d, d) }", "beyond float32"),
        ("g (int64[n,m] x) => (float[n,m] y) <float[1] g = {1}> { a = Cast <to = 1> (x) "
         "y = LayerNormalization (a, g) }", "over a dynamic axis"),
        ("g (int64[n,2] x) => (float[n,2] y) <float[2] g = {1,1}> { a = Cast <to = 1> (x) "
         "b = Mul (a, a) y = LayerNormalization (b, g) }", "the squares in LayerNormalization"),
    ],
)  # fmt: skip
def test_says_what_spoils_it(text: str, reason: str) -> None:
    graph = model(text)
    with pytest.raises(UnboundedError) as caught:
        bounds.of(graph.graph.outputs[0])
    assert reason in str(caught.value)


def test_integers_wrap_and_stay_finite() -> None:
    graph = model("g (int64[n] x) => (float[n] y) { a = Mul (x, x) b = Mul (a, a) y = Cast <to = 1> (b) }")
    assert bounds.of(graph.graph.outputs[0]) == Interval(-(2.0**63), 2.0**63)


def test_adding_the_lowest_float_rounds_as_the_machine_does() -> None:
    """-3.4e38 - 30 is -3.4e38 again, not -inf: the reason why an exporter's mask is harmless."""
    graph = model("""g (int64[n] x, bool[n] keep) => (float[n] y) <float c = {-3.4028234663852886e38}, float z = {0}> {
      a = Cast <to = 1> (x) t = Tanh (a) m = Where (keep, z, c) y = Add (t, m) }""")  # fmt: skip
    assert bounds.of(graph.graph.outputs[0]).low == float(np.finfo(np.float32).min)


def test_deep_graphs_do_not_recurse() -> None:
    nodes = " ".join(f"a{i + 1} = Neg (a{i})" for i in range(3000))
    graph = model(f"g (int64[n] x) => (float[n] a3000) {{ a0 = Cast <to = 1> (x) {nodes} }}")
    assert isinstance(bounds.of(graph.graph.outputs[0]), Interval)
    assert isinstance(graph.graph.outputs[0], ir.Value)
