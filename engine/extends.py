"""``extends``: a recipe that changes another one, merged before anything is checked.

The merge rule, all of it: mappings merge key by key; everything else, lists too, is replaced; ``null`` removes
the key, which must be there. The base may extend a further recipe. Every key and value keeps the place where
it really stands, in whichever file; relative paths are relative to the file that they stand in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import document as documents
from engine.document import Document, Key, KeyPath
from engine.errors import Place, Problem, RecipeError, quoted

MAX_BASES = 8
KEY = "extends"
Reader = Callable[[Path, str], Document]


@dataclass(frozen=True)
class Merged(Document):
    """A document made of several. ``homes`` tells which of them each key path stands in."""

    homes: Mapping[KeyPath, Document]

    def home(self, path: KeyPath) -> Document:
        """The document that ``path`` or its nearest parent stands in."""
        path = tuple(path)
        while path and path not in self.homes:
            path = path[:-1]
        return self.homes[path]

    def place(self, path: KeyPath, key: bool = False) -> Place:
        return self.home(path).place(path, key)

    def problem(self, path: KeyPath, what: str, hint: str = "", key: bool = False) -> Problem:
        return self.home(path).problem(path, what, hint, key)


def resolve(
    document: Document, file: Path, read: Reader = documents.read
) -> tuple[Document, Mapping[str, Path]]:
    """``document`` merged with all that it extends, and the folder of every file by its shown name.

    ``read(path, shown name)`` reads a base. Raises RecipeError, with the place of the ``extends`` that is at fault.
    """
    folders = {document.file: file.resolve().parent}
    chain, seen = [document], [file.resolve()]
    while isinstance(written := _written(chain[-1]), str):
        last = chain[-1]
        path = _find(last, folders[last.file] / written, written)
        if path in seen:
            names = " -> ".join(item.name for item in (*seen, path))
            raise RecipeError([last.problem((KEY,), f"extends: goes in a circle: {names}")])
        if len(chain) > MAX_BASES:
            raise RecipeError([last.problem((KEY,), f"extends: a chain of more than {MAX_BASES} recipes")])
        shown = _shown(last.file, written, path)
        chain.append(read(path, shown))
        folders[shown] = path.parent
        seen.append(path)
        if not isinstance(chain[-1].data, dict):
            raise RecipeError(
                [chain[-1].problem((), "a recipe is a mapping; this file holds something else")]
            )
    merged = chain.pop()
    while chain:
        merged = merge(merged, chain.pop())
    return merged, folders


def _written(document: Document) -> Any:
    return document.data.get(KEY) if isinstance(document.data, dict) else None


def _find(document: Document, path: Path, written: str) -> Path:
    folder = os.path.isdir(path)
    file = path / "recipe.yaml" if folder else path
    if not os.path.isfile(file):
        hint = (
            "the folder holds no recipe.yaml"
            if folder
            else f"looked in {quoted(str(path.parent), 300)[1:-1]}"
        )
        raise RecipeError([document.problem((KEY,), f"extends: there is no recipe {quoted(written)}", hint)])
    return file.resolve()


def _shown(by: str, written: str, path: Path) -> str:
    name = os.path.normpath(os.path.join(os.path.dirname(by), written))
    return name if name.endswith(path.name) else os.path.join(name, path.name)


def merge(base: Document, over: Document) -> Merged:
    """``over`` on top of ``base``. Raises RecipeError for every ``null`` that removes nothing."""
    work = _Merge(base, over)
    data = work.mapping(base.data, over.data, ())
    if work.problems:
        raise RecipeError(work.problems)
    keys, values = {}, {}
    for path, home in work.homes.items():
        if path in home.keys:
            keys[path] = home.keys[path]
        if path in home.values:
            values[path] = home.values[path]
    return Merged(over.file, over.lines, data, keys, values, work.homes)


class _Merge:
    def __init__(self, base: Document, over: Document) -> None:
        self.base, self.over = base, over
        self.homes: dict[KeyPath, Document] = {}
        self.problems: list[Problem] = []

    def mapping(self, base: Mapping[str, Any], over: Mapping[str, Any], path: KeyPath) -> dict[str, Any]:
        self.homes[path] = self.over
        merged = {}
        for key, value in base.items():
            below = (*path, key)
            if key not in over:
                if below != (KEY,):
                    merged[key] = self.take(self.base, value, below)
            elif isinstance(value, dict) and isinstance(over[key], dict):
                merged[key] = self.mapping(value, over[key], below)
            elif over[key] is not None:
                merged[key] = self.take(self.over, over[key], below)
        for key, value in over.items():
            if key in base:
                continue
            if value is None:
                what = f"'{key}' is to be removed, but {self.base.file} does not set it"
                self.problems.append(self.over.problem((*path, key), what, key=True))
            else:
                merged[key] = self.take(self.over, value, (*path, key))
        return merged

    def take(self, source: Document, value: Any, path: KeyPath) -> Any:
        for below in _paths(value, path):
            self.homes[below] = source.home(below) if isinstance(source, Merged) else source
        return value


def _paths(value: Any, path: KeyPath) -> Iterator[KeyPath]:
    yield path
    inner: Iterator[tuple[Key, Any]] = iter(())
    if isinstance(value, dict):
        inner = iter(value.items())
    elif isinstance(value, list):
        inner = iter(enumerate(value))
    for key, item in inner:
        yield from _paths(item, (*path, key))
