"""The small tools around the recipe language: schema, hooks, reference."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from engine import schema
from engine.rules import library
from tests.conftest import ROOT, Cli


@pytest.mark.parametrize(
    ("arguments", "name"), [((), "recipe"), (("recipe",), "recipe"), (("rule",), "rule"), (("lock",), "lock")]
)
def test_schema_is_printed_as_it_ships(
    arguments: tuple[str, ...], name: str, cli: Callable[..., Cli]
) -> None:
    done = cli("schema", *arguments)
    assert done.code == 0
    assert done.out == (ROOT / "schemas" / f"{name}.schema.json").read_text()
    assert json.loads(done.out) == schema.load(name)


def test_there_is_no_other_schema(cli: Callable[..., Cli]) -> None:
    assert cli("schema", "record").code == 2


HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())


def test_hooks_have_what_pre_commit_needs() -> None:
    assert [hook["id"] for hook in HOOKS] == ["portwright-check", "portwright-fmt"]
    for hook in HOOKS:
        assert {"id", "name", "entry", "language"} <= hook.keys()
        assert hook["language"] == "system"


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_hooks_run(hook: dict[str, str], cli: Callable[..., Cli], toy: Callable[..., Path]) -> None:
    """As pre-commit calls them: the entry, then the files that match."""
    file = toy() / "recipe.yaml"
    program, *arguments = shlex.split(hook["entry"])
    assert program == "portwright"
    assert cli(*arguments, file).code == 0
    file.write_text("portwright: [\n")
    assert cli(*arguments, file).code == 2


@pytest.mark.parametrize(
    ("path", "matches"),
    [("recipe.yaml", True), ("recipes/a/recipe.yaml", True), ("a/recipe.yml", True), ("a/my-recipe.yaml", False),
     ("recipe.yaml.j2", False), ("rewrites/x.yaml", False)],
)  # fmt: skip
def test_hooks_take_recipes_only(path: str, matches: bool) -> None:
    assert all(bool(re.search(hook["files"], path)) == matches for hook in HOOKS)


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_reference", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_reference_is_in_step(generate: ModuleType) -> None:
    assert (ROOT / "docs" / "recipe-reference.md").read_text() == generate.page(), "run make docs"


def test_rules_are_in_step(generate: ModuleType) -> None:
    assert (ROOT / "docs" / "rewrites.md").read_text() == generate.rewrites(), "run make docs"


def test_rules_have_the_same_five_headings(generate: ModuleType) -> None:
    _, *sections = re.split(r"^## ", generate.rewrites(), flags=re.M)
    assert [section.split("\n")[0] for section in sections] == list(library.names())
    for section in sections:
        headings = re.findall(r"^### (.*)$", section, re.M)
        assert headings == ["What breaks", "Versions", "Idea", "Cost", "Tolerance"]


def test_documents_that_are_out_of_step_are_named(
    generate: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate.sys, "argv", ["generate.py", "--check"])
    monkeypatch.setitem(generate.PAGES, "rewrites.md", lambda: "another text\n")
    assert generate.main() == 1
    assert capsys.readouterr().out.splitlines() == [
        "docs/recipe-reference.md: in step", "docs/rewrites.md: out of step; run make docs"]  # fmt: skip


def test_reference_has_every_key_once(generate: ModuleType) -> None:
    from tests.test_diff import KEYS

    page = generate.page()
    named = re.findall(r"^(?:## |\| `)([^\s`|]+)", page, re.M)
    plain = [path.replace("[]", "").replace(".NAME", "") for path in named]
    assert set(KEYS) <= set(plain)
    assert len(named) == len(set(named))


def test_examples_of_the_reference_are_valid(generate: ModuleType) -> None:
    """Each example, put into the smallest recipe, has the right form."""
    from engine import document

    small = document.read(ROOT / "tests" / "recipes" / "accept" / "small.yaml").data
    for block in re.findall(r"```yaml\n(.*?)```", generate.page(), re.S):
        found = document.parse(yaml.safe_dump(small | document.parse(block).data))
        assert schema.problems(found, "recipe") == []


def test_a_schema_that_moved_on_is_noticed(generate: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = json.loads(json.dumps(schema.load("recipe")))
    moved["properties"]["seed"]["description"] = "Something else."
    monkeypatch.setattr(generate, "SCHEMA", moved)
    assert (ROOT / "docs" / "recipe-reference.md").read_text() != generate.page()
