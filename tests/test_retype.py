"""Integer types that TensorRT lacks, computed in wider ones: the numbers stay, overflow included."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import StepError
from engine.graph import provenance, retype
from engine.graph.integer_types import WIDER, Type
from engine.rules import library, suite
from engine.rules.apply import RuleRefusedError, apply_rule
from engine.rules.evaluate import Evaluator
from engine.rules.language import load_rule
from engine.rules.prove import application_prover, prove_rule
from tests.rules_tools import check, model, ops, run

BOUNDARY = {Type.INT16, Type.UINT16, Type.UINT32}
NUMPY = {"uint8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64"}
OPS = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Greater", "LessOrEqual", "Equal", "BitwiseAnd", "BitwiseXor",
       "BitwiseOr", "BitwiseNot")  # fmt: skip


def widened(text: str, opset: int = 18) -> tuple[ir.Model, ir.Model, retype.Retyped]:
    before, after = model(text, opset), model(text, opset)
    done = retype.widen(after, BOUNDARY)
    assert done is not None
    check(after)
    return before, after, done


def same(before: ir.Model, after: ir.Model, feeds: dict[str, np.ndarray]) -> None:
    """Equal by value; inputs go in as the types that the graph has now."""
    kinds = {value.name: value.dtype.numpy() for value in after.graph.inputs if value.dtype is not None}
    first = run(before, feeds)
    second = run(after, {name: array.astype(kinds[name]) for name, array in feeds.items()})
    for name, wanted in first.items():
        np.testing.assert_array_equal(second[name].astype(wanted.dtype), wanted)
        if second[name].dtype.kind in "iu" and wanted.dtype.kind in "iu":
            np.testing.assert_array_equal(second[name].astype(np.int64), wanted.astype(np.int64))


CASES = [
    case
    for case in suite.of_ops(OPS)
    if any(
        value.type.tensor_type.elem_type in {int(kind) for kind in WIDER} for value in case.model.graph.input
    )
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_models_of_the_suite_give_their_outputs(case: suite.Case) -> None:
    after = ir.from_proto(onnx.shape_inference.infer_shapes(case.model))
    for index, node in enumerate(after.graph):
        node.name = f"node_{index}"
    assert retype.widen(after, BOUNDARY) is not None
    check(after)
    kinds = {value.name: value.dtype.numpy() for value in after.graph.inputs if value.dtype is not None}
    found = Evaluator(after)({name: array.astype(kinds[name]) for name, array in case.feeds().items()})
    for got, wanted in zip(found.values(), case.outputs, strict=True):
        np.testing.assert_array_equal(got.astype(np.float64), wanted.astype(np.float64))
    narrow = {value.dtype for node in after.graph for value in node.outputs if not value.is_graph_output()}
    assert not narrow & set(WIDER)


def test_there_are_models_of_every_type() -> None:
    names = " ".join(case.name for case in CASES)
    assert all(kind in names for kind in ("uint8", "uint16", "uint32", "int16"))


@given(
    kind=st.sampled_from(["uint8", "int16", "uint16", "uint32"]),
    op=st.sampled_from(["Add", "Sub", "Mul"]),
    seed=st.integers(0, 1000),
)
def test_overflow_wraps_as_it_did(kind: str, op: str, seed: int) -> None:
    before, after, done = widened(
        f"g ({kind}[8] a, {kind}[8] b) => ({kind}[8] y) {{ t = {op} (a, b)  y = {op} (t, b) }}"
    )
    assert done.wrapped == 2
    limits = np.iinfo(kind)
    rng = np.random.default_rng(seed)
    edges = np.array([limits.min, limits.max, 0, 1, limits.max - 1, 2], dtype=kind)
    feeds = {name: rng.choice(edges, 8) for name in ("a", "b")}
    same(before, after, feeds)


def test_what_the_boundary_may_keep_it_keeps() -> None:
    before, after, done = widened(
        "g (uint8[4] a, uint16[4] b) => (uint8[4] y, uint16[4] z) { y = Add (a, a)  z = Add (b, b) }"
    )
    assert done.inputs == {"b": ("uint16", "int32")}
    assert done.outputs == {"z": ("uint16", "int32")}
    assert [value.dtype for value in after.graph.inputs] == [Type.UINT8, Type.INT32]
    assert [(value.name, value.dtype) for value in after.graph.outputs] == [
        ("y", Type.UINT8),
        ("z", Type.INT32),
    ]
    same(
        before,
        after,
        {"a": np.array([0, 200, 255, 7], "uint8"), "b": np.array([0, 40000, 65535, 7], "uint16")},
    )


def test_an_input_that_is_an_output_as_well_stays_both() -> None:
    text = "g (uint8[4] a, uint8[4] b) => (uint8[4] a, uint8[4] y) { y = Add (a, b) }"
    before, after, done = widened(text)
    assert (done.inputs, done.outputs) == ({}, {})
    assert [value.name for value in after.graph.inputs] == ["a", "b"]
    assert [value.name for value in after.graph.outputs] == ["a", "y"]
    same(before, after, {name: np.array([0, 200, 255, 7], "uint8") for name in "ab"})


def test_an_image_that_is_only_cast_stays_as_it_is() -> None:
    before, after, done = widened("""
    g (uint8[4] image, uint16[4] other) => (float[4] y) {
      x = Cast <to = 1> (image)
      z = Cast <to = 1> (other)
      y = Add (x, z)
    }
    """)
    assert ops(after) == ["Cast", "Cast", "Add"]
    assert done.inputs == {"other": ("uint16", "int32")}
    same(
        before,
        after,
        {"image": np.array([0, 1, 128, 255], "uint8"), "other": np.array([0, 1, 2, 65535], "uint16")},
    )


def test_casts_into_a_narrow_type_wrap_where_they_can_leave_it() -> None:
    before, after, done = widened("""
    g (int64[5] a, bool[5] b) => (int64[5] y, int64[5] z) {
      t = Cast <to = 2> (a)
      u = Cast <to = 2> (b)
      y = Cast <to = 7> (t)
      z = Cast <to = 7> (u)
    }
    """)
    assert done.wrapped == 1
    same(before, after, {"a": np.array([0, 255, 256, -1, 1000]), "b": np.array([1, 0, 1, 1, 0], bool)})


def test_constants_and_subgraphs_are_widened_too() -> None:
    before, after, _ = widened("""
    g (uint16[3] a, bool c) => (uint16[3] y)
    <uint16[3] w = {65535, 1, 2}>
    {
      k = Constant <value = uint16 {3}> ()
      y = If (c) <
        then_branch = t () => (uint16[3] p) { p = Mul (a, w) },
        else_branch = e () => (uint16[3] q) { q = Mul (a, k) }
      >
    }
    """)
    for flag in (True, False):
        same(before, after, {"a": np.array([65535, 2, 40000], "uint16"), "c": np.array(flag)})


def test_an_operator_without_the_wider_type_stays_between_casts() -> None:
    before, after, done = widened("""
    g (uint8[2,3] a, uint8[3,2] b) => (int32[2,2] y, uint8[2,3] z) {
      s = Add (a, a)
      y = MatMulInteger (s, b)
      z = Add (s, a)
    }
    """)
    assert done.kept == 1
    integer = next(node for node in after.graph if node.op_type == "MatMulInteger")
    assert [value.dtype for value in integer.inputs if value is not None] == [Type.UINT8, Type.UINT8]
    rng = np.random.default_rng(0)
    same(
        before,
        after,
        {"a": rng.integers(0, 256, (2, 3), "uint8"), "b": rng.integers(0, 256, (3, 2), "uint8")},
    )


def test_a_graph_without_such_types_is_left_alone() -> None:
    graph = model("g (float[2] x) => (float[2] y) { y = Relu (x) }")
    assert retype.widen(graph, BOUNDARY) is None


def test_uint64_has_no_wider_type() -> None:
    graph = model("g (uint64[2] a, uint64[2] b) => (bool[2] y) { y = Greater (a, b) }")
    assert retype.widen(graph, {*BOUNDARY, Type.UINT64}) is None
    assert graph.graph.inputs[0].dtype == Type.UINT64


def test_what_need_not_wrap_in_the_wider_type_is_left_alone() -> None:
    """ONNX Runtime's ReduceProd of int32 stops at the ends of the type."""
    graph = model("g (uint32[3] a) => (uint32[1] y) { y = ReduceProd <keepdims = 1> (a) }")
    assert retype.widen(graph, BOUNDARY) is None


# ---- the rule --------------------------------------------------------------------------------------------

RULE = load_rule(library.path_of("widen-integers"))
TWO = """g (uint8[n, 4] a, uint8[4] b) => (uint8[n, 4] y, float[n, 4] z) {
    s = Add (a, b)
    y = Mul (s, a)
    z = Cast <to = 1> (s)
}"""
STAYING = """g (uint8[2,3] a, uint8[3,2] b) => (int32[2,2] y) {
    s = Add (a, a)
    y = MatMulInteger (s, b)
}"""


def test_the_library_says_which_types_there_are() -> None:
    wider = {narrow.name.lower(): wide.name.lower() for narrow, wide in WIDER.items()}
    assert RULE.types == wider
    assert library.for_types() == ("widen-integers",)


def test_each_operator_in_the_wider_type_is_a_match() -> None:
    graph = model(TWO)
    for node in graph.graph:
        node.metadata_props[provenance.MODULE] = f"of.{node.name}"
    done = apply_rule(graph, RULE, matches=2, prover=application_prover({"n": (1, 3)}))
    check(graph)
    assert [(one.node, one.module) for one in done.accepted] == [
        ("node_Add_0", "of.node_Add_0"),
        ("node_Mul_1", "of.node_Mul_1"),
    ]
    assert [one.proof is not None for one in done.accepted] == [True, False]
    made = {node.name: node for node in graph.graph if provenance.RULE in node.metadata_props}
    assert sorted(made) == sorted(name for one in done.accepted for name in one.added)
    for one in done.accepted:
        assert one.added
        assert {made[name].metadata_props[provenance.MODULE] for name in one.added} == {one.module}
    with pytest.raises(StepError, match="applied 2 times, not 1"):
        apply_rule(model(TWO), RULE, matches=1, prover=application_prover({"n": (1, 3)}))


def test_what_stays_is_told() -> None:
    done = apply_rule(model(STAYING), RULE, prover=application_prover())
    assert len(done.accepted) == 1
    [refused] = done.refused
    assert (refused.node, refused.why) == (
        "node_MatMulInteger_1",
        "what MatMulInteger gives may depend on the width of the type",
    )


def test_a_wrong_widening_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing wraps any more: the proof must reach an overflow, and the graph must be as it was."""
    graph = model(TWO)
    before = ir.to_proto(graph).SerializeToString()
    monkeypatch.setattr(retype, "WRAPS", frozenset())
    with pytest.raises(RuleRefusedError, match=r"not proven equal: z.* was .* and became .* differ"):
        apply_rule(graph, RULE, prover=application_prover({"n": (1, 3)}))
    assert ir.to_proto(graph).SerializeToString() == before
    assert "the proof" in prove_rule(RULE).why or "became" in prove_rule(RULE).why


CHAIN = st.lists(
    st.sampled_from(["Add", "Sub", "Mul", "Max", "Min", "Neg", "Abs", "Transpose", "Concat"]), min_size=1, max_size=5
)  # fmt: skip


@given(kind=st.sampled_from(["uint8", "int16", "uint16", "uint32"]), chain=CHAIN, seed=st.integers(0, 1000))
def test_random_chains_are_proven_and_equal(kind: str, chain: list[str], seed: int) -> None:
    lines, last = [], "a"
    for index, op in enumerate(chain):
        if op in ("Neg", "Abs") and kind != "int16":
            op = "Add"
        given_to = last if op in ("Neg", "Abs") else f"{last}, b"
        call = {
            "Transpose": f"Transpose <perm = [1, 0]> ({last})",
            "Concat": f"Concat <axis = 0> ({last}, {last})",
        }
        lines.append(f"t{index} = {call.get(op, f'{op} ({given_to})')}")
        last = f"t{index}"
    body = "  ".join(lines)
    text = f"g ({kind}[1, 1] a, {kind}[1] b) => ({kind}[r, c] y) {{ {body}  y = Max ({last}, b) }}"
    before, after = model(text), model(text)
    done = apply_rule(after, RULE, prover=application_prover())
    assert done.accepted
    check(after)
    rng, limits = np.random.default_rng(seed), np.iinfo(kind)
    feeds = {name: rng.integers(limits.min, limits.max, shape, kind, endpoint=True)
             for name, shape in (("a", (1, 1)), ("b", (1,)))}  # fmt: skip
    same(before, after, feeds)
