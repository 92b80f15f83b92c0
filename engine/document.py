"""A YAML file to plain data that remembers its places (see :mod:`engine.yaml_data` for what YAML is here).

Refused, with its place: what is too large or not UTF-8, marks of a merge conflict, what no parser takes.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from engine import hints
from engine.errors import Place, Problem, RecipeError
from engine.yaml_data import MAX_PROBLEMS, Builder, Key, KeyPath, Mark, problem_at

__all__ = ["Document", "Key", "KeyPath", "Mark", "decode", "parse", "read", "text_of"]

MAX_BYTES = 1024 * 1024
LOCK_SUFFIX = ".lock.yaml"
CONFLICT = "an unresolved merge conflict of git"
_SAVE = "save the file as UTF-8"

_BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")  # what the YAML scanner counts as the end of a line

_CONFLICT = re.compile(r"(?:<{7}|>{7}|\|{7})(?: |\Z)|={7}\Z")


@dataclass(frozen=True)
class Document:
    """A parsed file. ``data`` is plain; ``keys`` and ``values`` hold the mark of each key path."""

    file: str
    lines: tuple[str, ...]
    data: Any
    keys: dict[KeyPath, Mark]
    values: dict[KeyPath, Mark]

    def mark(self, path: KeyPath, key: bool = False) -> Mark:
        """Mark of the value at ``path`` (of its key with ``key``); of the nearest parent where there is none."""
        path = tuple(path)
        while path:
            found = (self.keys if key else self.values).get(path) or self.values.get(path)
            if found:
                return found
            path = path[:-1]
        return self.values.get((), Mark(0, 0, 1))

    def place(self, path: KeyPath, key: bool = False) -> Place:
        mark = self.mark(path, key)
        return Place(self.file, mark.line + 1, mark.column + 1)

    def problem(self, path: KeyPath, what: str, hint: str = "", key: bool = False) -> Problem:
        found = problem_at(self.file, self.lines, self.mark(path, key), what, hint, "recipe")
        return replace(found, about=str(path[0]) if path else "")


def read(path: Path, name: str | None = None) -> Document:
    """Read a YAML file. Raises RecipeError with every structural problem and its place."""
    shown = name or str(path)
    return parse(text_of(path, shown), shown)


def text_of(path: Path, name: str | None = None) -> str:
    """The text of a file; RecipeError where it cannot be read, is too large or not UTF-8."""
    shown = name or str(path)
    try:
        if path.exists() and not path.is_file():
            raise RecipeError(f"{shown}: cannot be read: not a regular file")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise RecipeError(f"{shown}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return _text(raw, shown)


def decode(raw: bytes, name: str) -> Document:
    """Parse the bytes of a YAML file; see :func:`read`."""
    return parse(_text(raw, name), name)


def _text(raw: bytes, name: str) -> str:
    if len(raw) > MAX_BYTES:
        raise RecipeError(f"{name}: more than {MAX_BYTES:,} bytes; a recipe may have that many")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            what = "the file is UTF-16, not UTF-8"
            raise RecipeError([Problem(what, Place(name, 1, 1), hint=_SAVE, kind="yaml")]) from None
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        raise RecipeError(
            [
                Problem(
                    f"byte 0x{raw[error.start]:02x} is not UTF-8",
                    Place(name, line, column),
                    hint=_SAVE,
                    kind="yaml",
                )
            ]
        ) from None


def parse(text: str, name: str = "<text>") -> Document:
    """Parse YAML text; see :func:`read`."""
    lines = tuple(_BREAK.split(text))
    _refuse_characters(text, name, lines)
    _refuse_conflicts(name, lines)
    # The C loader's marks have no index in the buffer but the same line and column.
    loader = yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader
    builder = Builder(name, lines, yaml.parse(text, Loader=loader))
    try:
        data = builder.document()
    except yaml.YAMLError as error:
        raise RecipeError([_syntax_problem(error, name, lines)]) from None
    if builder.problems:
        raise RecipeError(sorted(builder.problems, key=lambda problem: problem.place or Place("", 0, 0)))
    return Document(name, lines, data, builder.keys, builder.values)


def _refuse_characters(text: str, name: str, lines: tuple[str, ...]) -> None:
    found = yaml.reader.Reader.NON_PRINTABLE.search(text)
    spot = found.start() if found else text.find("\ufeff")  # a byte order mark inside the text
    if spot >= 0:
        before = _BREAK.split(text[:spot])
        what = f"character U+{ord(text[spot]):04X} has no place in a text file"
        raise RecipeError([problem_at(name, lines, Mark(len(before) - 1, len(before[-1]), 1), what)])


def _refuse_conflicts(name: str, lines: tuple[str, ...]) -> None:
    """One problem a conflict: at its first mark, or at a mark that was left over alone."""
    found: list[Problem] = []
    inside = False
    for number, line in enumerate(lines):
        if not _CONFLICT.match(line):
            continue
        if not inside and len(found) < MAX_PROBLEMS:
            hint = "keep one side, or what both say together, and remove the lines with the marks of git"
            found.append(problem_at(name, lines, Mark(number, 0, len(line)), CONFLICT, hint))
        inside = line[0] != ">" and (inside or line[0] == "<")
    if found:
        raise RecipeError(found)


def _syntax_problem(error: yaml.YAMLError, name: str, lines: tuple[str, ...]) -> Problem:
    mark, context_mark = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    what = getattr(error, "problem", None) or str(error).splitlines()[0]
    context = getattr(error, "context", None)
    what = f"not valid YAML: {what}" + (f" ({context})" if context else "")
    if mark is None:
        return Problem(f"{name}: {what}", kind="yaml")
    line, column = min(mark.line, len(lines) - 1), mark.column
    if context_mark and context_mark.line < line and ("flow" in str(context) or "quoted" in str(context)):
        what += f"; what opens here is not closed before line {line + 1}"
        line, column = context_mark.line, context_mark.column
    text = lines[line]
    return problem_at(
        name, lines, Mark(line, min(column, len(text)), 1), what, hints.for_syntax(text, column, what)
    )
