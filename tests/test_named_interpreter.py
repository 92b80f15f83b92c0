"""``toolchain: path:...`` names a program: it is run by ``run``, and by nothing that only looks at a recipe."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import toolchain
from engine.errors import RecipeError
from tests.conftest import Cli


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that leaves a mark when it is run."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "command",
    [["check"], ["plan"], ["show"], ["show", "--resolved"], ["diff", "toy"], ["fmt", "--check"]], ids=" ".join,
)  # fmt: skip
def test_looking_at_a_recipe_runs_nothing(
    command: list[str], program: Path, cli: Callable[..., Cli], toy: Callable[..., Path], tmp_path: Path
) -> None:
    folder = toy(("{target: sm89}", f"{{toolchain: 'path:{program}'}}"))
    done = cli(*command, folder)
    assert (done.code, done.err) == (0, "")
    assert not (tmp_path / "was-run").exists()


def test_a_run_asks_it_before_any_work(
    program: Path, cli: Callable[..., Cli], toy: Callable[..., Path], tmp_path: Path
) -> None:
    folder = toy(("{target: sm89}", f"{{toolchain: 'path:{program}'}}"))
    done = cli("run", folder)
    assert done.code == 2
    assert f"build.toolchain: toolchain path:{program}: " in done.err
    assert "could not be asked about tensorrt_rtx" in done.err
    assert (tmp_path / "was-run").exists()
    assert not (folder / "port").exists()


def test_what_depends_on_its_version_is_an_error_of_the_run(
    cli: Callable[..., Cli], toy: Callable[..., Path]
) -> None:
    more = f"{{toolchain: 'path:{sys.executable}'}}\nexport: {{opset: 30}}"
    folder = toy(("{target: sm89}", more))
    assert cli("check", folder).code == 0
    done = cli("run", folder)
    assert done.code == 2
    assert "export.opset: 30 is above " in done.err
    assert not (folder / "port").exists()


@pytest.mark.parametrize("mode", [0o644, None])
def test_a_file_that_is_no_program(mode: int | None, tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.mkdir() if mode is None else path.touch(mode)
    with pytest.raises(RecipeError, match="is not a program"):
        toolchain.find(f"path:{path}")


def test_another_users_home_that_is_not_there() -> None:
    with pytest.raises(RecipeError, match="is not a program"):
        toolchain.find("path:~nobody-of-that-name/bin/python")
