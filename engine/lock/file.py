"""The lock file: canonical YAML, written whole, read back with places and against its schema."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from engine import document as documents
from engine import schema, writing
from engine.document import Document
from engine.errors import RecipeError
from engine.lock.model import Lock
from engine.plain import from_plain, to_plain, without_none

SUFFIX = documents.LOCK_SUFFIX
SCHEMA = "lock.schema.json"
_HEAD = """\
# Written by `portwright run`; do not edit. What the last whole run of the recipe came to.
# `portwright run --locked` fails when a run comes to something else.
"""
_POINTER = re.compile(r"# yaml-language-server: \$schema=(\S*)recipe\.schema\.json")
AGAIN = "run the recipe again: portwright run RECIPE writes the lock anew"


def beside(recipe: Path) -> Path:
    """The lock of a recipe file: ``recipe.lock.yaml`` beside ``recipe.yaml``."""
    return recipe.with_name(recipe.stem + SUFFIX)


def render(lock: Lock, recipe: Path) -> str:
    """The text of a lock. Editors are pointed at its schema where the one of ``recipe`` has it as a neighbour."""
    return _pointer(recipe) + _HEAD + writing.text(without_none(to_plain(lock)), for_diffs=True)


def write(text: str, target: Path) -> None:
    """Put ``text`` in place of the lock; it is whole at every moment."""
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def read(path: Path, name: str | None = None) -> Lock:
    """Read a lock. Raises RecipeError with every problem and its place."""
    return load(path, name)[0]


def load(path: Path, name: str | None = None) -> tuple[Lock, Document]:
    """A lock and the document that knows its places; see :func:`read`."""
    try:
        document = documents.read(path, name)
    except RecipeError as error:
        raise RecipeError([replace(problem, hint=_hint(problem.what, problem.hint)) for problem in error.problems]
                          ) from None  # fmt: skip
    found = (
        schema.problems(document, "lock")
        if isinstance(document.data, dict)
        else [document.problem((), "a lock is a mapping; this file holds something else", AGAIN)]
    )
    if found:
        raise RecipeError(found)
    lock: Lock = from_plain(Lock, document.data)
    return lock, document


def _hint(what: str, hint: str) -> str:
    return f"resolve the recipe, then {AGAIN}" if what == documents.CONFLICT else hint


def _pointer(recipe: Path) -> str:
    try:
        with recipe.open(encoding="utf-8") as file:
            found = _POINTER.match(file.readline())
    except (OSError, UnicodeDecodeError):
        return ""
    if found is None or not (recipe.parent / found[1] / SCHEMA).is_file():
        return ""
    return f"# yaml-language-server: $schema={found[1]}{SCHEMA}\n"
