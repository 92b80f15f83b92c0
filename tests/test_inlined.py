"""Local functions: put in the place of their calls without a name that clashes, and rules find what was in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from engine.errors import StepError
from engine.graph import filled, inlined, names, provenance
from engine.rules.apply import apply_rule
from engine.rules.language import load_rule
from engine.rules.library import path_of
from engine.rules.prove import application_prover
from tests.conftest import Cli
from tests.rules_tools import check

HEAD = '<ir_version: 10, opset_import: ["" : 18, "my" : 1]>\n'
FUNCTION = '<domain: "my", opset_import: ["" : {opset}]>\n'
CELU = (
    HEAD
    + """g (float[n,4] x, bool c) => (float[n,4] y) {
  a = my.outer <alpha = 0.5> (x)
  b = my.outer (a)
  y = If (c) <then_branch = t () => (float[n,4] ty) { ty = my.inner <alpha = 2.0> (b) },
              else_branch = e () => (float[n,4] ey) { ey = Identity (b) }>
}
"""
    + FUNCTION.format(opset=18)
    + "inner <alpha> (v) => (w) { w = Celu <alpha: float = @alpha> (v) }\n"
    + '<domain: "my", opset_import: ["" : 18, "my" : 1]>\n'
    + "outer <alpha: float = 1.0> (v) => (w) { t = my.inner <alpha: float = @alpha> (v) w = Neg (t) }"
)
CLASH = """g (float[2,4] x, bool c) => (float[2,4] y) {
  a = my.f (x)
  y = If (c) <then_branch = th () => (float[2,4] ty) { t = Exp (a) ty = Neg (t) },
              else_branch = el () => (float[2,4] ey) { ey = Identity (a) }>
}
"""
TWICE = "g (float[2,4] x, bool c) => (float[2,4] y) { a = my.f (x, c)  y = my.f (a, c) }\n"
LOOP = """f (v, c) => (w) {
  n = Constant <value_int = 3> ()
  w = Loop (n, c, v) <body = b (int64 i, bool k, float[2,4] s) => (bool k2, float[2,4] s2) {
    k2 = Identity (k)  s2 = Neg (s) }>
}"""
PASSED = "g (float[2,4] x, bool c) => (float[2,4] y, float[2,4] z) { y, z = my.f (x) }\n"


@pytest.mark.parametrize(
    ("graph", "function", "opset"),
    [(CLASH, "f (v) => (w) { t = Neg (v) w = Abs (t) }", 18),
     (TWICE, LOOP, 18),
     (PASSED, "f (v) => (v, w) { w = Abs (v) }", 18),
     (CLASH, "f (v) => (w) { w = Abs (v) }", 17)],
    ids=["a name of a later subgraph", "a subgraph twice", "an input passed through", "another opset"],
)  # fmt: skip
def test_inlined_it_is_valid_and_the_same(graph: str, function: str, opset: int) -> None:
    proto = onnx.parser.parse_model(HEAD + graph + FUNCTION.format(opset=opset) + function)
    feeds = {"x": np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4), "c": np.array(True)}
    wanted = ReferenceEvaluator(proto).run(None, feeds)
    model = ir.from_proto(proto)
    inlined.inline(model)
    names.name_nodes(model)
    assert not model.functions
    check(model)
    found = ir.to_proto(model)
    assert [item.name for item in found.graph.output] == [item.name for item in proto.graph.output]
    for one, two in zip(wanted, ReferenceEvaluator(found).run(None, feeds), strict=True):
        np.testing.assert_array_equal(one, two)


def test_what_cannot_be_inlined_says_why() -> None:
    proto = onnx.parser.parse_model(HEAD + CLASH + FUNCTION.format(opset=18) + "f (v) => (w) { w = my.f (v) }")
    proto.functions[0].opset_import.append(onnx.helper.make_opsetid("my", 1))
    with pytest.raises(StepError, match="a local function cannot be inlined: Cyclic dependency"):
        inlined.inline(ir.from_proto(proto))


def test_rules_find_what_is_in_functions_with_the_module_of_the_call() -> None:
    proto = onnx.parser.parse_model(CELU)
    for nth, node in enumerate(proto.graph.node):
        node.metadata_props.add(key=provenance.MODULE, value=f"net.{nth}")
    model = ir.from_proto(proto)
    inlined.inline(model)
    names.name_nodes(model)
    filled.fill(model)
    done = apply_rule(model, load_rule(path_of("celu-to-elementwise")), matches=3, prover=application_prover())
    assert [item.module for item in done.accepted] == ["net.0", "net.1", ""]
    assert all(item.proof is not None and item.proof.equal for item in done.accepted)
    assert "Celu" not in {node.op_type for node in model.graph.all_nodes()}
    check(model)


def test_a_recipe_applies_its_rules_inside_functions(cli: Callable[..., Cli], tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(CELU.replace("[n,4]", "[3,4]")), tmp_path / "model.onnx")
    (tmp_path / "recipe.yaml").write_text(
        "portwright: 1\nname: m\nmodel: {onnx: model.onnx}\n"
        "inputs:\n  x: {dtype: float32, shape: [3, 4]}\n  c: {dtype: bool, shape: [], values: ones}\n"
        "outputs: [y]\nrewrites: [{rule: celu-to-elementwise, matches: 3}]\n"
        "accept: {onnx: {max_abs: 1.0e-5}, engine: {max_abs: 2.0e-2}}\n"
    )
    done = cli("run", tmp_path, "--until", "rewrite")
    assert done.code == 0, done.text
    graph = onnx.load(tmp_path / "port" / "onnx" / "rewrite.onnx")
    assert not graph.functions
    assert graph.graph.node[-1].op_type == "If"
