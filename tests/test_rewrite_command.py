"""``portwright rewrite``: what it mends, what it leaves, what it says, and what it refuses to start on."""

# ruff: noqa: E501 (ONNX text reads best on one line)

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from engine import toolchain
from engine.commands import rewrite as command
from engine.errors import Exit, RecipeError, StepError
from engine.graph import filled, names
from engine.refusals import Answer, Question, Refusal
from engine.rewriting import finish, rewrite, sizes, words
from engine.rewriting.result import Rewritten
from engine.rewriting.rewrite import Options, rewrite_files
from engine.rewriting.subject import Subject
from engine.rules.language import Tolerance
from engine.toolchain import Toolchain
from tests.conftest import Cli
from tests.rules_tools import rule_file
from tests.test_worker import needs_rtx

DFT = "g (float[1, 8, 1] x) => (float[1, 8, 2] y) { y = DFT <axis = 1> (x) }"
RELU = "g (float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }"
PRODUCT = (
    "g (int8[n, 4] a, int8[4, 3] b) => (float[n, 3] z) { y = MatMulInteger (a, b) z = Cast <to = 1> (y) }"
)
UNIQUE = "g (float[4] x) => (float[n] y) { y = Unique (x) }"
TOOL = Toolchain("tensorrt-rtx", Path("python"), "tensorrt_rtx", "1.7.1.116")
PROOF = (
    "{axes: {n: [1, 3]}, inputs: {x: {dtype: float32, shape: [n, 4], values: normal}}, equal: {max_abs: 0}}"
)
RULE = """
    rule: {name}
    class: op
    why: for a test
    match: |
      (x) => (y) {{ y = {op} (x) }}
    replace: |
      (x) => (y) {{ {body} }}
    proof: {proof}
    needed_by: {{tensorrt-rtx: "{needed}"}}
"""


def saved(folder: Path, name: str, text: str, opset: int = 18) -> Path:
    folder.mkdir(exist_ok=True)
    head = f'<ir_version: 10, opset_import: ["" : {opset}]> '
    proto = onnx.parser.parse_model(text if text.startswith("<") else head + text)
    path = folder / f"{name}.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def a_rule(folder: Path, name: str, op: str, body: str, needed: str = "*", proof: str = PROOF) -> None:
    folder.mkdir(exist_ok=True)
    rule_file(folder, RULE.format(name=name, op=op, body=body, needed=needed, proof=proof), name)


def ops(path: str | Path | None) -> list[str]:
    assert path is not None
    return [node.op_type for node in onnx.load(path).graph.node]


class Fake:
    """Stands for TensorRT: refuses nodes of some operators, by name or without saying where."""

    def __init__(self, *refused: str, silent: bool = False) -> None:
        self.refused, self.silent, self.asked = refused, silent, list[list[Path]]()

    def __call__(self, tool: Toolchain, questions: Sequence[Question], **_: Any) -> list[Answer]:
        self.asked.append([question.path for question in questions])
        return [self.answer(onnx.load(question.path, load_external_data=False)) for question in questions]

    def answer(self, model: onnx.ModelProto) -> Answer:
        bad = [node for node in model.graph.node if node.op_type in self.refused]
        if self.silent and bad:
            return Answer("build", False, (Refusal("it cannot"),))
        told = tuple(Refusal(f"no {node.op_type}", node.name, node.op_type) for node in bad)
        return Answer("parse" if bad else "done", not bad, told)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Fake]:
    def make(*refused: str, silent: bool = False) -> Fake:
        made = Fake(*refused, silent=silent)
        monkeypatch.setattr(rewrite, "ask", made)
        return made

    return make


# ---- with TensorRT-RTX -----------------------------------------------------------------------------------


@needs_rtx
def test_many_files_in_one_go(cli: Callable[..., Cli], tmp_path: Path) -> None:
    here = tmp_path / "in"
    paths = [saved(here, "dft", DFT), saved(here, "relu", RELU), saved(here, "product", PRODUCT)]
    done = cli("rewrite", *paths, "-o", "out", "--for", "tensorrt-rtx", "--sizes", "n=1:4:8")
    assert done.code == 0, done.text
    lines = done.out.splitlines()
    assert lines[0] == f"{paths[0]}: builds with TensorRT-RTX 1.7.1"
    assert lines[1].startswith("  rule dft-to-matmul: 1 time, 1 -> 3 nodes, 9 proofs, largest difference ")
    assert lines[2].startswith("  as a whole: 48 numbers equal in 3 runs, largest difference ")
    assert "  copied unchanged to out/relu.onnx" in lines
    assert lines[-1] == "3 files: 3 build, 0 parse, 0 refused, 0 failed; 2 applications of 2 rules"
    assert (tmp_path / "out" / "relu.onnx").read_bytes() == paths[1].read_bytes()
    assert "MatMulInteger" not in ops(tmp_path / "out" / "product.onnx")
    assert "DFT" not in ops(tmp_path / "out" / "dft.onnx")


@needs_rtx
def test_what_remains_is_named_with_the_rules_that_do_not_fit(
    cli: Callable[..., Cli], tmp_path: Path
) -> None:
    det = "g (float[9, 9] x) => (float y) { y = Det (x) }"
    paths = [saved(tmp_path / "in", "unique", UNIQUE), saved(tmp_path / "in", "det", det)]
    done = cli("rewrite", *paths, "-o", "out", "--for", "tensorrt-rtx", "--json")
    assert done.code == 1, done.text
    unique, other = json.loads(done.out)["files"]
    assert (unique["verdict"], unique["changed"]) == ("refused", False)
    [left] = unique["remaining"]
    why = "the size of Y depends on values; only that of inverse_indices does not"
    rules = [{"rule": "unique-to-compare", "why": why}]
    assert (left["node"], left["op"], left["rules"]) == ("Unique_0", "Unique", rules)
    assert left["text"] == "TensorRT-RTX 1.7.1 has no importer for op Unique (node Unique_0)"
    [left] = other["remaining"]
    [tried] = left["rules"]
    assert tried["rule"] == "det-to-minors"
    assert "9" in tried["why"]
    random = saved(tmp_path / "in", "random", "g (float[4] x) => (float[4] y) { y = Bernoulli (x) }")
    done = cli("rewrite", random, "-o", "out", "--for", "tensorrt-rtx")
    assert "    no rule for Bernoulli\n" in done.out


@needs_rtx
def test_an_axis_without_sizes_is_parsed_only(cli: Callable[..., Cli], tmp_path: Path) -> None:
    path = saved(tmp_path / "in", "product", PRODUCT)
    done = cli("rewrite", path, "-o", "out", "--for", "tensorrt-rtx")
    assert done.code == 0, done.text
    assert done.out.startswith(f"{path}: parsed by TensorRT-RTX 1.7.1; not built: no sizes for n\n")
    assert "0 build, 1 parse" in done.out


@needs_rtx
def test_an_input_of_a_type_that_tensorrt_lacks(cli: Callable[..., Cli], tmp_path: Path) -> None:
    path = saved(
        tmp_path / "in",
        "int16",
        "g (int16[2] x, float[2] z) => (int16[2] y, float[2] w) { y = Add (x, x) w = Neg (z) }",
    )
    done = cli("rewrite", path, "-o", "out", "--for", "tensorrt-rtx")
    assert done.code == 1
    assert "  remains: TensorRT has no type int16: input 'x'\n" in done.out
    assert "input 'z'" not in done.out


# ---- rounds ----------------------------------------------------------------------------------------------


def test_rounds_go_on_until_nothing_is_refused(tmp_path: Path, fake: Callable[..., Fake]) -> None:
    library = tmp_path / "library"
    a_rule(library, "abs-to-max", "Abs", "a = Neg (x) y = Max (x, a)")
    a_rule(library, "neg-to-sub", "Neg", "zero = Constant <value_float = 0.0> () y = Sub (zero, x)")
    path = saved(tmp_path / "in", "m", "g (float[n, 4] x) => (float[n, 4] y) { a = Exp (x) y = Abs (a) }")
    other = saved(tmp_path / "in", "other", "g (float[n, 4] x) => (float[n, 4] y) { y = Exp (x) }")
    asked = fake("Abs", "Neg")
    done, plain = rewrite_files(
        [path, other], tmp_path / "out", Options(TOOL, {"n": (1, 2, 5)}, folder=library)
    )
    assert (done.verdict, done.rounds, done.changed) == ("builds", 2, True)
    assert [(used.rule, used.times, used.nodes_before, used.nodes_after) for used in done.used] == [
        ("abs-to-max", 1, 2, 3), ("neg-to-sub", 1, 3, 3)]  # fmt: skip
    assert ops(done.output) == ["Exp", "Sub", "Max"]
    assert done.whole is not None
    assert (done.whole.why, done.whole.max_abs, done.whole.cases) == ("", 0.0, 9), (
        "the rule says nothing of corner values"
    )
    assert [len(paths) for paths in asked.asked] == [2, 1, 1], "what was taken is not asked about again"
    assert not plain.changed


def test_rounds_have_an_end(tmp_path: Path, fake: Callable[..., Fake]) -> None:
    library = tmp_path / "library"
    a_rule(library, "endless", "Abs", "a = Abs (x) y = Relu (a)")
    path = saved(tmp_path / "in", "m", "g (float[1, 4] x) => (float[1, 4] y) { y = Abs (x) }")
    fake("Abs")
    [done] = rewrite_files([path], tmp_path / "out", Options(TOOL, folder=library))
    assert (done.verdict, done.rounds) == ("refused", rewrite.ROUNDS)
    assert ops(done.output) == ["Abs", *["Relu"] * rewrite.ROUNDS]


def test_rules_that_go_round_are_named_where_the_rounds_end(tmp_path: Path, fake: Callable[..., Fake]) -> None:
    library = tmp_path / "library"
    a_rule(library, "abs-to-max", "Abs", "a = Neg (x) y = Max (x, a)")
    a_rule(library, "neg-to-abs", "Neg", "a = Sign (x) b = Abs (x) c = Mul (a, b) z = Constant <value_float = 0.0> () y = Sub (z, c)")
    path = saved(tmp_path / "in", "m", "g (float[1, 4] x) => (float[1, 4] y) { y = Abs (x) }")
    fake("Abs", "Neg")
    [done] = rewrite_files([path], tmp_path / "out", Options(TOOL, folder=library))
    [note] = done.notes
    assert note.startswith("stopped after 10 rounds; the last applied abs-to-max at ")
    assert note.count("; then neg-to-abs at ") == 2

def test_other_nodes_are_left_alone(tmp_path: Path, fake: Callable[..., Fake]) -> None:
    library = tmp_path / "library"
    a_rule(library, "abs-to-max", "Abs", "a = Neg (x) y = Max (x, a)")
    path = saved(
        tmp_path / "in", "m", "g (float[1, 4] x) => (float[1, 4] y) { a = Abs (x) b = Exp (a) y = Abs (b) }"
    )
    asked = fake()
    answers = [Answer("parse", False, (Refusal("no", "Abs_2", "Abs"),)), Answer("done", True)]
    asked.answer = lambda model: answers.pop(0)  # type: ignore[method-assign]
    [done] = rewrite_files([path], tmp_path / "out", Options(TOOL, folder=library))
    assert ops(done.output) == ["Abs", "Exp", "Neg", "Max"]
    assert done.used[0].at == ("Abs_2",)


def test_where_nothing_is_named_every_node_with_a_rule_is_tried(
    tmp_path: Path, fake: Callable[..., Fake]
) -> None:
    library = tmp_path / "library"
    a_rule(library, "abs-to-max", "Abs", "a = Neg (x) y = Max (x, a)")
    path = saved(
        tmp_path / "in", "m", "g (float[1, 4] x) => (float[1, 4] y) { a = Abs (x) b = Exp (a) y = Abs (b) }"
    )
    fake("Abs", silent=True)
    [done] = rewrite_files([path], tmp_path / "out", Options(TOOL, folder=library))
    assert (done.verdict, ops(done.output)) == ("builds", ["Neg", "Max", "Exp", "Neg", "Max"])


def test_a_wrong_rule_is_refused_by_its_proof_with_the_reason(
    tmp_path: Path, fake: Callable[..., Fake]
) -> None:
    library = tmp_path / "library"
    a_rule(library, "abs-to-relu", "Abs", "y = Relu (x)")
    path = saved(tmp_path / "in", "m", "g (float[1, 4] x) => (float[1, 4] y) { y = Abs (x) }")
    fake("Abs")
    [done] = rewrite_files([path], tmp_path / "out", Options(TOOL, folder=library))
    assert (done.verdict, done.changed) == ("refused", False)
    assert done.remaining[0].rules[0].why.startswith("not proven equal: y[0][")


def test_rules_that_are_not_needed_or_not_wanted_are_told(tmp_path: Path, fake: Callable[..., Fake]) -> None:
    library = tmp_path / "library"
    a_rule(library, "abs-old", "Abs", "a = Neg (x) y = Max (x, a)", needed="< 1.7")
    a_rule(library, "abs-new", "Abs", "a = Neg (x) y = Max (x, a)", needed=">= 1.7")
    path = saved(tmp_path / "in", "m", "g (float[1, 4] x) => (float[1, 4] y) { y = Abs (x) }")
    fake("Abs")
    [done] = rewrite_files([path], tmp_path / "out", Options(TOOL, rules=["abs-old"], folder=library))
    assert {tried.rule: tried.why for tried in done.remaining[0].rules} == {
        "abs-new": "not among --rules",
        "abs-old": "needed_by says tensorrt-rtx: < 1.7, and this is 1.7.1.116",
    }
    [done] = rewrite_files([path], tmp_path / "out", Options(TOOL, folder=library))
    assert done.used[0].rule == "abs-new"


def test_exact_rules_come_first(tmp_path: Path, fake: Callable[..., Fake]) -> None:
    library = tmp_path / "library"
    a_rule(
        library,
        "a-rounding",
        "Abs",
        "a = Neg (x) y = Max (a, x)",
        proof=PROOF.replace("max_abs: 0", "max_abs: 1"),
    )
    a_rule(library, "b-exact", "Abs", "a = Neg (x) y = Max (x, a)")
    path = saved(tmp_path / "in", "m", "g (float[1, 4] x) => (float[1, 4] y) { y = Abs (x) }")
    fake("Abs")
    [done] = rewrite_files([path], tmp_path / "out", Options(TOOL, folder=library))
    assert [used.rule for used in done.used] == ["b-exact"]


# ---- files -----------------------------------------------------------------------------------------------


def with_weights(folder: Path, name: str, op: str) -> Path:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 18]> g (float[1, 40] x) => (float[1, 40] y) {{ a = MatMul (x, w) y = {op} (a) }}'
    )
    model.graph.initializer.append(numpy_helper.from_array(np.eye(40, dtype=np.float32), "w"))
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.onnx"
    onnx.save(model, path, save_as_external_data=True, location=f"{name}.bin", size_threshold=0)
    return path


def test_weights_lie_beside_what_is_written(tmp_path: Path, fake: Callable[..., Fake]) -> None:
    library = tmp_path / "library"
    a_rule(library, "abs-to-max", "Abs", "a = Neg (x) y = Max (x, a)")
    paths = [with_weights(tmp_path / "in", "one", "Abs"), with_weights(tmp_path / "in", "two", "Exp")]
    fake("Abs")
    one, two = rewrite_files(paths, tmp_path / "out", Options(TOOL, folder=library))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "one.onnx",
        "one.weights",
        "two.bin",
        "two.onnx",
    ]
    for result in (one, two):
        assert result.output is not None
        weight = onnx.load(result.output).graph.initializer[0]
        np.testing.assert_array_equal(numpy_helper.to_array(weight), np.eye(40, dtype=np.float32))
    assert one.whole is not None
    assert one.whole.numbers > 0


def test_names_are_given_to_the_copy_only(tmp_path: Path, fake: Callable[..., Fake]) -> None:
    path = saved(tmp_path / "in", "m", RELU)
    fake()
    [done] = rewrite_files([path], tmp_path / "out", Options(TOOL))
    assert done.output is not None
    assert Path(done.output).read_bytes() == path.read_bytes()


def test_unnamed_nodes_take_no_name_that_another_has() -> None:
    model = ir.from_proto(onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { a = Abs (x) b = Neg (a) y = Neg (b) }'
    ))  # fmt: skip
    first, second, third = model.graph
    second.name, third.name = "Abs_0", "Abs_0"
    names.name_nodes(model)
    assert [first.name, second.name, third.name] == ["Abs_0_", "Abs_0", "Neg_2"]


def test_types_that_a_file_does_not_say_are_inferred_and_what_it_says_stays() -> None:
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[n, 4] x) => (float[m, 4] y) { a = Neg (x) y = Exp (a) }'
    model = ir.from_proto(onnx.parser.parse_model(text))
    filled.fill(model)
    inner, output = (node.outputs[0] for node in model.graph)
    assert (inner.dtype, str(inner.shape), str(output.shape)) == (ir.DataType.FLOAT, "[n,4]", "[m,4]")


def test_sizes_that_are_read_off_a_fixed_shape_are_followed() -> None:
    text = """<ir_version: 10, opset_import: ["" : 13]>
        g (float[3, 5] x, float[n] w) => (float[a, b] y, int64[k, m] v) <int64[3] to = {0, 0, -1}> {
        flat = Reshape (x, to) size = Shape (x) back = Reshape (flat, size) y = Identity (back) v = NonZero (w) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    filled.fill(model)
    shapes = {node.op_type: str(node.outputs[0].shape) for node in model.graph}
    assert (shapes["Reshape"], shapes["Identity"]) == ("[3,5]", "[a,b]")
    assert [node.op_type for node in model.graph] == ["Reshape", "Shape", "Reshape", "Identity", "NonZero"], (
        "nothing else changes"
    )


def refused(paths: Sequence[Path], out: Path, **more: Any) -> str:
    with pytest.raises(RecipeError) as caught:
        rewrite_files(paths, out, Options(TOOL, **more))
    assert not out.exists() or out == paths[0].parent
    return str(caught.value)


def test_all_that_is_wrong_with_the_files_is_told_before_any_work(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no ONNX at all")
    two = saved(tmp_path, "two", "g (float[2] x) => (float[3] y) { y = Neg (x) }")
    said = refused([broken, two, tmp_path / "gone.onnx"], tmp_path / "out")
    assert f"'{broken}' is not an ONNX file" in said
    assert f"'{two}' is not valid ONNX: output 'y' is declared float[3]" in said
    assert f"'{tmp_path / 'gone.onnx'}': no such file" in said


def test_each_file_is_judged_by_itself(tmp_path: Path, fake: Callable[..., Fake]) -> None:
    library = tmp_path / "library"
    a_rule(library, "abs-to-max", "Abs", "a = Neg (x) y = Max (x, a)")
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no ONNX at all")
    good = saved(tmp_path / "in", "good", "g (float[1, 4] x) => (float[1, 4] y) { y = Abs (x) }")
    endless = '<ir_version: 10, opset_import: ["" : 18, "my" : 1]> g (float[2] x) => (float[2] y) { y = my.f (x) }'
    endless += '<domain: "my", opset_import: ["" : 18, "my" : 1]> f (v) => (w) { w = my.f (v) }'
    paths = [broken, good, tmp_path / "gone.onnx", saved(tmp_path / "in", "endless", endless)]
    fake("Abs")
    done = rewrite_files(paths, tmp_path / "out", Options(TOOL, sizes={"n": (1, 2, 3)}, folder=library))
    assert [one.file for one in done] == [str(path) for path in paths]
    assert [one.verdict for one in done] == ["unsound", "builds", "unsound", "unsound"]
    assert done[0].why.startswith("is not an ONNX file")
    assert done[2].why == "no such file"
    assert (done[1].used[0].rule, done[0].output) == ("abs-to-max", None)
    lines = words.text(done, "it").splitlines()
    assert f"{tmp_path / 'gone.onnx'}: not usable, nothing written; no such file" in lines
    assert lines[-1] == "4 files: 1 build, 0 parse, 0 refused, 0 failed, 3 not sound; 1 application of 1 rule"
    assert command.exit_code(done) == Exit.USAGE


def test_a_rule_that_raises_stops_its_file_alone(tmp_path: Path, fake: Callable[..., Fake]) -> None:
    library = tmp_path / "library"
    a_rule(library, "abs-raises", "Abs", "y = Neg (x)")
    text = (library / "abs-raises.yaml").read_text()
    (library / "abs-raises.yaml").write_text(re.sub(r"replace: \|\n.*\n", "apply: abs-raises.py\n", text))
    (library / "abs-raises.py").write_text("def apply(graph, match):\n    raise KeyError(match.opset)\n")
    one = saved(tmp_path / "in", "one", "g (float[1, 4] x) => (float[1, 4] y) { y = Abs (x) }")
    two = saved(tmp_path / "in", "two", "g (float[1, 4] x) => (float[1, 4] y) { y = Exp (x) }")
    fake("Abs")
    first, second = rewrite_files([one, two], tmp_path / "out", Options(TOOL, folder=library))
    assert (first.verdict, first.output) == ("failed", None)
    assert first.why == (
        "rule abs-raises: apply at Abs_0 raised KeyError: 18 (abs-raises.py:2: raise KeyError(match.opset))"
    )
    assert second.verdict == "builds"
    assert command.exit_code([first, second]) == Exit.STEP_FAILED


def test_what_cannot_apply_at_a_node_is_not_listed(tmp_path: Path, fake: Callable[..., Fake]) -> None:
    library = tmp_path / "library"
    a_rule(library, "far", "Abs", "y = Neg (x)")
    a_rule(library, "near", "Abs", "y = Neg (x)")
    a_rule(library, "never", "Abs", "y = Neg (x)", needed="never")
    for name, match in (("far", "a = Exp (x) b = Neg (a) y = Abs (b)"), ("near", "a = Sign (x) b = Sin (a) y = Abs (b)")):
        text = (library / f"{name}.yaml").read_text().replace("y = Abs (x)", match)
        (library / f"{name}.yaml").write_text(text)
    path = saved(tmp_path / "in", "m", "g (float[1, 4] x) => (float[1, 4] y) { s = Tan (x) t = Sin (s) y = Abs (t) }")
    fake("Abs")
    [done] = rewrite_files([path], tmp_path / "out", Options(TOOL, folder=library))
    [left] = done.remaining
    assert [(one.rule, one.why) for one in left.rules] == [
        ("near", "nearest: Abs_2 (Abs), 2 of 3 nodes match, but Tan_0 is Tan, not Sign")
    ]
    [done] = rewrite_files([path], tmp_path / "out", Options(TOOL, folder=library, rules=["far"]))
    assert [one.rule for one in done.remaining[0].rules] == ["near"], "left out by --rules"
    (library / "near.yaml").unlink()
    [done] = rewrite_files([path], tmp_path / "out", Options(TOOL, folder=library))
    assert words.no_rule(done.remaining[0]) == "no rule for Abs here; of 1 rule for parts that hold one, none is near"


def test_two_files_of_one_name(tmp_path: Path) -> None:
    one, two = saved(tmp_path / "a", "m", RELU), saved(tmp_path / "b", "m", RELU)
    assert f"'{one}' and '{two}' would both be written to '{tmp_path / 'out' / 'm.onnx'}'" in refused(
        [one, two], tmp_path / "out"
    )
    assert "would both be written" in refused([one, one], tmp_path / "out")
    weights = [
        with_weights(tmp_path / "c", "w", "Abs"),
        with_weights(tmp_path / "d", "w", "Abs").rename(tmp_path / "d" / "v.onnx"),
    ]
    assert f"would both be written to '{tmp_path / 'out' / 'w.bin'}'" in refused(weights, tmp_path / "out")


def test_no_original_is_written_over(tmp_path: Path) -> None:
    path = saved(tmp_path / "in", "m", RELU)
    assert f"'{path}' lies in the output folder" in refused([path], path.parent)


def test_unknown_rules_and_axes(tmp_path: Path, fake: Callable[..., Fake]) -> None:
    path = saved(tmp_path / "in", "m", PRODUCT)
    said = refused([path], tmp_path / "out", rules=["celu-to-elementwis", "nonsense"])
    assert "no rule 'celu-to-elementwis'" in said
    assert "did you mean 'celu-to-elementwise'" in said
    assert "no rule 'nonsense'" in said
    assert "no input has an axis 'm'" in refused([path], tmp_path / "out", sizes={"m": (1, 2, 3)})


def test_sizes_as_written() -> None:
    assert sizes.read(["batch=1:4:8 seq=7", "n=2,m=3 empty=0:1:2"]) == {
        "batch": (1, 4, 8),
        "empty": (0, 1, 2),
        "seq": (7, 7, 7),
        "n": (2, 2, 2),
        "m": (3, 3, 3),
    }
    with pytest.raises(RecipeError) as caught:
        sizes.read(["", "batch=4:1:8", "seq", "n=1", "n=2", "z=0"])
    said = [problem.what for problem in caught.value.problems]
    assert said == [
        "--sizes: names no axis",
        "--sizes batch: 0 <= MIN <= OPT <= MAX, 1 <= MAX does not hold for 'batch=4:1:8'",
        "--sizes: 'seq' is not NAME=MIN:OPT:MAX",
        "--sizes: n stands twice",
        "--sizes z: 0 <= MIN <= OPT <= MAX, 1 <= MAX does not hold for 'z=0'",
    ]


def test_usage_on_the_command_line(cli: Callable[..., Cli], tmp_path: Path) -> None:
    done = cli("rewrite", tmp_path / "gone.onnx", "-o", "out", "--sizes", "x")
    assert (done.code, done.out) == (2, "")
    assert "is not NAME=MIN:OPT:MAX" in done.err


@needs_rtx
def test_a_target_that_there_is_not(cli: Callable[..., Cli], tmp_path: Path) -> None:
    done = cli(
        "rewrite", saved(tmp_path / "in", "m", RELU), "-o", "out", "--for", "tensorrt-rtx", "--target", "sm90"
    )
    assert done.code == 2
    assert (
        "--target: TensorRT-RTX 1.7.1 does not build for 'sm90'\n        it builds for sm75, sm80" in done.err
    )


# ---- the rewritten graph as a whole ----------------------------------------------------------------------


def graph(text: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 18]> ' + text))


ABS = "g (float[n, 4] x) => (float[n, 4] y) { y = Abs (x) }"


def test_a_graph_that_differs_is_told_with_the_place() -> None:
    whole = finish.compare(graph(ABS), graph(ABS.replace("Abs", "Relu")), Tolerance(), {"n": (1, 3)})
    assert whole.different
    assert whole.why.startswith("y[0][")
    assert "x [1, 4]" in whole.why


def test_rounding_is_allowed_where_a_rule_rounds() -> None:
    off = graph(
        "g (float[n, 4] x) => (float[n, 4] y) { a = Abs (x) e = Constant <value_float = 0.01> () y = Add (a, e) }"
    )
    assert finish.compare(graph(ABS), off, Tolerance(max_abs=0.002), {}).why == ""
    assert finish.compare(graph(ABS), off, Tolerance(max_abs=0.0005), {}).different


def test_corner_values_are_tried_where_all_rules_are_exact() -> None:
    """Max drops the NaN that Abs keeps only where the other side is no NaN; here a finite graph hides it."""
    clipped = graph(
        "g (float[n, 4] x) => (float[n, 4] y) { a = Abs (x) e = Constant <value_float = 1e30> () y = Min (a, e) }"
    )
    assert finish.compare(graph(ABS), clipped, Tolerance(), {}).different
    assert not finish.compare(graph(ABS), clipped, Tolerance(max_abs=1e-6), {}).different


def test_what_is_not_compared_says_why() -> None:
    random = graph("g (float[n, 4] x) => (float[n, 4] y) { y = RandomNormalLike (x) }")
    assert "draws random numbers" in finish.compare(random, random, Tolerance(), {}).why
    shape = graph("g (int64[1] s, float[7] x) => (float[a] y) { y = Reshape <allowzero = 1> (x, s) }")
    assert (
        finish.compare(shape, shape, Tolerance(), {}).why
        == "not compared: no inputs were found on which it runs"
    )


def test_comparing_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "BUDGET", -1.0)
    assert finish.compare(graph(ABS), graph(ABS), Tolerance(), {"n": (1, 3)}).cases == 1


def subject_of(tmp_path: Path, text: str) -> Subject:
    return Subject(saved(tmp_path / "in", "m", text), {})


def test_a_graph_that_differs_is_not_written(tmp_path: Path) -> None:
    subject = subject_of(tmp_path, ABS)
    subject.model.graph[0].op_type = "Relu"
    (tmp_path / "out").mkdir()
    with pytest.raises(StepError, match="the rewritten graph gives other outputs: y"):
        finish.write(subject, tmp_path / "out", Tolerance(), {}, any_io=False)
    assert list((tmp_path / "out").iterdir()) == []


def test_inputs_and_outputs_stay_as_they_are(tmp_path: Path) -> None:
    subject = subject_of(tmp_path, "g (float[n, 4] x) => (float[n, 4] y) { y = Cast <to = 1> (x) }")
    subject.model.graph[0].attributes["to"] = ir.AttrInt64("to", 10)
    subject.model.graph.outputs[0].dtype = ir.DataType.FLOAT16
    (tmp_path / "out").mkdir()
    with pytest.raises(StepError, match=r"changed the outputs: y float\['n', 4\] became y float16\['n', 4\]"):
        finish.write(subject, tmp_path / "out", Tolerance(), {}, any_io=False)


def test_a_failure_is_ours_and_the_others_are_written(
    tmp_path: Path, fake: Callable[..., Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "library"
    a_rule(library, "abs-to-max", "Abs", "a = Neg (x) y = Max (x, a)")
    paths = [saved(tmp_path / "in", name, ABS) for name in ("one", "two")]
    fake("Abs")
    original = finish.compare
    calls: list[int] = []

    def compare(*args: Any) -> Any:
        calls.append(1)
        return (
            original(*args) if len(calls) > 1 else finish.Whole(why="y[0] was 1 and became 2", different=True)
        )

    monkeypatch.setattr(finish, "compare", compare)
    one, two = rewrite_files(paths, tmp_path / "out", Options(TOOL, folder=library))
    assert (one.verdict, one.output, two.verdict) == ("failed", None, "parses")
    assert one.why == "the rewritten graph gives other outputs: y[0] was 1 and became 2"
    assert "failed, nothing written; the rewritten graph gives" in words.text(
        [one, two], "TensorRT-RTX 1.7.1"
    )
    from engine.commands.rewrite import exit_code

    assert [int(exit_code(found)) for found in ([one, two], [two], [Rewritten("a", "b", "refused")])] == [
        3,
        0,
        1,
    ]


@needs_rtx
def test_float64_is_not_taken_for_what_it_says(cli: Callable[..., Cli], tmp_path: Path) -> None:
    inside = saved(
        tmp_path / "in",
        "inside",
        "g (float[2] x) => (float[2] y) { d = Cast <to = 11> (x) y = Cast <to = 1> (d) }",
    )
    ends = saved(tmp_path / "in", "ends", "g (double[2] x) => (double[2] y) { y = Exp (x) }")
    done = cli("rewrite", inside, ends, "-o", "out", "--for", "tensorrt-rtx", "--json")
    assert done.code == 1, done.text
    first, second = json.loads(done.out)["files"]
    assert (first["verdict"], first["notes"]) == ("builds", ["TensorRT computes float64 in float32"])
    assert second["verdict"] == "refused"
    assert "input 'x' is float64, output 'y' is float64; TensorRT makes it float32" in second["why"]
    done = cli("rewrite", ends, "-o", "out", "--for", "tensorrt-rtx", "--any-io-types")
    assert done.code == 0, done.text
    assert "note: TensorRT computes float64 in float32" in done.out


@needs_rtx
def test_widening_is_a_rule_that_may_be_left_out(cli: Callable[..., Cli], tmp_path: Path) -> None:
    path = saved(tmp_path / "in", "bytes", "g (uint8[4] x, uint8[4] z) => (uint8[4] y) { y = Add (x, z) }")
    done = cli("rewrite", path, "-o", "out", "--for", "tensorrt-rtx", "--rules", "dft-to-matmul")
    assert done.code == 1, done.text
    done = cli("rewrite", path, "-o", "out", "--for", "tensorrt-rtx", "--rules", "widen-integers")
    assert done.code == 0, done.text
    assert "  rule widen-integers: 1 time, 1 -> 5 nodes, " in done.out
    assert done.out.endswith("1 application of 1 rule\n")


@needs_rtx
def test_widening_that_does_not_help_is_taken_back(cli: Callable[..., Cli], tmp_path: Path) -> None:
    text = (
        "g (float[4] x, float s, uint16 z) => (uint16[4] y) { q = QuantizeLinear (x, s, z) y = Add (q, q) }"
    )
    path = saved(tmp_path / "in", "wide", text, opset=21)
    done = cli("rewrite", path, "-o", "out", "--for", "tensorrt-rtx", "--any-io-types", "--json")
    assert done.code == 1, done.text
    [found] = json.loads(done.out)["files"]
    assert (found["verdict"], found["changed"], found["notes"]) == ("refused", False, [])
    assert (tmp_path / "out" / "wide.onnx").read_bytes() == path.read_bytes()
    assert all(left["node"] in (None, "QuantizeLinear_0", "Add_1") for left in found["remaining"])


def test_what_cannot_be_read_or_written_is_said_before_the_work(
    cli: Callable[..., Cli], tmp_path: Path
) -> None:
    path = saved(tmp_path / "in", "m", "g (float[4] x) => (float[4] y) { y = Relu (x) }")
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "taken").write_text("")
    for given, out, rules, said in (
        (path, "taken/out", (), "'taken/out' cannot be made: Not a directory"),
        (tmp_path / "in", "out", (), "': is a folder"),
        (tmp_path / "empty.onnx", "out", (), "empty.onnx': is empty"),
        (path, "out", ("--rules", ""), "--rules names no rule"),
    ):
        done = cli("rewrite", given, "-o", out, "--for", "tensorrt-rtx", *rules)
        assert done.code == 2, done.text
        assert said in done.err


@needs_rtx
@pytest.mark.parametrize("between", ["z = Identity (q)", "z = Max (q, q)", "z = Reshape (q, to)"])
def test_a_quantised_pair_of_uint8_is_mended_at_both_ends(tmp_path: Path, between: str) -> None:
    """TensorRT names a cast between the two; what reads its uint8 is what needs a rule."""
    text = (
        "g (float[n,6] x) => (float[a,6] y) <float s = {0.05}, uint8 o = {128}, int64[2] to = {-1, 6}>"
        f" {{ q = QuantizeLinear (x, s, o) {between} y = DequantizeLinear (z, s, o) }}"
    )
    source = saved(tmp_path / "in", "pair", text)
    (result,) = rewrite_files([source], tmp_path / "out", Options(toolchain.resolve("tensorrt-rtx"), {"n": (1, 4, 8)}))
    assert result.verdict == "builds", result
    assert {used.rule for used in result.used} >= {"quantizelinear-to-elementwise", "dequantizelinear-to-elementwise"}
