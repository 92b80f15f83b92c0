"""From a YAML parser's events to plain data that remembers the place of every key and value.

Scalars follow the YAML 1.2 core schema (``no`` and ``12:30`` are strings, ``1e-3`` is a number), as
editors do. Refused, each with its place: duplicate keys, anchors and aliases, tags, directives, keys that
are no strings, several documents, too many or too deep values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from engine.errors import Place, Problem, RecipeError, quoted

Key = str | int
KeyPath = tuple[Key, ...]

MAX_NODES = 60_000
MAX_DEPTH = 40
MAX_DIGITS = 100
MAX_PROBLEMS = 100

_INT = re.compile(r"[-+]?[0-9]+\Z|0x[0-9a-fA-F]+\Z|0o[0-7]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= {word: True for word in ("true", "True", "TRUE")} | {w: False for w in ("false", "False", "FALSE")}


class Mark(NamedTuple):
    """Where a key or value starts (line and column from 0) and how many characters it spans on its line."""

    line: int
    column: int
    width: int


def problem_at(
    file: str, lines: tuple[str, ...], mark: Mark, what: str, hint: str = "", kind: str = "yaml"
) -> Problem:
    text = lines[mark.line] if mark.line < len(lines) else ""
    return Problem(what, Place(file, mark.line + 1, mark.column + 1), text, mark.width, hint, kind)


class Builder:
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
            self.problems.append(problem_at(self.file, self.lines, _mark(event, event), what, hint))

    def _refusal(self, event: yaml.Event, what: str, hint: str) -> RecipeError:
        mark = _mark(event, event)._replace(width=1)
        return RecipeError([problem_at(self.file, self.lines, mark, what, hint)])


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
