"""YAML text to plain data that remembers the place of every key and value.

Scalars follow the YAML 1.2 core schema (``no`` and ``12:30`` are strings, ``1e-3`` is a number), as
editors do. Refused, each with its place: duplicate keys, anchors and aliases, tags, keys that are no
strings, several documents, files that are too large or too deep, text that is not UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from engine.errors import Place, Problem, RecipeError

Key = str | int
KeyPath = tuple[Key, ...]

MAX_BYTES = 2 * 1024 * 1024
MAX_DEPTH = 40

_INT = re.compile(r"[-+]?[0-9]+\Z|0x[0-9a-fA-F]+\Z|0o[0-7]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= {word: True for word in ("true", "True", "TRUE")} | {w: False for w in ("false", "False", "FALSE")}


@dataclass(frozen=True)
class Mark:
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
        mark = self.mark(path, key)
        return _problem(self.file, self.lines, mark, what, hint)


def _problem(file: str, lines: tuple[str, ...], mark: Mark, what: str, hint: str = "") -> Problem:
    text = lines[mark.line] if mark.line < len(lines) else ""
    return Problem(what, Place(file, mark.line + 1, mark.column + 1), text, mark.width, hint)


def read(path: Path, name: str | None = None) -> Document:
    """Read a YAML file. Raises RecipeError with every structural problem and its place."""
    shown = name or str(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RecipeError(f"{shown}: cannot be read: {error.strerror or error}") from None
    if len(raw) > MAX_BYTES:
        raise RecipeError(f"{shown}: {len(raw):,} bytes; a recipe may have {MAX_BYTES:,}")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        raise RecipeError(
            [Problem(f"byte 0x{raw[error.start]:02x} is not UTF-8", Place(shown, line, column))]
        ) from None
    return parse(text, shown)


def parse(text: str, name: str = "<text>") -> Document:
    """Parse YAML text; see :func:`read`."""
    lines = tuple(text.splitlines())
    try:
        # The C loader's marks have no index in the buffer but the same line and column.
        loader = yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader
        _refuse_extras(text, name, lines, loader)
        root = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        raise RecipeError([_syntax_problem(error, name, lines)]) from None
    except RecursionError:
        raise RecipeError(f"{name}: nested too deep; a recipe may have {MAX_DEPTH} levels") from None
    builder = _Builder(name, lines)
    data = builder.build(root, ()) if root is not None else None
    if builder.problems:
        raise RecipeError(sorted(builder.problems, key=lambda problem: str(problem.place)))
    return Document(name, lines, data, builder.keys, builder.values)


def _refuse_extras(text: str, name: str, lines: tuple[str, ...], loader: type) -> None:
    """Anchors, aliases, tags and depth, found before anything is built."""
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        what, hint = _extra(event), "write the value out where it is used"
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                what, hint = f"nested deeper than {MAX_DEPTH} levels", ""
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        start = event.start_mark
        if what and start is not None:
            mark = Mark(start.line, start.column, 1)
            raise RecipeError([_problem(name, lines, mark, what, hint)])


def _extra(event: yaml.Event) -> str:
    anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
    if isinstance(event, yaml.AliasEvent):
        return f"alias *{anchor}: anchors and aliases are not part of the recipe language"
    if anchor:
        return f"anchor &{anchor}: anchors and aliases are not part of the recipe language"
    if tag not in (None, "!"):
        return f"tag {tag}: tags are not part of the recipe language"
    return ""


def _syntax_problem(error: yaml.YAMLError, name: str, lines: tuple[str, ...]) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    what = getattr(error, "problem", None) or str(error).splitlines()[0]
    context = getattr(error, "context", None)
    what = f"not valid YAML: {what}" + (f" ({context})" if context else "")
    if mark is None:
        return Problem(f"{name}: {what}")
    line = min(mark.line, max(len(lines) - 1, 0))
    text = lines[line] if lines else ""
    hint = "indent with spaces, not tabs" if "\t" in text else ""
    return _problem(name, lines, Mark(line, mark.column if line == mark.line else len(text), 1), what, hint)


class _Builder:
    def __init__(self, file: str, lines: tuple[str, ...]) -> None:
        self.file, self.lines = file, lines
        self.keys: dict[KeyPath, Mark] = {}
        self.values: dict[KeyPath, Mark] = {}
        self.problems: list[Problem] = []

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        self.values[path] = _mark(node)
        if isinstance(node, yaml.MappingNode):
            return dict(self._pairs(node, path))
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node)

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        if node.style in ("'", '"', "|", ">"):
            return node.value
        value = _resolve(node.value)
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            self._report(node, f"{node.value} is larger than any number here can be")
        return value

    def _pairs(self, node: yaml.MappingNode, path: KeyPath) -> Iterator[tuple[str, Any]]:
        seen: dict[str, yaml.Node] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._report(key_node, "a key must be a word, not a list or mapping")
                continue
            key = key_node.value
            if key in seen:
                first = seen[key].start_mark.line + 1
                self._report(key_node, f"key '{key}' stands twice; the first is on line {first}")
                continue
            seen[key] = key_node
            self.keys[(*path, key)] = _mark(key_node)
            yield key, self.build(value_node, (*path, key))

    def _report(self, node: yaml.Node, what: str, hint: str = "") -> None:
        self.problems.append(_problem(self.file, self.lines, _mark(node), what, hint))


def _mark(node: yaml.Node) -> Mark:
    start, end = node.start_mark, node.end_mark
    width = end.column - start.column if end.line == start.line else 1
    return Mark(start.line, start.column, max(1, width))


def _resolve(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text):
        return int(text, 0) if text.startswith(("0x", "0o")) else int(text)
    if _FLOAT.match(text):
        return float(text)
    return text
