"""What is printed where: in any locale, and to a reader that goes away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest

from tests.conftest import ROOT

LOCALES = (
    {"LC_ALL": "C", "PYTHONUTF8": "0"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
)
COMMANDS = (["check"], ["show"], ["show", "--resolved"], ["plan"], ["plan", "--json"], ["fmt"], ["diff", "ré漢"],
            ["check", "--format", "github"], ["run", "--until", "source"])  # fmt: skip


def called(*args: str, folder: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "engine.cli", *args]
    path = os.environ | {"PYTHONPATH": str(ROOT)} | (env or {})
    return subprocess.run(command, cwd=folder, env=path, capture_output=True, check=False)


@pytest.fixture
def named(toy: Callable[..., Path]) -> Path:
    """A recipe whose path and text need more than ASCII, or Latin-1."""
    folder = toy(("name: toy", "name: toy\nabout: é漢")).rename(toy().parent / "ré漢")
    return folder.parent


@pytest.mark.parametrize("env", LOCALES, ids=lambda env: " ".join(f"{k}={v}" for k, v in env.items()))
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_any_locale(command: list[str], env: dict[str, str], named: Path) -> None:
    if command[0] == "run" and env != LOCALES[0]:
        pytest.skip("one locale is enough for the slow command")
    done = called(*command, "ré漢", folder=named, env=env)
    assert done.returncode == 0, done.stderr
    assert b"fault of Portwright" not in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("env", LOCALES[:2])
def test_a_path_is_printed_as_it_is(env: dict[str, str], named: Path) -> None:
    assert called("check", "ré漢", folder=named, env=env).stdout == "ré漢/recipe.yaml: ok\n".encode()
    (named / "ré漢" / "recipe.yaml").write_text("name: é漢\n")
    assert (
        "ré漢/recipe.yaml:1:7: name: 'é漢' does not".encode()
        in called("check", "ré漢", folder=named, env=env).stderr
    )
    log = json.loads(called("check", "--format", "sarif", "ré漢", folder=named, env=env).stdout)
    place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert unquote_to_bytes(place["artifactLocation"]["uri"]) == "ré漢/recipe.yaml".encode()


def test_a_path_that_is_no_utf_8(toy: Callable[..., Path]) -> None:
    folder = toy()
    os.rename(os.fsencode(folder), os.fsencode(folder.parent) + b"/r\xe9")
    done = called("check", os.fsdecode(b"r\xe9"), folder=folder.parent)
    assert (done.returncode, done.stdout) == (0, b"r\xe9/recipe.yaml: ok\n")


def test_a_reader_that_goes_away_does_not_end_a_run(toy: Callable[..., Path]) -> None:
    folder = toy()
    (folder / "PORT_REPORT.md").write_text("of an earlier run")
    command = f"{sys.executable} -m engine.cli run toy --until export | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=folder.parent, env=os.environ | {"PYTHONPATH": str(ROOT)},
                          capture_output=True, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (141, b"")
    assert b"source" in done.stdout
    assert "ACCEPTED as far as it ran (stopped after export)" in (folder / "PORT_REPORT.md").read_text()


def test_quiet_is_one_line_where_a_claim_is_not_run(toy: Callable[..., Path]) -> None:
    edits = (
        ("precision:", "stress: {leave_out: [{case: fp64, because: slow}]}\nprecision:"),
        ("max_abs: 1.0e-5}", "max_abs: 1.0e-5}\n  rounding: 1"),
    )
    folder = toy(*edits)
    done = called("run", "-q", "toy", "--until", "parity", folder=folder.parent)
    assert "| not run: left out: slow |" in (folder / "PORT_REPORT.md").read_text()
    assert done.stdout == b"toy: ACCEPTED as far as it ran (stopped after parity)\n"
    assert done.stderr == b""


@pytest.mark.parametrize(
    "command", [["schema"], ["show", "toy"], ["plan", "toy"], ["check", "toy"], ["--help"]], ids=" ".join
)
def test_a_reader_that_went_away(command: list[str], toy: Callable[..., Path]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    path = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", "engine.cli", *command], cwd=toy().parent, env=path,
                          stdout=writer, stderr=subprocess.PIPE, check=False)  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
