"""``rewrites: auto`` in a recipe, and ``run --write-rewrites`` that turns it into lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
import yaml

from engine import auto_rules, document, intake
from engine.diff import compare, words
from engine.errors import RecipeError
from tests.conftest import Cli, dedent, record_of
from tests.test_worker import needs_rtx

DFT = """<ir_version: 10, opset_import: ["" : 18]> g (float[batch, 8, 1] x) => (float[batch, 8, 2] y) {
    a = Neg (x) y = DFT <axis = 1> (a) }"""
RECIPE = """
    portwright: 1
    name: toy
    model: {onnx: m.onnx}
    axes:
      batch: {min: 1, opt: 4, max: 16}
    inputs:
      x: {dtype: float32, shape: [batch, 8, 1]}
    outputs: [y]
    rewrites: auto  # a first draft
    precision: {base: fp32}
    # limits of the customer
    accept:
      onnx: {max_abs: 1.0e-4}
      engine: {max_abs: 1.0e-3}
"""


def folder(tmp_path: Path, *edit: tuple[str, str], graph: str = DFT) -> Path:
    made = tmp_path / "toy"
    made.mkdir(exist_ok=True)
    text = dedent(RECIPE)
    for old, new in edit:
        assert old in text, old
        text = text.replace(old, new)
    (made / "recipe.yaml").write_text(text)
    onnx.save(onnx.parser.parse_model(graph), made / "m.onnx")
    return made


@needs_rtx
def test_auto_then_lines_then_the_same_graph(tmp_path: Path, cli: Callable[..., Cli]) -> None:
    toy = folder(tmp_path)
    done = cli("run", toy, "--until", "rewrite", "--write-rewrites")
    assert "recipe.yaml: rewrites: auto became 1 rule; run it again for its lock\n" in done.out, done.text
    assert (toy / "recipe.yaml").read_text() == dedent(RECIPE).replace(
        "rewrites: auto  # a first draft\n",
        "rewrites:  # a first draft\n  - {rule: dft-to-matmul, matches: 1}\n",
    )
    first = onnx.load(toy / "port" / "onnx" / "rewrite.onnx")
    [step] = [one for one in record_of(toy)["results"] if one["step"] == "rewrite"]
    [applied] = step["facts"]["applied"]
    assert (applied["rule"], applied["count"]) == ("dft-to-matmul", 1)
    assert applied["because"] == "chosen automatically: TensorRT-RTX 1.7.1 refuses the nodes without it"
    assert step["facts"]["auto"]["remains"] == []
    idea = "Over a length that is fixed in the graph the transform is one product with a constant matrix"
    [chosen] = [issue for issue in step["issues"] if issue["disposition"] == "fixed"]
    assert chosen["cause"] == "TensorRT-RTX 1.7.1 has no DFT"
    assert chosen["fix"].startswith(f"rule dft-to-matmul, chosen automatically (rewrites: auto): {idea} of ")
    report = (toy / "PORT_REPORT.md").read_text()
    assert "rules chosen for TensorRT-RTX 1.7.1; 2 nodes became " in report
    again = cli("run", toy, "--until", "rewrite")
    assert "rewrites: auto" not in again.text
    report = (toy / "PORT_REPORT.md").read_text()
    assert f"| TensorRT-RTX 1.7.1 has no DFT | dft-to-matmul: {idea} of " in report
    second = onnx.load(toy / "port" / "onnx" / "rewrite.onnx")
    assert [node.op_type for node in second.graph.node] == [node.op_type for node in first.graph.node]
    assert "DFT" not in [node.op_type for node in second.graph.node]


@needs_rtx
def test_nothing_to_mend_and_nothing_that_mends(tmp_path: Path, cli: Callable[..., Cli]) -> None:
    toy = folder(tmp_path, graph=DFT.replace("y = DFT <axis = 1> (a)", "y = Concat <axis = 2> (a, x)"))
    done = cli("run", toy, "--until", "rewrite", "--write-rewrites")
    assert "rewrites: auto became 0 rules" in done.out, done.text
    assert "rewrites: []  # a first draft\n" in (toy / "recipe.yaml").read_text()
    odd = """<ir_version: 10, opset_import: ["" : 18]>
        g (float[batch, 8, 1] x) => (float[batch, 1, 8] y)
        <int64[2] axes = {1, 2}, int64[6] pads = {0, 0, 0, 0, 1, 1}> {
            a = Transpose <perm = [0, 2, 1]> (x)  s = MatMul (x, a)  p = Pad (s, pads) d = Det (p)
            e = Unsqueeze (d, axes) y = Mul (a, e) }"""
    toy = folder(tmp_path, graph=odd)
    cli("run", toy, "--until", "rewrite")
    [step] = [one for one in record_of(toy)["results"] if one["step"] == "rewrite"]
    [left] = [issue for issue in step["issues"] if issue["disposition"] == "open"]
    assert "has no importer for op Det" in left["symptom"]
    assert step["facts"]["applied"] == []


def test_without_a_toolchain_auto_says_so_at_its_line(tmp_path: Path, cli: Callable[..., Cli]) -> None:
    toy = folder(tmp_path, ("precision:", "build: {toolchain: tensorrt==9.9.9}\nprecision:"))
    done = cli("run", toy, "--until", "rewrite")
    assert done.code == 2, done.text
    assert "tensorrt==9.9.9" in done.err


def test_write_rewrites_needs_auto_in_the_recipe_itself(tmp_path: Path, cli: Callable[..., Cli]) -> None:
    toy = folder(tmp_path, ("rewrites: auto  # a first draft\n", ""))
    done = cli("run", toy, "--write-rewrites")
    assert (done.code, done.err.splitlines()[0]) == (
        2,
        "--write-rewrites: the recipe does not say rewrites: auto",
    )
    folder(tmp_path)
    (toy / "own.yaml").write_text("extends: recipe.yaml\nname: own\n")
    done = cli("run", toy / "own.yaml", "--write-rewrites")
    assert done.code == 2
    assert "recipe.yaml:9:11: --write-rewrites: rewrites: auto stands in" in done.err
    assert cli("run", toy, "--write-rewrites", "--locked").code == 2


LINES = [{"rule": "a", "matches": 2}, {"rule": "b", "matches": 1}]


@pytest.mark.parametrize(
    ("text", "lines", "after"),
    [
        ("a: 1\nrewrites: auto\nz: 2\n", LINES,
         "a: 1\nrewrites:\n  - {rule: a, matches: 2}\n  - {rule: b, matches: 1}\nz: 2\n"),
        ("rewrites:   'auto'   # why\n# below\n", LINES[:1], "rewrites:  # why\n  - {rule: a, matches: 2}\n# below\n"),
        ("rewrites: auto", LINES[:1], "rewrites:\n  - {rule: a, matches: 2}\n"),
        ("rewrites: auto\r\nz: 2\r\n", LINES[:1], "rewrites:\r\n  - {rule: a, matches: 2}\r\nz: 2\r\n"),
        ("rewrites: auto # why\nz: 2\n", [], "rewrites: [] # why\nz: 2\n"),
        ("{a: 1, rewrites: auto, z: 2}\n", LINES[:1], "{a: 1, rewrites: [{rule: a, matches: 2}], z: 2}\n"),
        ("rewrites:\n  auto  # why\nz: 2\n", LINES[:1], "rewrites:\n  [{rule: a, matches: 2}]  # why\nz: 2\n"),
    ],
)  # fmt: skip
def test_lines_take_the_place_of_the_word(text: str, lines: list[Any], after: str) -> None:
    assert auto_rules.rewritten(text, lines) == after
    assert yaml.safe_load(after)["rewrites"] == lines
    assert document.parse(after).data["rewrites"] == lines


def test_auto_is_the_only_word(tmp_path: Path) -> None:
    toy = folder(tmp_path, ("rewrites: auto", "rewrites: automatic"))
    with pytest.raises(RecipeError, match="'automatic' is not one of: auto"):
        intake.make_plan(toy)


def test_the_digest_is_that_of_the_library(tmp_path: Path) -> None:
    _, auto = intake.make_plan(folder(tmp_path))
    _, none = intake.make_plan(folder(tmp_path, ("rewrites: auto  # a first draft\n", "")))
    assert len(auto.library) == 64
    assert none.library == ""
    assert auto.digest != none.digest


def test_diff_says_which_rules_took_its_place(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old = folder(tmp_path / "old")
    new = folder(tmp_path / "new", ("rewrites: auto", "rewrites: [{rule: dft-to-matmul, matches: 1}]"))
    found = compare.compare(str(old), str(new))
    assert words.text(found).splitlines()[0] == "rewrites: auto -> dft-to-matmul"
    assert found.steps[0] == "rewrite"
    back = words.text(compare.compare(str(new), str(old)))
    assert back.splitlines()[0] == "rewrites: dft-to-matmul -> auto"
    assert json.loads(json.dumps(words.plain(found)))["changes"][0]["key"] == "rewrites"
    assert not compare.compare(str(old), str(old)).changes


def test_show_and_its_origins_take_auto(tmp_path: Path, cli: Callable[..., Cli]) -> None:
    toy = folder(tmp_path)
    assert "library: " in cli("show", toy).out
    shown = cli("show", toy, "--resolved").out.splitlines()
    assert next(line for line in shown if line.startswith("library")).endswith("recipe.yaml:9")


BYTES = """<ir_version: 10, opset_import: ["" : 18]>
    g (uint8[batch, 8, 1] x) => (uint8[batch, 8, 1] y) <uint8 ten = {10}> { y = Add (x, ten) }"""


@needs_rtx
def test_a_line_of_a_recipe_computes_integers_in_wider_types(tmp_path: Path, cli: Callable[..., Cli]) -> None:
    """Overflow included; what auto chooses is a line that does the same, and TensorRT takes what it refused."""
    edit = ("dtype: float32", "dtype: uint8")
    named = "rewrites: [{rule: widen-integers, matches: %d}]"
    toy = folder(tmp_path, edit, ("rewrites: auto  # a first draft", "rewrites: []"), graph=BYTES)
    done = cli("run", toy, "--until", "build")
    assert done.code != 0
    assert "compute such types in wider ones: widen-integers (rewrites)" in done.text
    folder(tmp_path, edit, graph=BYTES)
    done = cli("run", toy, "--until", "build", "--write-rewrites")
    assert done.code == 0, done.text
    assert "  - {rule: widen-integers, matches: 1}\n" in (toy / "recipe.yaml").read_text()
    done = cli("run", toy, "--until", "build")
    assert done.code == 0, done.text
    graph = onnx.load(toy / "port" / "onnx" / "rewrite.onnx")
    assert [node.op_type for node in graph.graph.node] == ["Cast", "Add", "Mod", "Cast"]
    ends = [value.type.tensor_type.elem_type for value in (graph.graph.input[0], graph.graph.output[0])]
    assert ends == [onnx.TensorProto.UINT8] * 2
    [step] = [one for one in record_of(toy)["results"] if one["step"] == "rewrite"]
    assert step["facts"]["applied"][0]["cases"] > 0
    assert step["issues"][0]["symptom"] == "pattern of rule widen-integers found in 1 place"
    folder(tmp_path, edit, ("rewrites: auto  # a first draft", named % 2), graph=BYTES)
    done = cli("run", toy, "--until", "rewrite")
    assert done.code == 2
    assert "rule widen-integers applied 1 times, not 2" in done.err


@needs_rtx
def test_auto_takes_back_a_widening_that_does_not_help(tmp_path: Path, cli: Callable[..., Cli]) -> None:
    body = """
        r = Range (first, last, step) s = Add (r, r) q = Cast <to = 1> (s) u = Unsqueeze (q, axis)
        v = Add (x, u) y = Concat <axis = 2> (v, x)"""
    held = "<int16 first = {0}, int16 last = {8}, int16 step = {1}, int64[1] axis = {1}>"
    graph = DFT.replace("a = Neg (x) y = DFT <axis = 1> (a)", body).replace("y) {", f"y) {held} {{")
    toy = folder(tmp_path, graph=graph)
    done = cli("run", toy, "--until", "rewrite")
    assert done.code == 0, done.text
    [step] = [one for one in record_of(toy)["results"] if one["step"] == "rewrite"]
    assert step["facts"]["applied"] == []
    assert step["facts"]["auto"]["remains"]
