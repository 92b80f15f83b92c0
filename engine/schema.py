"""Check a document against a shipped JSON schema and say each problem at its own key or value.

The schemas use ``if``/``then`` instead of alternatives, so that every message is about one thing.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from engine import hints
from engine.document import Document
from engine.errors import Problem, quoted
from engine.hints import nearest as nearest
from engine.paths import data_dir
from engine.yaml_data import MAX_PROBLEMS

_NAMES = {"object": "a mapping", "array": "a list", "string": "text", "integer": "a whole number",
          "number": "a number", "boolean": "true or false", "null": "nothing"}  # fmt: skip

_NOT_BLANK = r"\S"

_COUNTED = {
    "minItems": "Items",
    "maxItems": "Items",
    "minProperties": "Properties",
    "maxProperties": "Properties",
}


@functools.cache
def load(name: str) -> dict[str, Any]:
    """The shipped schema ``name`` (``recipe``, ``rule`` or ``lock``) as plain data."""
    schema: dict[str, Any] = json.loads(text(name))
    return schema


def text(name: str) -> str:
    """The shipped schema as it stands in its file."""
    return (data_dir("schemas") / f"{name}.schema.json").read_text(encoding="utf-8")


def problems(document: Document, name: str) -> list[Problem]:
    """Every violation of schema ``name`` in file order; empty when there is none, the first 100 when there are more."""
    errors = _validator(name).iter_errors(document.data)
    every = (problem for error in errors for problem in _explain(document, error))
    found = sorted(islice(every, MAX_PROBLEMS), key=_position)
    if next(every, None) is not None:
        found.append(Problem(f"{document.file}: there are more problems than these {MAX_PROBLEMS}"))
    return found


@functools.cache
def _validator(name: str) -> Any:
    """The validator of schema ``name``. What reads no recipe, such as a step's process, is spared the import."""
    import jsonschema

    base = jsonschema.Draft202012Validator
    made = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
        base,
        validators={"pattern": _pattern, "const": _const, "type": _type},
        type_checker=base.TYPE_CHECKER.redefine("integer", _is_integer),
    )
    return made(load(name))


def _fault(what: str) -> Exception:
    import jsonschema

    return jsonschema.ValidationError(what)


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """``$`` is the end of the text; Python's also stands before a last line break."""
    return re.compile(re.sub(r"\$$", r"\\Z", pattern))


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, str) and not _compiled(pattern).search(instance):
        yield _fault("does not match")


def _const(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """``1.0`` and ``true`` are not ``1``."""
    if type(instance) is not type(value) or instance != value:
        yield _fault("is another value")


def _is_integer(checker: Any, instance: Any) -> bool:
    return isinstance(instance, int) and not isinstance(instance, bool)


def _type(validator: Any, kinds: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """A number is kept as a float: a whole number that a float cannot hold would be another one."""
    names = [kinds] if isinstance(kinds, str) else kinds
    if not any(validator.is_type(instance, name) for name in names):
        yield _fault("is of another type")
    elif kinds == "number" and type(instance) is int and float(instance) != instance:
        yield _fault("is not exact")


def _position(problem: Problem) -> tuple[str, int, int, str]:
    place = problem.place
    return (place.file, place.line, place.column, problem.what) if place else ("", 0, 0, problem.what)


def _explain(document: Document, error: Any) -> Iterator[Problem]:
    path = tuple(error.absolute_path)
    inside_names = "propertyNames" in error.absolute_schema_path
    kind, handler = ("name", _bad_name) if inside_names else _HANDLERS[error.validator]
    for problem in handler(document, path, error):
        yield replace(problem, kind=kind)


def _spot(path: tuple[str | int, ...]) -> str:
    return f"{dotted(path)}: " if path else ""


def dotted(path: tuple[str | int, ...]) -> str:
    """``("rewrites", 0, "rule")`` as ``rewrites[0].rule``."""
    text = ""
    for part in path:
        word = str(part) if str(part).isprintable() else quoted(str(part))
        text += f"[{part}]" if isinstance(part, int) else f".{word}" if text else word
    return text


def _unknown_keys(document: Document, path: Any, error: Any) -> Iterator[Problem]:
    allowed = set(error.schema.get("properties", {}))
    patterns = error.schema.get("patternProperties", {})
    for key in error.instance:
        if key in allowed or any(_matches(pattern, key) for pattern in patterns):
            continue
        hint = hints.nearest(key, allowed) or (
            "allowed here: " + ", ".join(sorted(allowed)) if allowed else ""
        )
        yield document.problem((*path, key), f"{_spot(path)}unknown key {quoted(key)}", hint, key=True)


def _matches(pattern: str, key: str) -> bool:
    return re.search(pattern, key) is not None


def _bad_name(document: Document, path: Any, error: Any) -> Iterator[Problem]:
    what = f"{_spot(path)}{quoted(error.instance)} is no valid name here"
    yield document.problem((*path, error.instance), what, _describe(error.schema), key=True)


def _missing(document: Document, path: Any, error: Any) -> Iterator[Problem]:
    for key in error.validator_value:
        if key not in error.instance and f"'{key}'" in error.message:
            about = error.schema.get("properties", {}).get(key, {}).get("description", "")
            yield document.problem(path, f"{_spot(path)}'{key}' is missing", about, key=True)


def _wrong_type(document: Document, path: Any, error: Any) -> Iterator[Problem]:
    kinds = error.validator_value if isinstance(error.validator_value, list) else [error.validator_value]
    wanted = " or ".join(_NAMES[kind] for kind in kinds)
    if kinds == ["number"] and _is_integer(None, error.instance):
        what = f"{_spot(path)}{_show(error.instance)} has more digits than a number here keeps"
        yield document.problem(path, what, f"the nearest that it keeps is {float(error.instance)!r}")
        return
    what = f"{_spot(path)}expected {wanted}, got {_show(error.instance)}"
    hint = hints.for_type(str(path[-1]) if path else "", kinds, error.instance)
    if error.schema.get("pattern", _NOT_BLANK) != _NOT_BLANK:
        hint = ""  # its description says more about the form
    hint = hint or _describe(error.schema)
    if error.instance is None and path:
        hint = f"{hint}\n        null only removes a key that the recipe named by 'extends' sets".lstrip()
    yield document.problem(path, what, hint)


def _not_in(document: Document, path: Any, error: Any) -> Iterator[Problem]:
    allowed = [str(word) for word in error.validator_value]
    what = f"{_spot(path)}{_show(error.instance)} is not one of: {', '.join(allowed)}"
    yield document.problem(path, what, hints.for_choice(error.instance, allowed))


def _not_const(document: Document, path: Any, error: Any) -> Iterator[Problem]:
    what = f"{_spot(path)}expected {_show(error.validator_value)}, got {_show(error.instance)}"
    yield document.problem(path, what, _describe(error.schema))


def _bad_pattern(document: Document, path: Any, error: Any) -> Iterator[Problem]:
    if not error.instance.strip():
        yield document.problem(path, f"{_spot(path)}must not be empty", _describe(error.schema))
        return
    what = f"{_spot(path)}{_show(error.instance)} does not have the right form"
    yield document.problem(path, what, _describe(error.schema))


def _too_small(document: Document, path: Any, error: Any) -> Iterator[Problem]:
    if "integer" in error.schema.get("type", "") and not _is_integer(None, error.instance):
        return  # its type is the fault
    side = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}[error.validator]
    what = f"{_spot(path)}{_show(error.instance)}: must be {side} {error.validator_value}"
    yield document.problem(path, what)


def _wrong_length(document: Document, path: Any, error: Any) -> Iterator[Problem]:
    schema, got = error.schema, len(error.instance)
    low, high = (schema.get(f"{side}{_COUNTED[error.validator]}") for side in ("min", "max"))
    wanted = f"exactly {low}" if low == high else f"at least {low}" if got < (low or 0) else f"at most {high}"
    what = f"{_spot(path)}expected {wanted} {'entry' if wanted.endswith(' 1') else 'entries'}, got {got}"
    yield document.problem(path, what, _describe(schema), key=True)


def _too_few(document: Document, path: Any, error: Any) -> Iterator[Problem]:
    if error.instance:
        yield from _wrong_length(document, path, error)
        return
    yield document.problem(path, f"{_spot(path)}must not be empty", _describe(error.schema), key=True)


def _describe(schema: Any) -> str:
    text = str(schema.get("description", ""))
    if not text and "properties" in schema:
        return f"one of: {', '.join(schema['properties'])}"
    examples = schema.get("examples")
    if examples:
        text += f" Example: {json.dumps(examples[0])}" if text else f"example: {json.dumps(examples[0])}"
    return text


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    text = quoted(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


Handler = Callable[[Document, Any, Any], Iterator[Problem]]
# A keyword of the schema -> kind of the problem, and who puts it into words.
_HANDLERS: dict[str, tuple[str, Handler]] = {
    "additionalProperties": ("unknown-key", _unknown_keys),
    "required": ("missing-key", _missing),
    "type": ("type", _wrong_type),
    "enum": ("choice", _not_in),
    "const": ("choice", _not_const),
    "pattern": ("form", _bad_pattern),
    "minimum": ("range", _too_small),
    "exclusiveMinimum": ("range", _too_small),
    "maximum": ("range", _too_small),
    "minItems": ("length", _too_few),
    "maxItems": ("length", _wrong_length),
    "minProperties": ("length", _too_few),
    "maxProperties": ("length", _wrong_length),
    "minLength": ("length", _too_few),
}
