"""The command line: messages, exit codes, and what a machine reads."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import record, schema
from tests.conftest import ROOT, Cli


def test_every_shipped_recipe_checks(cli: Callable[..., Cli]) -> None:
    recipes = sorted(path.parent for path in (ROOT / "recipes").glob("*/recipe.yaml"))
    assert len(recipes) >= 2
    done = cli("check", *recipes)
    assert done.code == 0, done.text
    assert done.out.count(": ok") == len(recipes)


def test_check_reports_all_files(cli: Callable[..., Cli], toy: Callable[..., Path]) -> None:
    folder = toy(("base: fp16", "base: fp15"))
    done = cli("check", folder, "nowhere", folder)
    assert done.code == 2
    assert "nowhere: no such recipe" in done.err
    assert done.err.count("'fp15' is not one of") == 2
    assert done.err.endswith(
        "3 problems\nread more: docs/recipe-reference.md#precision; or `portwright schema`\n"
    )


def test_where_to_read_more(cli: Callable[..., Cli], toy: Callable[..., Path]) -> None:
    done = cli("check", toy(("base: fp16", "base: fp15"), ("max: 16", "max: x")))
    line = done.err.splitlines()[-1]
    assert line == (
        "read more: docs/recipe-reference.md#axes, docs/recipe-reference.md#precision; or `portwright schema`"
    )
    headings = (ROOT / "docs" / "recipe-reference.md").read_text().splitlines()
    assert {f"## {key}" for key in schema.load("recipe")["properties"]} <= set(headings)
    assert "read more" not in cli("check", toy(("[y]", "[y"))).err


@pytest.mark.parametrize(
    "args",
    [
        ["fly"],
        ["run"],
        ["run", "x", "--until", "moon"],
        ["run", "x", "--require", "moon"],
        ["check"],
        ["--what"],
    ],
)
def test_usage_errors(args: list[str], cli: Callable[..., Cli]) -> None:
    done = cli(*args)
    assert done.code == 2
    assert "Traceback" not in done.text


def test_unreadable_recipe(cli: Callable[..., Cli], tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").mkdir()
    done = cli("check", tmp_path / "recipe.yaml" / "recipe.yaml")
    assert done.code == 2
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(bytes(range(256)))
    done = cli("check", binary)
    assert done.code == 2
    assert "Traceback" not in done.text


def test_a_pipe_is_no_recipe(cli: Callable[..., Cli], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = cli("check", tmp_path / "pipe", timeout=20)
    assert done.code == 2
    assert "not a regular file" in done.err


def test_plan_as_json(cli: Callable[..., Cli], toy: Callable[..., Path]) -> None:
    done = cli("plan", toy(), "--json")
    assert done.code == 0
    plan = json.loads(done.out)
    assert plan["opset"] == 18
    assert len(plan["digest"]) == 64


def test_show_prints_yaml_with_the_defaults(cli: Callable[..., Cli], toy: Callable[..., Path]) -> None:
    import yaml

    done = cli("show", toy())
    assert done.code == 0
    assert yaml.safe_load(done.out)["exporter"] == "dynamo"


def choices(out: str) -> dict[str, str]:
    table = out.split("\n\n")[1]
    return dict(re.split(r" {2,}", line, maxsplit=1) for line in table.splitlines())


def test_plan_is_readable(cli: Callable[..., Cli], toy: Callable[..., Path]) -> None:
    done = cli("plan", toy())
    assert "odd" in done.out
    assert "rehearse" in done.out
    rows = choices(done.out)
    assert rows["export"] == "dynamo, opset 18, simplify none"
    assert rows["precision"] == "base fp16, inputs and outputs keep"
    assert rows["build"].startswith("toolchain current, target sm89")
    assert rows["accept.onnx"] == "max_abs <= 1e-05"


def test_plan_prints_what_the_recipe_adds_and_leaves_out(
    cli: Callable[..., Cli], toy: Callable[..., Path]
) -> None:
    stress = (
        "stress:\n  add: [{name: big, axes: {batch: 2}, values: {x: {uniform: [90, 100]}}, because: why not}]\n"
        "  leave_out: [{case: zeros, because: never zero}]\nprecision:"
    )
    override = "base: bf16\n  overrides: [{op: Softmax, type: fp32, because: it may overflow}]"
    edits = (
        ("precision:", stress),
        ("base: fp16", override),
        ("max_abs: 1.0e-5}", "max_abs: 1.0e-5}\n  rounding: 2"),
    )
    out = cli("plan", toy(*edits)).out
    rows = choices(out)
    assert rows["stress adds big"] == "x at batch 2"
    assert rows["stress leaves out zeros"] == "never zero"
    assert rows["override 0"] == "op Softmax fp32"
    assert rows["accept.rounding"] == "<= 2"


def test_doctor(cli: Callable[..., Cli]) -> None:
    done = cli("doctor", "--json")
    findings = {item["what"]: item for item in json.loads(done.out)}
    assert findings["tensorrt-rtx"]["state"] == "ok"
    assert "sm89" in findings["tensorrt-rtx"]["detail"]
    assert all(item["mend"] for item in findings.values() if item["state"] == "missing")
    assert done.code == 0


def test_report_of_nothing(cli: Callable[..., Cli], tmp_path: Path) -> None:
    done = cli("report", tmp_path)
    assert done.code == 2
    assert "run the recipe first" in done.err


@pytest.mark.parametrize(
    ("text", "words"),
    [("", ":1:1: not JSON"), ('{"plan":\n }', ":2:2: not JSON"), ("[]", ": not a run record"),
     ("[" * 99999, ": not JSON"),
     ('{"format": 99}', ": record format 99; this version reads 6"), ("{}", ": not a run record"),
     ('{"format": 6}', ": was changed since the run wrote it"), ('{"format": 6, "x": NaN}', ": was changed"),
     (record.text({"format": 6, "plan": 7}), ": not a run record that this version can use")],
    ids=range(9),
)  # fmt: skip
def test_report_of_a_broken_record(text: str, words: str, cli: Callable[..., Cli], tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text(text)
    done = cli("report", tmp_path)
    assert done.code == 2, done.text
    assert f"record.json{words}" in done.err
    assert len(done.err.splitlines()) == 2


def test_a_fault_of_ours_writes_a_log(
    cli: Callable[..., Cli], toy: Callable[..., Path], tmp_path: Path
) -> None:
    # A schema that is no schema cannot be the user's fault.
    code = "import engine.schema as s; s.load = lambda name: 1/0"
    (tmp_path / "sitecustomize.py").write_text(code)
    done = cli("check", toy(), env={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert done.code == 4, done.text
    assert "ZeroDivisionError" in done.err
    log = Path(done.err.rsplit("log: ", 1)[1].strip())
    assert "Traceback" in log.read_text()
    log.unlink()


def test_json_run(cli: Callable[..., Cli], toy: Callable[..., Path]) -> None:
    done = cli("run", toy(), "--until", "check", "--json")
    assert done.code == 0, done.text
    assert json.loads(done.out)["verdict"]["accepted"] is True
    events = [json.loads(line) for line in done.err.splitlines()]
    assert {"step-start", "progress", "step"} <= {event["kind"] for event in events}
