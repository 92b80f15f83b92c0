"""``fmt``: canonical order of keys and an even layout; comments and values stay, and so does the meaning.

Keys are moved as lines (:mod:`engine.ordering`); indentation is evened out by a ruamel.yaml round trip. The
result must hold the same data and the same comments as the text before, or nothing is changed.
"""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path
from typing import Any

from engine import document, ordering, schema
from engine.errors import RecipeError

_ROUNDS = 4
_WIDTH = 110  # a list or mapping over several lines is not joined to a longer line than this


def canonical(text: str, name: str = "<text>") -> str:
    """``text`` as ``fmt`` leaves it; a second time changes nothing. Raises RecipeError for text that is no recipe."""
    before = document.parse(text, name)
    if not isinstance(before.data, dict):
        raise RecipeError([before.problem((), "a recipe is a mapping; this file holds something else")])
    moved = ordering.ordered(text, schema.load("recipe"))
    if not same(text, moved):
        raise RecipeError(
            f"{name}: its keys cannot be put in order without changing what it says; left as it is"
        )
    return _settled(moved)


def _settled(text: str) -> str:
    """``text`` laid out so that laying it out again changes nothing; as it is where that cannot be had."""
    now = text
    for _ in range(_ROUNDS):
        after = laid_out(now)
        if after == now:
            return now
        if after is None or _longest(after) > max(_WIDTH, _longest(text)) or not same(text, after):
            return text
        now = after
    return text


def _longest(text: str) -> int:
    return max(map(len, text.splitlines()), default=0)


def same(one: str, other: str) -> bool:
    """True when two texts hold the same data, types included, and the same comments."""
    try:
        first, second = document.parse(one).data, document.parse(other).data
    except RecipeError:
        return False
    return _equal(first, second) and ordering.comments(one) == ordering.comments(other)


def _equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def laid_out(text: str) -> str | None:
    """``text`` through a round trip that evens indentation; None where ruamel.yaml cannot take it."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.resolver import VersionedResolver

    class Verbatim(VersionedResolver):
        """Every scalar is text, so that it is written as it was typed."""

        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            plain = kind.__name__ == "ScalarNode"
            return self.DEFAULT_SCALAR_TAG if plain else super().resolve(kind, value, implicit)

    yaml = YAML()
    yaml.Resolver = Verbatim
    yaml.preserve_quotes = True
    yaml.width = document.MAX_BYTES
    yaml.indent(mapping=2, sequence=4, offset=2)
    out = io.StringIO()
    try:
        yaml.dump(yaml.load(text), out)
    except (YAMLError, ValueError, RecursionError):
        return None
    lines = [line.rstrip(" ") for line in out.getvalue().split("\n")]
    after = "\n".join(lines).rstrip("\n") + "\n"
    return after.replace("\n", "\r\n") if "\r\n" in text else after


def write(path: Path, text: str) -> None:
    """Replace a file's text in one step; it is whole at every moment and keeps its mode."""
    target = path.resolve()
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(text.encode())
        shutil.copymode(target, draft)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
