"""A step reads the files that an earlier process wrote, not others of the same size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from engine import intake, interpret, route, steps
from engine.digests import digest_file
from engine.errors import Exit, StepError
from engine.plan import Plan
from engine.steps import context as context_module
from engine.steps.context import Context
from engine.values import Artifact, StepResult


def quiet(text: str, done: int, total: int) -> None:
    pass


@pytest.fixture
def run(toy: Callable[..., Path]) -> Callable[[], Context]:
    """A folder with a graph that names one of two weight files; a call is a new process."""
    folder = toy()
    _, plan = intake.make_plan(folder)
    out = folder / "port"
    (out / "onnx").mkdir(parents=True)
    (out / "samples").mkdir()
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]>\ng (float[n, 32] x) => (float[n, 32] y) { y = MatMul(x, w) }'
    )
    model.graph.initializer.append(numpy_helper.from_array(np.ones((32, 32), np.float32), "w"))
    onnx.save(model, out / "onnx" / "export.onnx", save_as_external_data=True, location="export.weights")
    (out / "onnx" / "other.weights").write_bytes(b"other")
    (out / "samples" / "opt.npz").write_bytes(b"samples")
    names = {"graph": "onnx/export.onnx", "weights": "onnx/export.weights", "other": "onnx/other.weights",
             "opt": "samples/opt.npz"}  # fmt: skip
    artifacts = {key: Artifact(path, digest_file(out / path), 0) for key, path in names.items()}
    result = StepResult("export", "ok", artifacts=artifacts)
    return lambda: made(plan, out, result)


def made(plan: Plan, out: Path, result: StepResult) -> Context:
    return Context(plan, out, {"export": result}, quiet)


def ask(context: Context, what: str) -> Path:
    if what == "graph":
        return context.graph
    return context.samples("opt") if what == "samples" else context.artifact("export", "other")


@pytest.mark.parametrize(
    ("asked", "name"),
    [("graph", "onnx/export.onnx"), ("graph", "onnx/export.weights"), ("samples", "samples/opt.npz"),
     ("artifact", "onnx/other.weights")],
)  # fmt: skip
@pytest.mark.parametrize("damage", ["zeros", "gone"])
def test_a_file_that_is_another(asked: str, name: str, damage: str, run: Callable[[], Context]) -> None:
    context = run()
    file = context.out / name
    was = digest_file(file)
    if damage == "gone":
        file.unlink()
    else:
        # Of the same size, as after a copy that was cut and padded; the graph keeps its weights' name.
        data = file.read_bytes()
        file.write_bytes(data[:-4] + bytes(4))
        assert file.stat().st_size == len(data)
    if damage == "gone" and name == "onnx/export.onnx":
        with pytest.raises(StepError, match="is not the file that the export step wrote"):
            ask(context, asked)
        return
    with pytest.raises(StepError) as caught:
        ask(context, asked)
    failure = caught.value.failure
    assert failure.symptom == f"{name} is not the file that the export step wrote"
    changed = f"sha256 was {was} and is {digest_file(file) if file.exists() else ''}"
    assert failure.cause == ("the file is gone" if damage == "gone" else changed)
    assert failure.fix == "run again, with nothing else writing into the run's folder and room on the disk"


def test_files_are_read_once_a_process_and_only_those_that_are_used(
    run: Callable[[], Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def counted(path: Path) -> str:
        read.append(path.name)
        return digest_file(path)

    monkeypatch.setattr(context_module, "digest_file", counted)
    context = run()
    for _ in range(2):
        assert context.graph.name == "export.onnx"
    assert read == ["export.onnx", "export.weights"]
    run().graph  # noqa: B018 - a new process looks again
    assert read == ["export.onnx", "export.weights"] * 2


def test_what_this_process_wrote_is_not_read_again(run: Callable[[], Context]) -> None:
    context = run()
    graph = context.out / "onnx" / "rewrite.onnx"
    graph.write_bytes((context.out / "onnx" / "export.onnx").read_bytes())
    context.earlier["rewrite"] = StepResult(
        "rewrite", "ok", artifacts={"graph": Artifact("onnx/rewrite.onnx", "", 0)}
    )
    assert context.graph == graph


def test_weights_damaged_between_two_groups_end_the_run(
    toy: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = interpret.run_group

    def run_group(state: Any, group: str, members: Any) -> None:
        original(state, group, members)
        if group == "torch":
            path = state.out / "onnx" / "export.onnx"
            path.write_bytes(path.read_bytes()[:-1] + b"\0")

    monkeypatch.setattr(interpret, "run_group", run_group)
    outcome = route.run(toy(), None, "parity", (), lambda event: None)
    assert outcome.exit_code == Exit.STEP_FAILED, outcome.message
    assert "onnx/export.onnx is not the file that the export step wrote" in outcome.message
    assert steps.by_name("parity").group == "graph"
