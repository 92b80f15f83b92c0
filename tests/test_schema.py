"""The recipe schema and the frozen types behind it say the same."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest

from engine import recipe, schema

SCHEMA = schema.load("recipe")


def resolve(node: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        name = node["$ref"].rsplit("/", 1)[-1]
        return {**SCHEMA["$defs"][name], **{key: value for key, value in node.items() if key != "$ref"}}
    return node


def walk(node: dict[str, Any], path: str = "recipe") -> Iterator[tuple[str, dict[str, Any]]]:
    node = resolve(node)
    yield path, node
    for key, child in node.get("properties", {}).items():
        yield from walk(child, f"{path}.{key}")
    for key in ("items", "additionalProperties", "else"):
        if isinstance(node.get(key), dict):
            yield from walk(node[key], f"{path}.{key}")


NODES = dict(walk(SCHEMA))


def test_schema_is_valid_draft_2020_12() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", [path for path in NODES if not path.endswith(".else") and path != "recipe"])
def test_every_property_is_described_with_an_example(path: str) -> None:
    node = NODES[path]
    assert len(node.get("description", "")) > 8, path
    assert node.get("examples"), path


@pytest.mark.parametrize("path", NODES)
def test_examples_are_valid(path: str) -> None:
    node = NODES[path] | {"$defs": SCHEMA["$defs"]}
    for example in node.get("examples", []):
        jsonschema.Draft202012Validator(node).validate(example)


@pytest.mark.parametrize("path", [path for path, node in NODES.items() if "properties" in node])
def test_every_mapping_is_closed(path: str) -> None:
    assert NODES[path].get("additionalProperties") is False, path


def test_required_names_exist() -> None:
    for path, node in NODES.items():
        assert set(node.get("required", [])) <= set(node.get("properties", {})), path


def inner(hint: Any) -> tuple[Any, str]:
    """The dataclass behind a type hint and how the schema nests it (``items``, ``else``, ... or nothing)."""
    words = (arg for arg in typing.get_args(hint) if typing.get_origin(arg) is not typing.Literal)
    origin, args = typing.get_origin(hint), [arg for arg in words if arg is not type(None)]
    if dataclasses.is_dataclass(hint):
        return hint, ""
    if origin is tuple and dataclasses.is_dataclass(args[0]):
        return args[0], "items"
    if isinstance(origin, type) and issubclass(origin, Mapping) and dataclasses.is_dataclass(args[1]):
        return args[1], "additionalProperties"
    if origin is not None and len(args) == 1:
        return inner(args[0])
    if len(args) == 2 and args[0] is str and dataclasses.is_dataclass(args[1]):
        return args[1], "else"
    return None, ""


def same(cls: Any, node: dict[str, Any], path: str) -> None:
    node = resolve(node)
    hints = typing.get_type_hints(cls)
    assert set(hints) == set(node["properties"]), path
    for field in dataclasses.fields(cls):
        needed = field.default is dataclasses.MISSING
        assert needed == (field.name in node.get("required", [])), (
            f"{path}.{field.name}: required in one only"
        )
        child, nesting = inner(hints[field.name])
        if child is not None:
            below = resolve(node["properties"][field.name])
            same(child, below[nesting] if nesting else below, f"{path}.{field.name}")


def test_types_and_schema_are_in_step() -> None:
    same(recipe.Recipe, SCHEMA, "recipe")
