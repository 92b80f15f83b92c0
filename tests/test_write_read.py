"""Writing and reading again is the identity: of the writer, of ``fmt``, of recipes as data and as dataclasses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from engine import document, formatting, schema, writing
from engine.plain import from_plain, to_plain
from engine.recipe import Recipe
from tests import mutations, recipe_data
from tests.conftest import Cli

SLOW = settings(
    max_examples=40,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**98), 10**98), recipe_data.TEXTS,
    st.floats(allow_nan=False, allow_infinity=False),
)  # fmt: skip
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(recipe_data.TEXTS, inner), max_leaves=8
)


def same(one: Any, other: Any) -> bool:
    """Equal with the types of numbers and the order of keys; 0.0 is not -0.0."""
    return repr(one) == repr(other)


def written_without_none(recipe: Any) -> Any:
    if isinstance(recipe, dict):
        return {key: written_without_none(item) for key, item in recipe.items() if item is not None}
    return [written_without_none(item) for item in recipe] if isinstance(recipe, list) else recipe


@SLOW
@given(recipe_data.recipes())
def test_recipes_of_the_schema(data: Any) -> None:
    text = writing.text(data)
    read = document.parse(text)
    assert same(read.data, data)
    assert schema.problems(read, "recipe") == []
    recipe = from_plain(Recipe, read.data)
    back = written_without_none(to_plain(recipe))
    assert mutations._same(back, data)
    assert from_plain(Recipe, document.parse(writing.text(back)).data) == recipe


@SLOW
@given(recipe_data.recipes())
def test_fmt_of_recipes_of_the_schema(data: Any) -> None:
    text = writing.text(data)
    before = document.parse(text).data
    once = formatting.canonical(text)
    assert formatting._equal(document.parse(once).data, before)
    assert formatting.canonical(once) == once


@given(st.dictionaries(recipe_data.TEXTS, DATA, max_size=4))
def test_any_data(data: dict[str, Any]) -> None:
    assert same(document.parse(writing.text(data)).data, data)
    assert same(document.parse(f"a: {writing.flow(data)}").data, {"a": data})


@pytest.mark.parametrize(
    ("value", "text"),
    [("a", "a"), ("no", '"no"'), ("null", '"null"'), ("1e-3", '"1e-3"'),
     ("a b", "a b"), ("a, b", '"a, b"'), ("a - b", "a - b"), ("é", '"é"'),
     ("\u2028\x7f", '"\\u2028\\u007f"'), (1e-05, "1.0e-05"), (1e22, "1.0e+22"), (0.5, "0.5"), (True, "true"),
     (None, "null"), ("model.py:load", "model.py:load"), ("a: b", '"a: b"'), (["a", 1], "[a, 1]"), ({}, "{}"),
     ({"a": []}, "{a: []}")],
)  # fmt: skip
def test_as_it_is_written(value: Any, text: str) -> None:
    assert writing.flow(value) == text


def test_layout() -> None:
    data = {
        "a": 1,
        "b": {"c": [1, 2], "d": [{"e": 1, "f": {"g": "x"}}, [], {}, [[1]]]},
        "h": {},
        "i": ["x" * 200],
    }
    assert writing.text(data) == (
        "a: 1\nb:\n  c: [1, 2]\n  d:\n    - e: 1\n      f:\n        g: x\n    - []\n    - {}\n    -\n      - [1]\n"
        f"h: {{}}\ni:\n  - {'x' * 200}\n"
    )


def test_what_no_file_can_hold() -> None:
    with pytest.raises(ValueError, match="inf cannot be written"):
        writing.scalar(float("inf"))


def test_what_show_prints_is_read_back(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    folder = toy(
        ("name: toy", 'name: toy\nabout: "1e-3"'), ("dtype: float32", 'dtype: float32, values: "normal"')
    )
    plain = document.parse(cli("show", folder).out).data
    assert plain["about"] == "1e-3"
    assert plain["accept"]["onnx"]["max_abs"] == 1e-5
    resolved = document.parse(cli("show", folder, "--resolved").out).data
    assert resolved["about"] == "1e-3"
    assert resolved["accept"]["onnx"]["max_abs"] == 1e-5
