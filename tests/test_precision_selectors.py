"""Selectors: what they take, and what is said when they take nothing or disagree."""

from __future__ import annotations

import onnx.parser
import onnx_ir as ir
import pytest

from engine.errors import Exit, StepError
from engine.graph.provenance import MODULE
from engine.precision.selectors import matches_module, resolve
from engine.recipe import Override

ENCODER = """
<ir_version: 10, opset_import: ["": 18]>
g (float[n, 4] x, int64[1] k) => (float[n, 4] y, int64[1] size)
<float[4, 4] w = {0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}, float[4] b = {0,0,0,0}>
{
  [ids] twice = Add (k, k)
  [mm_0] h0 = MatMul (x, w)
  [add_0] a0 = Add (h0, b)
  [ln_0] l0 = LayerNormalization (a0, b)
  [mm_1] h1 = MatMul (l0, w)
  [add_1] a1 = Add (h1, b)
  [ln_1] y = LayerNormalization (a1, b)
  [count] size = Add (twice, k)
}
"""
MODULES = {
    "ids": "pos",
    "mm_0": "encoder.layer.0.dense",
    "add_0": "encoder.layer.0.dense",
    "ln_0": "encoder.layer.0.LayerNorm",
    "mm_1": "encoder.layer.1.dense",
    "add_1": "encoder.layer.1.dense",
    "ln_1": "encoder.layer.1.LayerNorm",
    "count": "",
}


def encoder() -> ir.Model:
    model = ir.from_proto(onnx.parser.parse_model(ENCODER))
    for node in model.graph:
        node.metadata_props[MODULE] = MODULES[node.name]
    return model


def override(type: str = "fp32", **keys: object) -> Override:
    return Override(type=type, because="test", **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("encoder", "encoder", True),
        ("encoder", "encoder.layer.0", True),
        ("encoder.layer.1", "encoder.layer.10", False),
        ("encoder.layer.*", "encoder.layer.3.dense", True),
        ("encoder.*.dense", "encoder.layer.0.dense", False),
        ("encoder.*.*.dense", "encoder.layer.0.dense", True),
        ("encoder.**.dense", "encoder.layer.0.dense.inner", True),
        ("**.LayerNorm", "LayerNorm", True),
        ("**.LayerNorm", "encoder.layer.0.LayerNorm", True),
        ("**", "", True),
        ("encoder.layer.[01]", "encoder.layer.1.dense", True),
        ("dense", "encoder.layer.0.dense", False),
        ("encoder", "", False),
        ("encoder.lay*", "encoder.layer.0", True),
    ],
)
def test_module_patterns(pattern: str, path: str, expected: bool) -> None:
    assert matches_module(pattern, path) is expected


@pytest.mark.parametrize(
    ("keys", "taken"),
    [
        ({"module": "encoder.layer.0"}, ("mm_0", "add_0", "ln_0")),
        ({"module": "encoder.layer.*.dense"}, ("mm_0", "add_0", "mm_1", "add_1")),
        ({"op": "LayerNormalization"}, ("ln_0", "ln_1")),
        ({"op": "LayerNormalization", "nth": 1}, ("ln_1",)),
        ({"node": "mm_*"}, ("mm_0", "mm_1")),
        ({"module": "encoder.layer.1", "op": "Add"}, ("add_1",)),
        ({"module": "encoder", "node": "*_1", "nth": 0}, ("mm_1",)),
        ({"op": "Add"}, ("add_0", "add_1")),  # the integer ones cannot have a float type
    ],
)
def test_takes(keys: dict[str, object], taken: tuple[str, ...]) -> None:
    assignment = resolve(encoder(), "fp16", [override(**keys)])
    assert assignment.taken == (taken,)
    assert {name for name, kind in assignment.types.items() if kind == "fp32"} == set(taken)
    assert "ids" not in assignment.types


@pytest.mark.parametrize(
    ("keys", "symptom", "fix"),
    [
        (
            {"module": "encoder.layer.0.dens"},
            "module: encoder.layer.0.dens matches no node: there is no module encoder.layer.0.dens, "
            "only 1 whose names begin with it",
            "write the whole part, for example encoder.layer.0.dense, or encoder.layer.0.dens*",
        ),
        (
            {"module": "encoder.layer.0.dnese"},
            "module: encoder.layer.0.dnese matches no node: there is a module encoder.layer.0, "
            "but no dnese in it",
            "did you mean dense?",
        ),
        (
            {"module": "decoder"},
            "module: decoder matches no node: there is no module decoder",
            "did you mean encoder or encoder.layer or encoder.layer.1?",
        ),
        (
            {"op": "LayerNorm"},
            "op: LayerNorm matches no node: no LayerNorm in the graph",
            "did you mean LayerNormalization?",
        ),
        (
            {"op": "Conv"},
            "op: Conv matches no node: no Conv in the graph",
            "ops here: Add, LayerNormalization, MatMul",
        ),
        (
            {"node": "mm0"},
            "node: mm0 matches no node: no node is called 'mm0'",
            "did you mean mm_0 or mm_1?",
        ),
        (
            {"module": "encoder.layer.0.LayerNorm", "op": "MatMul"},
            "module: encoder.layer.0.LayerNorm, op: MatMul matches no node: "
            "each key matches some, no node has all of them",
            "ops in encoder.layer.0.LayerNorm: LayerNormalization",
        ),
        (
            {"op": "MatMul", "nth": 2},
            "op: MatMul, nth: 2 is past the end: 2 nodes match the rest",
            "nth counts from 0 to 1: 0 is 'mm_0'",
        ),
        (
            {"node": "ids"},
            "node: ids matches 1 node(s), none of which works on floats",
            "'ids' (Add) works on integers; name the layer that computes",
        ),
        ({}, " matches no node: it names none of module, op, node", "say at least one of them"),
    ],
)
def test_takes_nothing(keys: dict[str, object], symptom: str, fix: str) -> None:
    with pytest.raises(StepError) as caught:
        resolve(encoder(), "fp16", [override(op="MatMul"), override(**keys)])
    failure = caught.value.failure
    assert (failure.symptom, failure.fix) == (symptom, fix)
    assert (failure.where, failure.usage) == ("precision.overrides[1]", True)
    assert caught.value.exit_code == Exit.USAGE


def test_two_of_one_way_that_disagree() -> None:
    with pytest.raises(StepError) as caught:
        resolve(
            encoder(),
            "fp16",
            [override(module="encoder.layer.1"), override("bf16", module="encoder.*.*.dense"), override(op="Sub")],
        )
    failure = caught.value.failure
    assert failure.symptom == "op: Sub matches no node: no Sub in the graph"
    assert "precision.overrides[0] (module: encoder.layer.1) says fp32 and precision.overrides[1] (module: " in (
        failure.evidence  # every problem is told at once
    )
    assert "says bf16 for node 'mm_1' and 1 more" in failure.evidence
    assert failure.usage


def test_the_later_of_two_ways_wins() -> None:
    narrow_then_wide = [override("bf16", module="encoder.layer.1"), override("fp32", op="MatMul")]
    assignment = resolve(encoder(), "fp16", narrow_then_wide)
    assert assignment.types["mm_1"] == "fp32"
    assert assignment.types["ln_1"] == "bf16"
    assert assignment.taken == (("add_1", "ln_1"), ("mm_0", "mm_1"))
    assert resolve(encoder(), "fp16", narrow_then_wide[::-1]).types["mm_1"] == "bf16"


def test_one_that_decides_nothing_is_an_error() -> None:
    with pytest.raises(StepError) as caught:
        resolve(encoder(), "fp16", [override(op="MatMul"), override("bf16", module="encoder")])
    failure = caught.value.failure
    assert failure.symptom == "op: MatMul decides nothing: later overrides give all its nodes another type"
    assert (failure.where, failure.usage) == ("precision.overrides[0]", True)


def test_two_that_agree() -> None:
    assignment = resolve(encoder(), "fp16", [override(module="encoder.layer.1"), override(op="MatMul")])
    assert assignment.pinned == {"mm_1": 0, "add_1": 0, "ln_1": 0, "mm_0": 1}


def test_without_modules_says_so() -> None:
    model = encoder()
    for node in model.graph:
        node.metadata_props.clear()
    with pytest.raises(StepError, match="no node knows its module"):
        resolve(model, "fp16", [override(module="encoder")])


def test_nodes_without_or_with_equal_names_are_named() -> None:
    text = ENCODER.replace("[mm_1]", "[mm_0]").replace("[add_1]", "")
    model = ir.from_proto(onnx.parser.parse_model(text))
    assignment = resolve(model, "fp16", [override(op="MatMul"), override(node="mm_0_2")])
    assert assignment.taken == (("mm_0", "mm_0_2"), ("mm_0_2",))
    names = [node.name for node in model.graph]
    assert len(set(names)) == len(names)
    assert all(names)


def test_local_functions_are_refused() -> None:
    model = ir.from_proto(
        onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 18, "local": 1]>
        g (float[2] x) => (float[2] y) { y = local.twice (x) }
        <domain: "local", opset_import: ["": 18]>
        twice (a) => (b) { b = Add (a, a) }
        """)
    )
    with pytest.raises(StepError, match=r"model-local functions \(twice\)"):
        resolve(model, "fp16")
