"""Each bad recipe is a file with one fault, and its whole message is beside it."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import pytest

from engine import document, intake, schema
from engine.errors import RecipeError
from engine.recipe import LoadedRecipe, load

FOLDER = Path(__file__).parent / "recipes"
REJECT = sorted((FOLDER / "reject").glob("*.yaml"))
ACCEPT = sorted((FOLDER / "accept").glob("*.yaml"))


def message(path: Path) -> str:
    try:
        intake.check(path)
    except RecipeError as error:
        text = str(error).replace(f"{path.parent}{os.sep}", "").replace(str(path.parent), "FOLDER")
        text = text.replace(str(FOLDER / "base"), "BASE")
        return text.replace(version("tensorrt-rtx"), "VERSION") + "\n"
    return "accepted\n"


@pytest.mark.parametrize("path", REJECT, ids=lambda path: path.stem)
def test_reject(path: Path) -> None:
    expected = path.with_suffix(".txt")
    got = message(path)
    if os.environ.get("PORTWRIGHT_WRITE_MESSAGES"):
        expected.write_text(got)
    assert got == expected.read_text()
    assert got != "accepted\n"


@pytest.mark.parametrize("path", ACCEPT, ids=lambda path: path.stem)
def test_accept(path: Path) -> None:
    assert message(path) == "accepted\n"


def test_there_are_cases() -> None:
    assert len(REJECT) >= 80
    assert len(ACCEPT) >= 20


def test_all_problems_at_once(tmp_path: Path) -> None:
    text = (FOLDER / "accept" / "full.yaml").read_text()
    text = text.replace("dtype: float32", "dtype: flaot32").replace("min: 1", "min: one")
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(RecipeError) as caught:
        load(tmp_path)
    assert len(caught.value.problems) >= 2
    lines = [problem.place.line for problem in caught.value.problems if problem.place]
    assert lines == sorted(lines)


def test_every_message_has_a_place() -> None:
    for path in REJECT:
        first = path.with_suffix(".txt").read_text().splitlines()[0]
        assert first.startswith((f"{path.name}:", "BASE/", "rules/")), first


def test_folder_of_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such recipe"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("text", "value"),
    [("no", "no"), ("on", "on"), ("12:30", "12:30"), ("1e-3", 1e-3), ("0x10", 16), ("~", None), ("true", True),
     ("1_000", "1_000"), ("'1'", "1"), ("007", 7), (".5", 0.5)],
)  # fmt: skip
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    assert document.parse(f"a: {text}").data == {"a": value}


def test_place_of_keys_and_values() -> None:
    found = document.parse("a:\n  - b: 1\n    c: x\n", "f.yaml")
    assert str(found.place(("a", 0, "c"))) == "f.yaml:3:8"
    assert str(found.place(("a", 0, "c"), key=True)) == "f.yaml:3:5"


def test_schema_problems_are_in_file_order() -> None:
    found = document.parse("zz: 1\nportwright: 2\n")
    places = [problem.place.line for problem in schema.problems(found, "recipe") if problem.place]
    assert places == sorted(places)


def test_loaded_recipe_is_frozen() -> None:
    loaded = load(FOLDER / "accept" / "full.yaml")
    assert isinstance(loaded, LoadedRecipe)
    with pytest.raises(AttributeError):
        loaded.recipe.name = "other"  # type: ignore[misc]
