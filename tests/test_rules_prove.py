"""Proofs: they must be able to fail, and for the right reason."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from engine.rules import samples, suite
from engine.rules.apply import apply_rule
from engine.rules.equal import compare
from engine.rules.language import Rule, Tolerance, load_rule
from engine.rules.library import path_of
from engine.rules.prove import application_prover, prove_rule
from tests.rules_tools import model, rule, rule_file

EXACT = Tolerance()


@pytest.mark.parametrize(
    ("match", "replace", "equal"),
    [
        ("(x) => (y) { a = Neg (x) y = Neg (a) }", "(x) => (y) { y = Identity (x) }", True),
        ("(x) => (y) { y = Abs (x) }", "(x) => (y) { n = Neg (x) y = Max (x, n) }", True),
        ("(x) => (y) { y = Abs (x) }", "(x) => (y) { y = Identity (x) }", False),
        ("(x) => (y) { y = Sub (x, x) }", "(x) => (y) { z = Constant <value_float = 0.0> () y = Mul (x, z) }", True),
        ("(x) => (y) { y = Sub (x, x) }",
         "(x) => (y) { z = Constant <value_float = 0.0> () s = Shape (x) y = Expand (z, s) }", False),
    ],
)  # fmt: skip
def test_edges_decide(tmp_path: Path, match: str, replace: str, equal: bool) -> None:
    """x - x is not 0: it is NaN for NaN and infinity, which only the corner values show."""
    proof = prove_rule(rule(tmp_path, match, replace))
    assert proof.equal is equal
    assert bool(proof.why) is not equal
    assert proof.runtimes


GUARD = """\
rule: some-rule
class: op
why: drops the guard without asking what reaches it
match: |
  (p, zero) => (y) { n = IsNaN (p)  y = Where (n, zero, p) }
where: {p: {from: Softmax}, zero: {constant: 0}}
replace: |
  (p, zero) => (y) { y = Identity (p) }
proof:
  context: |
    (scores, keep) => (p) {
      zero = Constant <value_float = 0.0> ()
      lowest = Constant <value_float = -inf> ()
      mask = Where (keep, zero, lowest)
      masked = Add (scores, mask)
      p = Softmax <axis = -1> (masked)
    }
  axes: {n: [2, 3]}
  inputs:
    scores: {dtype: float32, shape: [n, 4], values: normal}
    keep: {dtype: bool, shape: [n, 4], values: KEEP}
    zero: {dtype: float32, shape: [], values: {constant: 0}}
  equal: {max_abs: 0}
needed_by: {tensorrt-rtx: never}
"""


def test_fully_masked_rows_expose_the_missing_condition(tmp_path: Path) -> None:
    """Without such a row the wrong rule looks exact; with one it does not."""
    kind = load_rule(rule_file(tmp_path, GUARD.replace("KEEP", "ones")))
    assert prove_rule(kind).equal
    honest = load_rule(rule_file(tmp_path, GUARD.replace("KEEP", "masked_rows")))
    proof = prove_rule(honest)
    assert not proof.equal
    assert proof.why.startswith(
        "y[0][0] was 0.0 and became nan (4 of 8 differ), with scores = normal, keep = masked_rows"
    )


def test_the_shipped_guard_rule_reaches_fully_masked_rows() -> None:
    assert "masked_rows" in load_rule(path_of("drop-softmax-nan-guard")).proof.inputs["keep"].values


def test_nothing_compared_is_no_proof(tmp_path: Path) -> None:
    empty = rule(tmp_path, "(x) => (y) { y = Abs (x) }", "(x) => (y) { y = Relu (x) }",
                 inputs="    x: {dtype: float32, shape: [0, 3], values: normal}")  # fmt: skip
    proof = prove_rule(empty)
    assert (proof.equal, proof.why) == (False, "the proof compares no number")


def test_proof_that_its_own_condition_excludes(tmp_path: Path) -> None:
    wanted = rule(
        tmp_path, "(x) => (y) { y = Abs (x) }", "(x) => (y) { y = Abs (x) }", "{x: {from: Softmax}}"
    )
    why = prove_rule(wanted).why
    assert why.startswith(
        "the rule does not fire on its own proof (x type float32, opset 18): rule some-rule matches nothing"
    )
    assert "x comes from a graph input or constant, not from Softmax" in why


def test_type_that_never_runs(tmp_path: Path) -> None:
    wanted = rule(tmp_path, "(x) => (y) { y = Celu (x) }", "(x) => (y) { y = Elu (x) }",
                  inputs="    x: {dtype: [float32, float16], shape: [3], values: normal}")  # fmt: skip
    assert prove_rule(wanted).why.startswith("the proof never runs with x type float16: ")


def test_inputs_that_do_not_run(tmp_path: Path) -> None:
    wanted = rule(tmp_path, "(x, i) => (y) { y = Gather (x, i) }", "(x, i) => (y) { y = GatherElements (x, i) }",
                  inputs="    x: {dtype: float32, shape: [3], values: normal}\n"
                         "    i: {dtype: int64, shape: [2], values: {integers: [5, 9]}}")  # fmt: skip
    assert prove_rule(wanted).why.startswith(
        "the proof's own inputs do not run (x = normal, i = integers [5, 9]"
    )


def test_optional_inputs_are_proven_with_and_without(tmp_path: Path) -> None:
    given = "(x, w, b) => (y) { y = Conv (x, w, b) }"
    fed = "\n".join(f"    {n}: {{dtype: float32, shape: {s}, values: normal}}"
                    for n, s in (("x", "[1, 2, 4]"), ("w", "[3, 2, 1]"), ("b", "[3]")))  # fmt: skip
    turned = '(x, w, b) => (y) { n = Neg (x) m = Neg (n) y = Conv <auto_pad = "VALID"> (m, w, b) }'
    proof = prove_rule(rule(tmp_path, given, turned, "{b: {optional: true}}", fed))
    assert (proof.equal, proof.cases) == (True, 2)


@pytest.mark.parametrize(
    ("before", "after", "limit", "why"),
    [
        ([1.0, np.nan], [1.0, np.nan], EXACT, ""),
        ([np.inf], [np.inf], EXACT, ""),
        ([np.inf], [-np.inf], EXACT, "y[0] was inf and became -inf"),
        ([np.nan], [0.0], Tolerance(max_abs=1e9), "y[0] was nan and became 0.0"),
        ([0.0], [np.nan], Tolerance(max_abs=1e9), "y[0] was 0.0 and became nan"),
        ([np.inf], [3e38], Tolerance(max_abs=1e9, max_rel=1e9), "y[0] was inf and became"),
        ([1.0], [1.5], Tolerance(max_abs=0.5), ""),
        ([1.0], [1.5], Tolerance(max_abs=0.49), "y[0] was 1.0 and became 1.5 (1 of 1 differ)"),
        ([100.0], [101.0], Tolerance(max_rel=0.01), ""),
        ([1.0], [1.0 + 4 * 2**-23], Tolerance(max_eps=4), ""),
        ([1.0], [1.0 + 5 * 2**-23], Tolerance(max_eps=4), "y[0] was 1.0"),
        ([[1, 2]], [[1], [2]], EXACT, "y was float32[1, 2] and became float32[2, 1]"),
    ],
)
def test_comparison(before: object, after: object, limit: Tolerance, why: str) -> None:
    found = compare({"y": np.array(before, np.float32)}, {"y": np.array(after, np.float32)}, limit)
    assert found.why.startswith(why)
    assert bool(found.why) is bool(why)


def test_comparison_of_names_and_types() -> None:
    one = np.ones(2, np.float32)
    assert compare({"y": one}, {"z": one}, EXACT).why == "outputs ['y'] became ['z']"
    assert compare({"y": one}, {}, EXACT).why == "outputs ['y'] became []"
    assert (
        compare({"y": one}, {"y": one.astype(np.float64)}, EXACT).why
        == "y was float32[2] and became float64[2]"
    )
    whole = np.array([1, 2])
    assert compare({"y": whole}, {"y": whole + 1}, Tolerance(max_abs=5)).why.startswith(
        "y[0] was 1 and became 2"
    )


@pytest.mark.parametrize(
    "kind", ["edges", "huge", "normal", "probabilities", "booleans", "masked_rows", "zeros", "ones"]
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool"])
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 0), (4,), (2, 3, 5)])
def test_samples_have_type_and_shape_and_repeat(kind: str, dtype: str, shape: tuple[int, ...]) -> None:
    if kind == "huge" and dtype == "bool":
        return  # bool has no range
    made = [samples.make(kind, np.dtype(dtype), shape, np.random.default_rng(3)) for _ in range(2)]
    assert (made[0].shape, made[0].dtype) == (shape, np.dtype(dtype))
    np.testing.assert_array_equal(*made)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4])
def test_types_that_numpy_lacks(dtype: type) -> None:
    kind = np.dtype(dtype)
    made = [
        samples.make(name, kind, (8, 8), np.random.default_rng(0)).astype(float) for name in ("edges", "huge")
    ]
    for array in made:
        assert np.nanmax(array[np.isfinite(array)]) >= 7
    assert np.isnan(made[0]).any() == (dtype is not ml_dtypes.int4)


def test_spacing_of_bfloat16() -> None:
    one, near, far = (np.array([x], dtype=ml_dtypes.bfloat16) for x in (1.0, 1.0078125, 1.015625))
    limit = Tolerance(max_eps=1)
    assert compare({"y": one}, {"y": near}, limit).why == ""
    assert compare({"y": one}, {"y": far}, limit).why


def test_suite_has_arrays_of_every_type() -> None:
    (case,) = (case for case in suite.of_ops(["Cast"]) if case.name == "test_cast_FLOAT_to_INT4")
    assert case.inputs[0].dtype == np.float32
    assert case.outputs[0].dtype == ml_dtypes.int4


def test_samples_reach_the_corners() -> None:
    rng = np.random.default_rng(0)
    edges = samples.make("edges", np.dtype("float32"), (8, 8), rng)
    assert np.isnan(edges).any()
    assert {np.inf, -np.inf, 0.0, float(np.finfo(np.float32).max)} <= set(edges[~np.isnan(edges)].tolist())
    rows = samples.make("masked_rows", np.dtype("bool"), (3, 4), rng)
    assert (rows[0].any(), rows[1].all()) == (False, True)
    huge = samples.make("huge", np.dtype("float16"), (3, 4), rng)
    assert np.isfinite(huge).all()
    assert (huge[0] == -65504).all()
    np.testing.assert_allclose(
        samples.make("probabilities", np.dtype("float32"), (5, 7), rng).sum(-1), 1, rtol=1e-6
    )


def some(tmp_path: Path, replace: str) -> Rule:
    return rule(tmp_path, "(a, b) => (y) { p = Mul (a, b) y = Neg (p) }", replace)


def test_application_covers_given_sizes_and_says_what_was_too_large(tmp_path: Path) -> None:
    graph = model("g (float[n,m] a, float[n,m] b) => (float[n,m] y) { p = Mul (a, b) y = Neg (p) }")
    wanted = some(tmp_path, "(a, b) => (y) { n = Neg (a) y = Mul (n, b) }")
    done = apply_rule(graph, wanted, prover=application_prover({"n": (1, 4, 4000), "m": (2, 3, 5000)}))
    proof = done.accepted[0].proof
    assert proof is not None
    assert proof.skipped == ("a [4000, 5000], b [4000, 5000]",)
    assert proof.cases == 3 * 4, (
        "three sizes that fit (two in step, one crossed), two kinds of values, two pairings"
    )


def test_unknown_axes_are_filled_until_the_part_runs(tmp_path: Path) -> None:
    """A Reshape hides a size; only sizes that agree with the other input run."""
    graph = model("""g (float[n,3] x, float[n,3] b, int64[2] s) => (float[u,v] y) {
      a = Reshape (x, s) p = Mul (a, b) y = Neg (p) }""")  # fmt: skip
    wanted = some(tmp_path, "(a, b) => (y) { n = Neg (a) y = Mul (n, b) }")
    proof = apply_rule(graph, wanted, prover=application_prover({"n": (2, 5)})).accepted[0].proof
    assert proof is not None
    assert proof.numbers > 0


def test_same_layers_share_one_run(tmp_path: Path) -> None:
    graph = model("""g (float[n,3] a, float[n,3] b) => (float[n,3] y) {
      p = Mul (a, b) q = Neg (p) e = Exp (q) r = Mul (e, b) y = Neg (r) }""")  # fmt: skip
    wanted = some(tmp_path, "(a, b) => (y) { n = Neg (a) y = Mul (n, b) }")
    done = apply_rule(graph, wanted, prover=application_prover())
    assert len(done.accepted) == 2
    assert done.accepted[0].proof is done.accepted[1].proof


def test_unknown_type_is_no_proof(tmp_path: Path) -> None:
    graph = model(
        "g (float[n,3] a, float[n,3] b) => (float[n,3] y) { r = Relu (a) p = Mul (r, b) y = Neg (p) }"
    )
    graph.graph.node(0).outputs[0].type = None
    wanted = some(tmp_path, "(a, b) => (y) { n = Neg (a) y = Mul (n, b) }")
    with pytest.raises(Exception, match="the element type of a is unknown"):
        apply_rule(graph, wanted, prover=application_prover())


@pytest.mark.parametrize(
    "name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4", "int8", "float16"]
)
def test_corners_of_narrow_types_are_made(name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    for kind in (*samples.default_kinds(dtype), "huge"):
        made = samples.make(kind, dtype, (3, 40), np.random.default_rng(0))
        assert (made.dtype, made.shape) == (dtype, (3, 40))
    ends = ml_dtypes.iinfo(dtype) if "int" in name else ml_dtypes.finfo(dtype)
    numbers = made.astype(np.float64)  # the last made are the huge ones
    assert (numbers.min(), numbers.max()) == (float(ends.min), float(ends.max))


def test_roundings_are_those_of_the_narrow_type() -> None:
    one = {"y": np.array([1.0, 2.0], dtype=ml_dtypes.bfloat16)}
    two = {"y": np.array([1.0078125, 2.0], dtype=ml_dtypes.bfloat16)}
    assert compare(one, two, Tolerance(max_eps=1)).why == ""
    assert compare(one, two, Tolerance(max_eps=0.5)).why.startswith("y[0] was 1.0 and became 1.0078125")


def test_symbol_that_stands_for_a_known_size() -> None:
    """Shape inference calls the sizes of a Slice with computed ends unk__0 and so on."""
    graph = model("""\
        net (float[b,5] x, int64[b,7] i, float[unk__0,unk__1] u) => (float[b,5] y) {
          y = ScatterElements <axis = 1, reduction = "add"> (x, i, u)
        }""")
    scatter = load_rule(path_of("scatter-reduction-to-compare"))
    done = apply_rule(graph, scatter, prover=application_prover({"b": (1, 3)}))
    assert done.accepted[0].proof is not None
    assert done.accepted[0].proof.numbers > 0


@pytest.mark.parametrize(("far", "agrees"), [(1, True), (2, False)])
def test_quantised_numbers_may_be_steps_apart_where_the_rule_says_so(far: int, agrees: bool) -> None:
    one = {"y": np.array([-128, 0, 127 - far], np.int8)}
    two = {"y": np.array([-128 + far, 0, 127], np.int8)}
    assert (compare(one, two, Tolerance(max_abs=1)).why == "") == agrees
    assert (compare(two, one, Tolerance(max_abs=1)).why == "") == agrees
    assert compare(one, two, Tolerance(max_abs=0.5)).why
    ends = {"y": np.array([-128], np.int8)}, {"y": np.array([127], np.int8)}
    assert compare(*ends, Tolerance(max_abs=254)).why
    assert not compare(*ends, Tolerance(max_abs=255)).why
