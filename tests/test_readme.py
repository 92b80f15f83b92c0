"""What the README shows is true: its commands exist, its recipe is valid, its error message is what is printed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from engine.steps import NAMES
from tests.conftest import ROOT, Cli

TEXT = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"(?:^ {4}|`)make ([a-z-]+)", TEXT, re.M))))
def test_make_targets_exist(target: str) -> None:
    assert re.search(rf"^{target}:", MAKEFILE, re.M), target


@pytest.mark.parametrize("command", sorted(set(re.findall(r"^ +portwright ([a-z]+)", TEXT, re.M))))
def test_commands_exist_and_have_help(command: str, cli: Callable[..., Cli]) -> None:
    done = cli(command, "--help")
    assert done.code == 0
    assert len(done.out) > 80


def test_every_command_is_in_the_readme() -> None:
    from engine.cli import COMMANDS

    for command in COMMANDS:
        assert re.search(rf"^ +portwright {command}\b", TEXT, re.M), command


OF_COMMAND = re.findall(r"^ +portwright ([a-z]+) (.*)", TEXT, re.M)


@pytest.mark.parametrize("option", sorted(set(re.findall(r"--[a-z]+", TEXT))))
def test_options_exist(option: str, cli: Callable[..., Cli]) -> None:
    """Of the command on whose line the option stands; of ``run`` elsewhere in the text."""
    commands = {command for command, line in OF_COMMAND if option in line} or {"run", "init"}
    assert any(option in cli(command, "--help").out for command in commands), commands


def test_every_step_is_in_the_table() -> None:
    table = re.findall(r"^\| ([a-z]+) \|", TEXT, re.M)
    assert [name for name in table if name in NAMES] == list(NAMES)


def test_the_recipe_is_valid_and_says_what_the_shipped_one_says(tmp_path: Path) -> None:
    from engine import intake

    block = re.search(r"```yaml\n(.*?)```", TEXT, re.S)
    assert block is not None
    (tmp_path / "recipe.yaml").write_text(block[1])
    (tmp_path / "model.py").write_text((ROOT / "recipes" / "minilm-l6" / "model.py").read_text())
    intake.check(tmp_path)
    shown = yaml.safe_load(block[1])
    shipped = yaml.safe_load((ROOT / "recipes" / "minilm-l6" / "recipe.yaml").read_text())
    for key in ("model", "axes", "inputs", "outputs", "export", "simplify", "build"):
        assert shown[key] == shipped[key], key


def test_the_error_message_is_what_is_printed() -> None:
    block = re.search(r"```\n(recipe\.yaml:.*?)```", TEXT, re.S)
    assert block is not None
    stored = (ROOT / "tests" / "recipes" / "reject" / "dtype.txt").read_text()
    assert block[1] == stored.replace("dtype.yaml", "recipe.yaml")


def test_linked_files_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target
