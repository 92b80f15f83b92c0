"""Random recipes of the right form, made from the schema itself: a new key is covered without work here."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import strategies as st

from engine import schema

ROOT = schema.load("recipe")
# What is hard to write: signs of YAML, other scripts, line breaks of several kinds, words that look like values.
LETTERS = "abz09 _-.,:;#'\"{}[]&*!|>%@`?\\\n\t\r\u0085\u2028\ufeff\x7fé漢🙂"
WORDS = ("null", "~", "true", "no", "on", "12:30", "1e-3", "0x10", "0o7", "007", "1_000", "-", "<<", "=", ".nan",
         "- a", "a: b", "a #b", " a", "a ", "", "'", '"', "2001-01-01", "---", "...", "%x", "1.0", ".5",
         "+1")  # fmt: skip
TEXTS = st.one_of(st.sampled_from(WORDS), st.text(LETTERS, max_size=12), st.text(max_size=8))


def recipes() -> st.SearchStrategy[Any]:
    return of(ROOT)


def of(node: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit a part of the schema."""
    if "$ref" in node:
        node = {
            **ROOT["$defs"][node["$ref"].rsplit("/", 1)[-1]],
            **{k: v for k, v in node.items() if k != "$ref"},
        }
    if "const" in node:
        return st.just(node["const"])
    if "enum" in node:
        return st.sampled_from(node["enum"])
    if "if" in node:
        kind = node["if"]["type"]
        rest = {key: part for key, part in node.items() if key not in ("if", "then", "else", "type")}
        others = [other for other in node["type"] if other != kind]
        return st.one_of(
            of({**rest, **node["then"], "type": kind}), of({**rest, **node.get("else", {}), "type": others})
        )
    kinds = node["type"] if isinstance(node["type"], list) else [node["type"]]
    return st.one_of([_MAKERS[kind](node) for kind in kinds])


def _text(node: dict[str, Any]) -> st.SearchStrategy[str]:
    if "pattern" in node:
        return st.from_regex(re.sub(r"\$$", r"\\Z", node["pattern"])).filter(lambda word: len(word) < 80)
    return TEXTS.filter(lambda word: len(word) >= node.get("minLength", 0))


def _whole(node: dict[str, Any]) -> st.SearchStrategy[int]:
    return st.integers(node.get("minimum", -(10**20)), node.get("maximum", 10**20))


def _number(node: dict[str, Any]) -> st.SearchStrategy[float]:
    low = node.get("minimum", node.get("exclusiveMinimum"))
    bounds = {"min_value": low, "max_value": node.get("maximum"), "exclude_min": "exclusiveMinimum" in node}
    floats = st.floats(allow_nan=False, allow_infinity=False, **bounds)
    whole = st.integers(None if low is None else int(low) + bool(bounds["exclude_min"]), node.get("maximum"))
    return st.one_of(floats, whole.filter(lambda number: abs(number) <= 2**53))


def _list(node: dict[str, Any]) -> st.SearchStrategy[list[Any]]:
    low = node.get("minItems", 0)
    return st.lists(of(node["items"]), min_size=low, max_size=node.get("maxItems", low + 2))


def _mapping(node: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    required, least = set(node.get("required", ())), node.get("minProperties", 0)
    known, others = node.get("properties", {}), node.get("additionalProperties")
    made = st.fixed_dictionaries(
        {key: of(part) for key, part in known.items() if key in required},
        optional={key: of(part) for key, part in known.items() if key not in required},
    )
    if isinstance(others, dict):
        names = of({"type": "string", **node.get("propertyNames", {})})
        made = st.dictionaries(names, of(others), min_size=least, max_size=least + 2)
    return made.filter(lambda data: len(data) >= least)


_MAKERS = {"string": _text, "integer": _whole, "number": _number, "array": _list, "object": _mapping,
           "boolean": lambda node: st.booleans(), "null": lambda node: st.none()}  # fmt: skip
