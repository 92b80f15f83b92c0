"""Asking a toolchain about many files in one process; a crash or a hang costs one file."""

from __future__ import annotations

import ast
import functools
import sys
import textwrap
from pathlib import Path

import pytest

from engine import refusals, toolchain
from engine.errors import StepError
from engine.refusals import Question
from engine.toolchain import Toolchain
from engine.worker import trt_try
from tests.test_worker import DYNAMIC, GRAPH, named, needs_rtx, span

RELU = GRAPH + "(float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }"
UNIQUE = GRAPH + "(float[4] x) => (float[n] y) { a = Det (x) y = Unique (x) z = Unique (a) }"


def saved(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.onnx"
    path.write_bytes(named(text).SerializeToString())
    return path


@needs_rtx
def test_each_file_is_answered_in_order(tmp_path: Path) -> None:
    shapes = {"x": span([1, 3], [2, 3], [4, 3])}
    questions = [
        Question(saved(tmp_path, "unique", UNIQUE)),
        Question(saved(tmp_path, "relu", RELU)),
        Question(saved(tmp_path, "dynamic", DYNAMIC)),
        Question(saved(tmp_path, "parsed", DYNAMIC), build=False),
        Question(saved(tmp_path, "shaped", DYNAMIC), profile=shapes),
        Question(tmp_path / "not-there.onnx"),
    ]
    counts: list[int] = []
    answers = refusals.ask(toolchain.resolve("tensorrt-rtx"), questions, on_answer=counts.append)
    assert [(answer.stage, answer.ok) for answer in answers] == [
        ("parse", False), ("done", True), ("profile", False), ("parse", True), ("done", True), ("parse", False)
    ]  # fmt: skip
    assert counts == [1, 2, 3, 4, 5, 6]
    told = [(refusal.node, refusal.op) for refusal in answers[0].refusals]
    assert told == [("Det_0", "Det"), ("Unique_1", "Unique"), ("Unique_2", "Unique")], "all of them in one go"
    assert "no importer for op Det (node Det_0)" in answers[0].refusals[0].text
    assert "no optimization profile" in answers[2].refusals[0].text
    assert "there is no ONNX file" in answers[5].refusals[0].text


@needs_rtx
def test_what_is_not_given_and_what_is_wrong(tmp_path: Path) -> None:
    """A shape input without values lacks something; sizes that contradict the graph are refused, as is a target."""
    shape = GRAPH + "(float[6] x, int64[2] s) => (float[a, b] y) { y = Reshape (x, s) }"
    fixed = GRAPH + "(float[N, 3] x, float[N, 3] z) => (float[N, 3] y) { y = Add (x, z) }"
    sizes = span([1, 3], [2, 3], [4, 3])
    wrong = {"x": sizes, "z": span([1, 3], [2, 3], [5, 3])}
    tool = toolchain.resolve("tensorrt-rtx")
    questions = [Question(saved(tmp_path, "shape", shape)), Question(saved(tmp_path, "fixed", fixed), profile=wrong)]
    lacking, refused = refusals.ask(tool, questions)
    assert (lacking.stage, lacking.lacks_shapes) == ("profile", True)
    assert (refused.stage, refused.lacks_shapes) == ("profile", False)
    assert "min, opt, max of dimension N" in refused.refusals[0].text
    [target] = refusals.ask(tool, [Question(saved(tmp_path, "relu", RELU))], target="sm999")
    assert (target.stage, target.ok) == ("build", False)


@needs_rtx
def test_build_error_names_its_node_and_none_of_the_file_before(tmp_path: Path) -> None:
    text = GRAPH + "(float16[2, 3] x, float[2, 3] z) => (float16[2, 3] y, float[2, 3] w) { y = Relu (x) w = Neg (z) }"
    wide = saved(tmp_path, "bf16", text.replace("float16", "bfloat16"))
    answers = refusals.ask(
        toolchain.resolve("tensorrt-rtx"), [Question(wide), Question(saved(tmp_path, "relu", RELU))], target="sm75"
    )
    assert [answer.stage for answer in answers] == ["build", "done"]
    assert "HW-specific datatypes" in answers[0].refusals[0].text
    assert answers[1].refusals == ()


WORKER = """
    import json, os, signal, sys, time
    request = json.load(sys.stdin)
    signal.alarm(0)
    for file in request["files"]:
        signal.alarm(request["seconds"])
        if "crash" in file["onnx"]:
            os.kill(os.getpid(), signal.SIGSEGV)
        if "hang" in file["onnx"]:
            time.sleep(60)
        print(json.dumps({"kind": "tried", "file": file["onnx"], "stage": "done", "ok": True, "errors": [],
                          "network": None, "pid": os.getpid()}), flush=True)
    print(json.dumps({"kind": "result", "value": {"errors": []}}), flush=True)
"""


def test_a_crash_and_a_hang_cost_one_file_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "worker.py"
    script.write_text(textwrap.dedent(WORKER))
    monkeypatch.setattr(refusals, "run_worker", _with_script(script))
    monkeypatch.setattr(refusals, "AT_ONCE", 3)
    tool = Toolchain("fake", Path(sys.executable), "tensorrt_rtx", "1.7.1.116")
    names = ["a", "crash", "b", "c", "hang", "d", "e", "crash-last"]
    answers = refusals.ask(tool, [Question(Path(name)) for name in names], seconds=1)
    assert [answer.stage for answer in answers] == ["done", "crash", "done", "done", "crash", "done", "done", "crash"]
    assert "crashed TensorRT (killed by signal 11" in answers[1].refusals[0].text
    assert answers[4].refusals[0].text == "TensorRT gave no answer within 1 s and was stopped"


def _with_script(script: Path) -> object:
    original = refusals.run_worker

    @functools.wraps(original)
    def call(*args: object, **more: object) -> object:
        return original(*args, **{**more, "script": str(script)})  # type: ignore[arg-type]

    return call


def test_a_toolchain_that_does_not_start_is_one_error() -> None:
    tool = Toolchain("lost", Path(sys.executable), "tensorrt", "10.0")
    with pytest.raises(StepError, match=r"lost does not start: tensorrt cannot be imported"):
        refusals.ask(tool, [Question(Path("a.onnx")), Question(Path("b.onnx"))])


def test_the_script_is_python_3_8_and_standard_library_only() -> None:
    tree = ast.parse(Path(trt_try.__file__).read_text(), feature_version=(3, 8))
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    assert names - {"trt_worker"} <= set(sys.stdlib_module_names)
