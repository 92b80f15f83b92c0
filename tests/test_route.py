"""The whole route on small models, and every way of breaking it on purpose."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from engine import intake, interpret, route, workspace
from engine.digests import digest_file
from engine.errors import Exit
from engine.values import StepResult
from tests.conftest import MODEL, RECIPE, ROOT, Cli, dedent, record_of

SECTIONS = (
    "**Verdict:", "## What ran", "## What did not run, and why", "## Issue log", "## Parity",
    "## Rehearsal", "## Precision map", "## Engine", "## Speed", "## Reproduce each step by hand", "## Files",
)  # fmt: skip


def silent(event: object) -> None:
    pass


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits recipe, run once to the end; the folder holds everything."""
    out = tmp_path_factory.mktemp("digits")
    outcome = route.run(ROOT / "recipes" / "digits-resnet", out, "score", (), silent)
    assert outcome.exit_code == Exit.ACCEPTED, outcome.message
    return out


def test_digits_is_accepted_and_says_what_is_unproven(digits: Path) -> None:
    record = json.loads((digits / "record.json").read_text())
    assert record["verdict"]["accepted"] is True
    measured = [claim for claim in record["verdict"]["claims"] if "measured" in claim["name"]]
    assert measured
    assert all(claim["status"] == "not run" and claim["why"] for claim in measured)


def test_report_has_its_sections_in_order(digits: Path) -> None:
    text = (digits / "PORT_REPORT.md").read_text()
    places = [text.index(section) for section in SECTIONS]
    assert places == sorted(places)


def test_parity_is_at_four_shapes_none_of_them_the_export_shape(digits: Path) -> None:
    record = json.loads((digits / "record.json").read_text())
    sizes = record["plan"]["shapes"]
    parity = next(item for item in record["results"] if item["step"] == "parity")
    compared = {item["shape"] for item in parity["measurements"]["comparisons"]}
    assert compared == {"min", "opt", "max", "odd"}
    assert all(sizes[name] != sizes["export"] for name in compared)
    axis = record["plan"]["axes"]["batch"]
    assert sizes["odd"]["batch"] not in (axis["min"], axis["opt"], axis["max"])


def test_engine_is_there_and_its_digest_is_right(digits: Path) -> None:
    record = json.loads((digits / "record.json").read_text())
    for result in record["results"]:
        for artifact in result["artifacts"].values():
            path = digits / artifact["path"]
            assert path.stat().st_size == artifact["bytes"]
            assert digest_file(path) == artifact["digest"], artifact["path"]


def test_both_rehearsals_and_the_noise_floor_are_in_the_report(digits: Path) -> None:
    record = json.loads((digits / "record.json").read_text())
    results = {item["step"]: item for item in record["results"]}
    one, other = (results[step]["measurements"]["comparisons"] for step in ("rehearse", "fused"))
    assert [(item["output"], item["shape"]) for item in one] == [(item["output"], item["shape"]) for item in other]
    assert one != other
    assert all(0 < item["noise"] < 1e-5 < item["max_abs"] for item in (*one, *other))
    facts = results["fused"]["facts"]
    assert facts["inside"] > 0
    low = [item for item in json.loads((digits / "onnx" / "types.json").read_text()) if item["type"] == "fp16"]
    assert facts["inside"] + facts["border"] + facts["hidden"] >= len(low)
    assert set(results["rehearse"]["facts"]["probed"]) == {"min", "opt", "max", "odd"}
    assert len(results["rehearse"]["measurements"]["growth"]["modules"]) == 10
    text = (digits / "PORT_REPORT.md").read_text()
    assert f"{facts['inside']} of {facts['inside'] + facts['border'] + facts['hidden']} low-precision values" in text
    assert "The verdict is about the first of two rehearsals." in text
    assert " %) |" in text


def test_report_is_a_pure_function_of_the_record(
    digits: Path, cli: Callable[..., Cli], tmp_path: Path
) -> None:
    done = cli("report", digits, "-o", tmp_path / "again.md")
    assert done.code == 0, done.text
    again = (tmp_path / "again.md").read_text()
    prefix = os.path.relpath(digits, tmp_path) + "/"
    again = re.sub(rf"\(cd {prefix} && (.*)\)", r"\1", again)
    assert again.replace(prefix, "") == (digits / "PORT_REPORT.md").read_text()


def test_require_turns_not_run_into_not_accepted(
    digits: Path, cli: Callable[..., Cli], tmp_path: Path
) -> None:
    done = cli("report", digits, "-o", tmp_path / "again.md", "--require", "verify")
    assert done.code == 1
    assert "require.verify" in (tmp_path / "again.md").read_text()


@pytest.mark.parametrize("step", ["source", "parity", "rehearse", "check"])
def test_by_hand_scripts_of_the_report_run(digits: Path, step: str) -> None:
    import subprocess

    text = (digits / "PORT_REPORT.md").read_text()
    block = text.split(f"**{step}**", 1)[1].split("```", 2)[1]
    language, _, code = block.partition("\n")
    command = [sys.executable, "-c", code] if language == "python" else ["bash", "-c", code]
    path = os.environ["PATH"]
    done = subprocess.run(
        command, cwd=digits, capture_output=True, text=True, check=False,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{path}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_worker_command_of_the_report_builds_the_same_engine(digits: Path) -> None:
    import subprocess

    record = json.loads((digits / "record.json").read_text())
    build = next(item for item in record["results"] if item["step"] == "build")
    request = json.loads((digits / "engine" / "request.json").read_text())
    assert request["onnx"] == "onnx/lower.onnx"  # the same wherever the run lies, so that it can be reused
    request["onnx"] = str(digits / request["onnx"])
    request |= {"engine": str(digits / "again.engine"), "verbose_log": str(digits / "again.log")}
    done = subprocess.run(
        [sys.executable, "-m", "engine.worker.fixed_addresses", sys.executable, "-m", "engine.worker.trt_worker"],
        input=json.dumps(request), cwd=ROOT,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert '"ok": true' in done.stdout
    # TensorRT orders some tables by address, and those follow the size of the environment: a few bytes may differ.
    first, again = (
        (digits / build["artifacts"]["engine"]["path"]).read_bytes(),
        Path(request["engine"]).read_bytes(),
    )
    assert len(again) == len(first)
    assert sum(one != other for one, other in zip(first, again, strict=True)) <= len(first) // 100


def tenth(text: str) -> str:
    """Every error limit of a recipe ten times tighter."""
    import re

    return re.sub(r"((?:max_abs|rel_l2): )([0-9.e-]+)", lambda m: f"{m[1]}{float(m[2]) / 10:.1e}", text)


def test_thresholds_ten_times_tighter_are_not_met(cli: Callable[..., Cli], tmp_path: Path) -> None:
    source = ROOT / "recipes" / "digits-resnet"
    folder = tmp_path / "digits"
    folder.mkdir()
    for name in ("model.py", "weights.safetensors"):
        (folder / name).write_bytes((source / name).read_bytes())
    (folder / "recipe.yaml").write_text(tenth((source / "recipe.yaml").read_text()))
    done = cli("run", folder, "--until", "build")
    assert done.code == 1, done.text
    assert "NOT ACCEPTED" in done.out


Tamper = Callable[[Path], None]


def edit(path: Path, change: Callable[[onnx.ModelProto], None]) -> None:
    model = onnx.load(path)
    change(model)
    onnx.save(model, path)


def scale_weight(out: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        weight = next(item for item in model.graph.initializer if item.name == "last.weight")
        weight.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(1.01), weight.name)
        )

    edit(out / "onnx" / "export.onnx", change)


def rename_output(out: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        model.graph.node.append(onnx.helper.make_node("Identity", ["y"], ["why"]))
        model.graph.output[0].name = "why"

    edit(out / "onnx" / "export.onnx", change)


def extra_output(out: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        model.graph.node.append(onnx.helper.make_node("Identity", ["y"], ["also"]))
        output = model.graph.output.add()
        output.CopyFrom(model.graph.output[0])
        output.name = "also"

    edit(out / "onnx" / "export.onnx", change)


def nan_output(out: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        model.graph.initializer.append(numpy_helper.from_array(np.array(np.nan, np.float32), "nan"))
        for node in model.graph.node:
            for index, name in enumerate(node.output):
                if name == "y":
                    node.output[index] = "y_before"
        model.graph.node.append(onnx.helper.make_node("Add", ["y_before", "nan"], ["y"]))

    edit(out / "onnx" / "export.onnx", change)


def wrong_shape(out: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        model.graph.initializer.append(numpy_helper.from_array(np.array([0], np.int64), "axes0"))
        for node in model.graph.node:
            for index, name in enumerate(node.output):
                if name == "y":
                    node.output[index] = "y_before"
        model.graph.node.append(onnx.helper.make_node("Unsqueeze", ["y_before", "axes0"], ["y"]))
        del model.graph.output[0].type.tensor_type.shape.dim[:]

    edit(out / "onnx" / "export.onnx", change)


def signed(result: StepResult, out: Path) -> StepResult:
    """With the files as they are now: the step itself wrote them so."""
    artifacts = {
        name: replace(item, digest=digest_file(out / item.path), bytes=(out / item.path).stat().st_size)
        for name, item in result.artifacts.items()
    }
    return replace(result, artifacts=artifacts)


GROUPS = ("torch", "graph", "lower")


@pytest.fixture(scope="module")
def ported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, StepResult]]]:
    """The toy run once up to the build: the files and results that there are after each group of steps."""
    home, found = tmp_path_factory.mktemp("ported"), {}
    (home / "recipe.yaml").write_text(dedent(RECIPE))
    (home / "model.py").write_text(dedent(MODEL))
    original = interpret.run_group

    def run_group(state: Any, group: str, steps: Any) -> None:
        original(state, group, steps)
        found[group] = (home / group, dict(state.results))
        shutil.copytree(state.out, home / group)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpret, "run_group", run_group)
        outcome = route.run(home, None, "rehearse", (), silent)
    assert outcome.exit_code == Exit.ACCEPTED, outcome.message
    assert tuple(found) == GROUPS
    return found


@pytest.fixture
def starts_after(
    ported: dict[str, tuple[Path, dict[str, StepResult]]], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Runs of the toy take what the groups up to this one made from ``ported``; what follows is run."""

    def install(last: str) -> None:
        original = interpret.run_group

        def run_group(state: Any, group: str, steps: Any) -> None:
            if group not in GROUPS[: GROUPS.index(last) + 1]:
                original(state, group, steps)
                return
            files, results = ported[group]
            shutil.copytree(files, state.out, dirs_exist_ok=True)
            for step in steps:
                state.keep(results[step.name])

        monkeypatch.setattr(interpret, "run_group", run_group)

    return install


@pytest.fixture
def tampered(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Tamper], None]:
    """Change files between two groups of steps, as a faulty tool would."""

    def install(after: str, tamper: Tamper) -> None:
        original = interpret.run_group

        def run_group(state: Any, group: str, steps: Any) -> None:
            original(state, group, steps)
            if group == after:
                tamper(state.out)
                state.results = {name: signed(result, state.out) for name, result in state.results.items()}

        monkeypatch.setattr(interpret, "run_group", run_group)

    return install


@pytest.mark.parametrize(
    ("tamper", "word"),
    [(scale_weight, ""), (rename_output, "missing; there are: why"), (nan_output, "not finite"),
     (extra_output, "nobody asked for"), (wrong_shape, "shape [1, 1, 4]")],
)  # fmt: skip
def test_a_changed_graph_is_noticed_by_parity(
    tamper: Tamper,
    word: str,
    toy: Callable[..., Path],
    starts_after: Callable[[str], None],
    tampered: Callable[[str, Tamper], None],
) -> None:
    folder = toy()
    starts_after("torch")
    tampered("torch", tamper)
    outcome = route.run(folder, None, "score", (), silent)
    assert outcome.exit_code == Exit.NOT_ACCEPTED, outcome.message
    failed = [claim for claim in outcome.verdict.claims if claim.status == "fail"]
    assert failed[0].name == "accept.onnx.max_abs"
    assert word in failed[0].why
    # A graph that is wrong in FP32 is not lowered or built.
    assert [result.step for result in outcome.record.results][-1] == "parity"
    assert not (folder / "port" / "engine").exists()


def test_dropped_output_is_noticed(toy: Callable[..., Path], tampered: Callable[[str, Tamper], None]) -> None:
    model = """
        import torch
        from torch import nn
        class Net(nn.Module):
            def forward(self, x):
                return x * 2, x + 1
        def load():
            return Net().eval()
    """

    def drop(out: Path) -> None:
        edit(out / "onnx" / "export.onnx", lambda model: model.graph.output.pop())

    folder = toy(("[y]", "[y, z]"), model=model)
    tampered("torch", drop)
    outcome = route.run(folder, None, "parity", (), silent)
    assert outcome.exit_code == Exit.NOT_ACCEPTED
    assert any("missing" in claim.why for claim in outcome.verdict.claims)


def test_fp16_that_is_fp32_in_the_parsed_network_is_an_error(
    toy: Callable[..., Path], starts_after: Callable[[str], None], tampered: Callable[[str, Tamper], None]
) -> None:
    def swap(out: Path) -> None:
        (out / "onnx" / "lower.onnx").write_bytes((out / "onnx" / "export.onnx").read_bytes())

    folder = toy()
    starts_after("lower")
    tampered("lower", swap)
    outcome = route.run(folder, None, "build", (), silent)
    assert outcome.exit_code == Exit.STEP_FAILED
    assert "asked fp16" in outcome.message
    assert "given fp32" in outcome.message
    assert "recipe.yaml:9:1" in outcome.message


def test_override_that_matches_nothing(
    toy: Callable[..., Path], starts_after: Callable[[str], None]
) -> None:
    override = "\n  overrides:\n    - {module: nrom, type: fp32, because: a}"
    folder = toy(("base: fp16", "base: fp16" + override))
    starts_after("graph")
    outcome = route.run(folder, None, "lower", (), silent)
    assert outcome.exit_code == Exit.USAGE, outcome.message
    assert "recipe.yaml:12:7" in outcome.message
    assert "norm" in outcome.message
    assert "Traceback" not in outcome.message


def test_rule_that_matches_nothing(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    folder = toy(("precision:", "rewrites:\n  - rule: sdpa-key-transpose\nprecision:"))
    done = cli("run", folder, "--until", "rewrite")
    assert done.code == 2, done.text
    assert "recipe.yaml:10:5" in done.text
    assert "Traceback" not in done.text


FAKE = """\
#!{python}
import json, os, sys, time
sys.path.insert(0, {root!r})
request = json.load(sys.stdin)
out = os.fdopen(os.dup(1), "w")
if request["op"] == "probe":
    value = {{"ok": True, "version": "1.7.1.116", "errors": []}}
    print(json.dumps({{"kind": "result", "value": value}}), file=out, flush=True)
    sys.exit(0)
print("TensorRT: fusing node_42", file=sys.stderr, flush=True)
{deed}
"""
DEEDS = {
    "segfault": ("import ctypes; ctypes.string_at(0)", "signal 11"),
    "killed": ("os.kill(os.getpid(), 9)", "signal 9"),
    "hang": ("time.sleep(60)", "no answer within 2 s"),
    "silent exit": ("sys.exit(0)", "without a result"),
    "abort": ("os.abort()", "signal 6"),
    "memory": ("x = bytearray(300 << 20); time.sleep(30)", "limit 128 MiB"),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_worker_that_dies(
    deed: str, toy: Callable[..., Path], starts_after: Callable[[str], None], tmp_path: Path
) -> None:
    folder, words = dying(deed, toy, tmp_path)
    starts_after("lower")
    outcome = route.run(folder, None, "build", (), silent)
    assert outcome.exit_code == Exit.STEP_FAILED, outcome.message
    assert_told(folder, outcome.message, words)


def test_worker_that_dies_on_the_command_line(
    toy: Callable[..., Path], cli: Callable[..., Cli], tmp_path: Path
) -> None:
    folder, words = dying("segfault", toy, tmp_path)
    done = cli("run", folder, "--until", "build")
    assert done.code == 3, done.text
    assert_told(folder, done.text, words)


def dying(deed: str, toy: Callable[..., Path], tmp_path: Path) -> tuple[Path, str]:
    """The toy with a TensorRT that dies in the build; what must be said about it."""
    code, words = DEEDS[deed]
    fake = tmp_path / "python"
    fake.write_text(FAKE.format(python=sys.executable, root=str(ROOT), deed=code))
    fake.chmod(fake.stat().st_mode | stat.S_IEXEC)
    limits = ", time_limit_s: 2" if deed == "hang" else ", memory_limit_mib: 128" if deed == "memory" else ""
    folder = toy(("build: {target: sm89}", f"build: {{toolchain: 'path:{fake}', target: sm89{limits}}}"))
    return folder, words


def assert_told(folder: Path, text: str, words: str) -> None:
    assert words in text
    assert "recipe.yaml:" in text
    report = (folder / "PORT_REPORT.md").read_text()
    assert "TensorRT: fusing node_42" in report
    assert words in report
    # What was written before stays valid.
    onnx.checker.check_model(folder / "port" / "onnx" / "lower.onnx", full_check=True)
    assert record_of(folder)["failed_step"] == "build"


def test_no_toolchain_is_no_acceptance(
    toy: Callable[..., Path], starts_after: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine import toolchain
    from engine.errors import RecipeError

    loaded, planned = intake.make_plan(toy())
    folder = loaded.folder / "port"
    real = toolchain.resolve

    def none(spec: str) -> Any:
        raise RecipeError("no TensorRT here", hint="pip install 'portwright[cpu]'")

    monkeypatch.setattr(toolchain, "resolve", none)
    starts_after("lower")
    with workspace.claim(folder):
        done = interpret.run(planned, folder, "build", silent)
    monkeypatch.setattr(toolchain, "resolve", real)
    from engine import accept

    verdict = accept.judge(done)
    assert not verdict.accepted
    claim = next(claim for claim in verdict.claims if claim.name == "build")
    assert claim.status == "fail"
    assert "no TensorRT here" in claim.why


def test_interrupt_keeps_the_record(toy: Callable[..., Path], tmp_path: Path) -> None:
    import subprocess

    folder = toy(model="import time\ntime.sleep(60)\ndef load():\n    pass\n")
    child = subprocess.Popen(
        [sys.executable, "-m", "engine.cli", "run", str(folder)], cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while not (folder / "port" / "logs" / "torch.log").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.5)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130, out + err
    assert "Traceback" not in out + err
    assert record_of(folder)["interrupted"] is True


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """MiniLM-L6 with its real weights, to the end; no figure of speed is looked at, so few rounds are timed."""
    source, home = ROOT / "recipes" / "minilm-l6", tmp_path_factory.mktemp("minilm")
    shutil.copy(source / "model.py", home)
    text = (source / "recipe.yaml").read_text()
    assert "bench:" not in text
    (home / "recipe.yaml").write_text(f"{text}\nbench: {{rounds: 2, warmup: 1}}\n")
    out = home / "port"
    outcome = route.run(home, out, "score", (), silent)
    assert outcome.exit_code == Exit.ACCEPTED, outcome.message
    record: dict[str, Any] = json.loads((out / "record.json").read_text())
    return {item["step"]: item for item in record["results"]} | {"record": record, "report": outcome.report}


def test_minilm_types_are_proven_in_the_parsed_network(minilm: dict[str, Any]) -> None:
    facts = minilm["build"]["facts"]
    assert facts["types_checked"] > 200
    assert "fp16" in facts["types_proof"]
    assert facts["fusion"]["attention"] >= 6
    assert facts["fused_types"]["float16"] > 50


def test_minilm_overrides_are_by_module_path(minilm: dict[str, Any]) -> None:
    facts = minilm["lower"]["facts"]
    assert facts["node_types"]["fp32"] == 13
    norms = [module for module, kinds in facts["modules"].items() if kinds.get("fp32")]
    assert len(norms) == 13
    assert all(module.endswith("LayerNorm") for module in norms)


def test_minilm_mask_constant_is_in_the_issue_log(minilm: dict[str, Any]) -> None:
    text = Path(minilm["report"]).read_text()
    assert "-3.40282e+38 does not fit FP16" in text


def test_minilm_is_the_real_model(minilm: dict[str, Any]) -> None:
    assert minilm["source"]["facts"]["parameters"] == 22_713_216
    assert minilm["export"]["facts"]["inputs"]["input_ids"] == "int64[batchxseq]"
