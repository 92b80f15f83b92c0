"""YAML text to plain data that remembers the place of every key and value.

Scalars follow the YAML 1.2 core schema (``no`` and ``12:30`` are strings, ``1e-3`` is a number), as
editors do. Refused, each with its place: duplicate keys, anchors and aliases, tags, directives, keys that
are no strings, several documents, files that are too large or too deep, text that is not UTF-8.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from engine import hints
from engine.errors import Place, Problem, RecipeError, quoted

Key = str | int
KeyPath = tuple[Key, ...]

MAX_BYTES = 1024 * 1024
MAX_NODES = 60_000
MAX_DEPTH = 40
MAX_DIGITS = 100
MAX_PROBLEMS = 100
LOCK_SUFFIX = ".lock.yaml"
CONFLICT = "an unresolved merge conflict of git"
_SAVE = "save the file as UTF-8"

_BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")  # what the YAML scanner counts as the end of a line

_CONFLICT = re.compile(r"(?:<{7}|>{7}|\|{7})(?: |\Z)|={7}\Z")

_INT = re.compile(r"[-+]?[0-9]+\Z|0x[0-9a-fA-F]+\Z|0o[0-7]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= {word: True for word in ("true", "True", "TRUE")} | {w: False for w in ("false", "False", "FALSE")}


class Mark(NamedTuple):
    """Where a key or value starts (line and column from 0) and how many characters it spans on its line."""

    line: int
    column: int
    width: int


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
        found = _problem(self.file, self.lines, self.mark(path, key), what, hint, "recipe")
        return replace(found, about=str(path[0]) if path else "")


def _problem(
    file: str, lines: tuple[str, ...], mark: Mark, what: str, hint: str = "", kind: str = "yaml"
) -> Problem:
    text = lines[mark.line] if mark.line < len(lines) else ""
    return Problem(what, Place(file, mark.line + 1, mark.column + 1), text, mark.width, hint, kind)


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
    builder = _Builder(name, lines, yaml.parse(text, Loader=loader))
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
        raise RecipeError([_problem(name, lines, Mark(len(before) - 1, len(before[-1]), 1), what)])


def _refuse_conflicts(name: str, lines: tuple[str, ...]) -> None:
    """One problem a conflict: at its first mark, or at a mark that was left over alone."""
    found: list[Problem] = []
    inside = False
    for number, line in enumerate(lines):
        if not _CONFLICT.match(line):
            continue
        if not inside and len(found) < MAX_PROBLEMS:
            hint = "keep one side, or what both say together, and remove the lines with the marks of git"
            found.append(_problem(name, lines, Mark(number, 0, len(line)), CONFLICT, hint))
        inside = line[0] != ">" and (inside or line[0] == "<")
    if found:
        raise RecipeError(found)


def _extra(event: yaml.Event) -> tuple[str, str]:
    anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
    if isinstance(event, yaml.AliasEvent):
        hint = f'write the value out where it is used; for the text itself, quote it: "*{anchor}"'
        return f"alias *{anchor}: anchors and aliases are not part of the recipe language", hint
    if anchor:
        what = f"anchor &{anchor}: anchors and aliases are not part of the recipe language"
        return what, "write the value out where it is used"
    if tag is not None:
        return (
            f"tag {quoted(tag)[1:-1]}: tags are not part of the recipe language",
            "write the value without it",
        )
    return "", ""


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
    return _problem(
        name, lines, Mark(line, min(column, len(text)), 1), what, hints.for_syntax(text, column, what)
    )


class _Builder:
    """Plain data straight from the parser's events: nothing is built of a file that is refused."""

    def __init__(self, file: str, lines: tuple[str, ...], events: Iterator[yaml.Event]) -> None:
        self.file, self.lines, self.events = file, lines, events
        self.keys: dict[KeyPath, Mark] = {}
        self.values: dict[KeyPath, Mark] = {}
        self.problems: list[Problem] = []
        self.nodes = self.depth = 0

    def document(self) -> Any:
        data = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if self.nodes:
                    raise self._refusal(
                        event, "a second document begins here; a recipe is one", "remove the line"
                    )
                if event.version or event.tags:
                    raise self._refusal(
                        event, "directives are not part of the recipe language", "remove the line"
                    )
                data = self._build(next(self.events), ())
        return data

    def _build(self, event: yaml.Event, path: KeyPath) -> Any:
        self._admit(event)
        if isinstance(event, yaml.ScalarEvent):
            self.values[path] = _mark(event, event)
            return self._scalar(event)
        self.depth += 1
        self.values[path] = _mark(event, event)  # in file order; the end is known later
        if isinstance(event, yaml.MappingStartEvent):
            data, end = self._mapping(path)
        else:
            data, end = self._list(path)
        self.values[path] = _mark(event, end)
        self.depth -= 1
        return data

    def _admit(self, event: yaml.Event) -> None:
        """Anchors, aliases, tags, depth and number of nodes."""
        self.nodes += 1
        what, hint = _extra(event)
        if self.nodes > MAX_NODES:
            what, hint = f"more than {MAX_NODES:,} keys and values", "split the recipe"
        if self.depth >= MAX_DEPTH and isinstance(event, yaml.CollectionStartEvent):
            what, hint = f"nested deeper than {MAX_DEPTH} levels", ""
        if what:
            raise self._refusal(event, what, hint)

    def _list(self, path: KeyPath) -> tuple[Any, yaml.Event]:
        data: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            data.append(self._build(event, (*path, len(data))))
        return data, event

    def _mapping(self, path: KeyPath) -> tuple[Any, yaml.Event]:
        data: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                self._report(event, "a key must be a word, not a list or mapping")
                self._build(event, (*path, ""))
                self._build(next(self.events), (*path, ""))
                continue
            self._admit(event)
            key: str = event.value
            below = (*path, key)
            if key in data:
                first = self.keys[below].line + 1
                self._report(event, f"key {quoted(key)} stands twice; the first is on line {first}")
            self.keys.setdefault(below, _mark(event, event))
            value = self._build(next(self.events), below)
            data.setdefault(key, value)
        return data, event

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        text: str = event.value
        if event.style in ("'", '"', "|", ">"):
            return text
        if len(text) > MAX_DIGITS and (_INT.match(text) or _FLOAT.match(text)):
            self._report(event, f"a number of {len(text):,} characters; {MAX_DIGITS} are the most")
            return 0
        value = resolve(text)
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            self._report(event, f"{text} is larger than any number here can be")
        if value == 0.0 and isinstance(value, float) and re.search("[1-9]", re.split("[eE]", text)[0]):
            self._report(
                event, f"{text} is nearer to 0 than any other number here can be", "write 0 or a larger one"
            )
        return value

    def _report(self, event: yaml.Event, what: str, hint: str = "") -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(_problem(self.file, self.lines, _mark(event, event), what, hint))

    def _refusal(self, event: yaml.Event, what: str, hint: str) -> RecipeError:
        mark = _mark(event, event)._replace(width=1)
        return RecipeError([_problem(self.file, self.lines, mark, what, hint)])


def _mark(first: yaml.Event, last: yaml.Event) -> Mark:
    start, end = first.start_mark, last.end_mark
    assert start is not None
    assert end is not None
    width = end.column - start.column if end.line == start.line else 1
    return Mark(start.line, start.column, max(1, width))


def resolve(text: str) -> Any:
    """What a plain scalar stands for; the text itself where it is no other value."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _INT.match(text):
        return int(text, 0) if text.startswith(("0x", "0o")) else int(text)
    if _FLOAT.match(text):
        return float(text)
    return text
