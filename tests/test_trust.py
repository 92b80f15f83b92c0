"""Ways to be accepted while wrong that were once open, and how each is closed now."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import record as records
from engine import samples
from tests.conftest import Cli, record_of

HEAD = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a = nn.Linear(8, 4)

        def forward(self, x{more}):
{body}

    def load():
        return Net()
"""


def net(body: str, more: str = "") -> str:
    return HEAD.format(more=more, body="\n".join(" " * 12 + line for line in body.splitlines()))


def step(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(item for item in record_of(folder)["results"] if item["step"] == name)
    return found


def test_a_model_that_changes_its_input_cannot_change_the_samples(
    toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    folder = toy(model=net("return self.a(torch.relu_(x))"))
    done = cli("run", folder, "--until", "parity")
    assert done.code == 0, done.text
    assert samples.read(folder / "port" / "samples" / "opt.npz", "input")["x"].min() < 0
    assert any("in place (x)" in issue["symptom"] for issue in step(folder, "source")["issues"])


def test_numpy_behind_the_tracers_back_is_noticed(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    body = "import numpy\na = x.detach().numpy()\nnumpy.maximum(a, 0, out=a)\nreturn self.a(x)"
    folder = toy(("precision:", "export: {exporter: torchscript}\nprecision:"), model=net(body))
    assert cli("run", folder, "--until", "parity").code == 1


def test_what_was_left_out_is_said(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    folder = toy(
        model=net("y = self.a(x)\nreturn {'y': y, 'hidden': x, 'nothing': None}", more=", bias=None")
    )
    done = cli("run", folder, "--until", "source")
    assert done.code == 0, done.text
    symptoms = [issue["symptom"] for issue in step(folder, "source")["issues"]]
    assert "returned by the model and not ported: hidden" in symptoms
    assert "optional inputs left at their defaults: bias" in symptoms


def test_a_model_without_dropout_or_batch_norm_may_come_in_training_mode(
    toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    folder = toy(model=net("return self.a(x)"))
    assert cli("run", folder, "--until", "source").code == 0
    assert step(folder, "source")["issues"] == []


@pytest.mark.parametrize("kind", ["half", "double", "bfloat16"])
def test_parameters_that_are_not_fp32(kind: str, toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    done = cli("run", toy(model=net("return self.a(x)").replace("return Net()", f"return Net().{kind}()")))
    assert done.code == 2, done.text
    assert "the model's parameters are" in done.text


@pytest.mark.parametrize("deed", ["raise SystemExit(0)", "raise KeyboardInterrupt"])
def test_a_model_that_ends_the_process(deed: str, toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    done = cli("run", toy(model=net(deed)), "--until", "source")
    assert done.code == 3, done.text
    assert deed.split()[1].split("(")[0] in done.text


def test_a_hang_is_stopped_by_the_time_limit(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    folder = toy(model=net("import time\ntime.sleep(60)\nreturn self.a(x)"))
    done = cli("run", folder, "--time-limit", "6", timeout=60)
    assert done.code == 3, done.text
    assert "no answer within 6 s" in done.text


def test_a_stray_thread_does_not_hold_the_run_up(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    body = (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\nreturn self.a(x)"
    )
    assert cli("run", toy(model=net(body)), "--until", "source", timeout=60).code == 0


WEAK = """\
rule: weak
class: op
why: A clip is a relu where nobody looks.
match: |
  (x, low, high) => (y) { y = Clip (x, low, high) }
replace: |
  (x) => (y) { y = Relu (x) }
proof:
  axes: {n: [2]}
  inputs:
    x: {dtype: float32, shape: [n], values: [ones]}
    low: {dtype: float32, shape: [], values: {constant: 0}}
    high: {dtype: float32, shape: [], values: {constant: 6}}
  equal: {max_abs: 0}
needed_by: {tensorrt-rtx: never}
"""


def test_a_rule_proven_on_easy_values_only_is_refused(
    toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    folder = toy(("precision:", "rewrites:\n  - rule: weak.yaml\nprecision:"),
                 model=net("return nn.functional.relu6(self.a(x))"))  # fmt: skip
    (folder / "weak.yaml").write_text(WEAK)
    done = cli("run", folder, "--until", "parity")
    assert done.code == 3, done.text
    assert "not proven equal" in done.text
    assert "Traceback" not in done.text


def test_an_override_that_the_plan_cannot_show_is_a_claim_not_run(
    toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    overrides = "base: fp16\n  overrides:\n    - {op: Relu, type: fp32, because: a test}"
    folder = toy(("base: fp16", overrides))
    done = cli("run", folder)
    assert done.code == 0, done.text
    claims = {claim["name"]: claim for claim in record_of(folder)["verdict"]["claims"]}
    claim = claims["fused plan carries overrides[0], fp32"]
    assert claim["status"] in ("pass", "not run")
    assert (claim["status"] == "pass") == step(folder, "build")["facts"]["plan_shows"]["overrides[0], fp32"]
    assert bool(claim["why"]) == (claim["status"] == "not run")


@pytest.fixture(scope="module")
def ported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from engine import route
    from tests.conftest import MODEL, RECIPE, dedent

    folder = tmp_path_factory.mktemp("ported")
    (folder / "recipe.yaml").write_text(dedent(RECIPE))
    (folder / "model.py").write_text(dedent(MODEL))
    assert route.run(folder, None, "score", (), lambda event: None).exit_code == 0
    return folder


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [("engine/toy-sm89.engine", "gone", "is gone"), ("engine/toy-sm89.engine", "changed", "was changed since the run"),
     ("onnx/lower.onnx", "changed", "was changed since the run")],
)  # fmt: skip
def test_report_looks_at_the_files(
    name: str, damage: str, words: str, ported: Path, cli: Callable[..., Cli], tmp_path: Path
) -> None:
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(ported, folder)
    assert cli("report", folder / "recipe.yaml").code == 0
    path = folder / "port" / name
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + b"x")
    done = cli("report", folder)
    assert done.code == 1, done.text
    assert f"{name} {words}" in done.out


def tampered(record: dict[str, Any], how: str) -> None:
    results = {item["step"]: item for item in record["results"]}
    if how == "a comparison removed":
        results["parity"]["measurements"]["comparisons"].pop()
    elif how == "a figure that is text":
        results["parity"]["measurements"]["comparisons"][0]["max_abs"] = "small"
    elif how == "a path outside":
        results["build"]["artifacts"]["engine"]["path"] = "../../../etc/passwd"


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [("a comparison removed", 1, "was not compared"), ("a path outside", 1, "outside the folder"),
     ("a figure that is text", 2, "record.json: not a run record that this version can use")],
)  # fmt: skip
def test_report_of_a_tampered_record(
    how: str, code: int, words: str, ported: Path, cli: Callable[..., Cli], tmp_path: Path
) -> None:
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(ported, folder)
    path = folder / "port" / "record.json"
    record = json.loads(path.read_text())
    tampered(record, how)
    report = (folder / "PORT_REPORT.md").read_text()
    path.write_text(json.dumps(record))
    done = cli("report", folder)
    assert done.code == 2, done.text
    assert "port/record.json: was changed since the run wrote it" in done.err
    assert (folder / "PORT_REPORT.md").read_text() == report
    path.write_text(records.text(record))  # as if a run had written it
    done = cli("report", folder)
    assert done.code == code, done.text
    assert words in done.text + (folder / "PORT_REPORT.md").read_text()
    assert "Error" not in done.text


def test_an_axis_beyond_any_memory(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    done = cli("run", toy(("max: 16", "max: 2000000000")), "--until", "source")
    assert done.code == 2, done.text
    assert "the inputs alone take" in done.text
    assert "recipe.yaml:5:" in done.text


def test_closed_stdout_is_no_crash(toy: Callable[..., Path], tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    from tests.conftest import ROOT

    command = f"exec {sys.executable} -m engine.cli run {toy()} --until source >&-"
    done = subprocess.run(
        ["bash", "-c", command], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True
    )
    assert done.returncode == 0, done.stderr


def test_a_refusal_names_the_rules_that_start_from_the_op() -> None:
    from engine.rules import library

    assert library.for_op("DFT") == ("dft-to-matmul",)
    assert library.for_op("Transpose") == ("masked-assignment-to-where", "sdpa-key-transpose")
    assert library.for_op("Bernoulli") == ()
