"""The checks of ``inputs.NAME.values`` for values that stand elsewhere in the recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from engine.checks import values
from engine.document import Document, KeyPath
from engine.errors import Place, Problem
from engine.recipe import LoadedRecipe, Values
from engine.schema import nearest


def values_at(loaded: LoadedRecipe, where: KeyPath, given: Mapping[str, str | Values]) -> Iterator[Problem]:
    """Problems of values by input name that stand at ``where``, with their own places."""
    inputs = dict(loaded.recipe.inputs)
    for name, item in given.items():
        if name not in inputs:
            hint = nearest(name, inputs) or "inputs: " + ", ".join(inputs)
            yield loaded.document.problem((*where, name), f"there is no input '{name}'", hint, key=True)
        else:
            inputs[name] = replace(inputs[name], values=item)
    own = loaded.document
    moved = _Moved(own.file, own.lines, own.data, own.keys, own.values, own, where, frozenset(given), [])
    changed = replace(loaded, recipe=replace(loaded.recipe, inputs=inputs), document=moved)
    for _ in values.problems(changed):
        pass
    yield from moved.found


@dataclass(frozen=True)
class _Moved(Document):
    """A document in which the values of some inputs stand under ``where``; keeps the problems found there."""

    own: Document
    where: KeyPath
    names: frozenset[str]
    found: list[Problem]

    def place(self, path: KeyPath, key: bool = False) -> Place:
        return self.own.place(self._real(path) or path, key)

    def problem(self, path: KeyPath, what: str, hint: str = "", key: bool = False) -> Problem:
        real = self._real(path)
        problem = self.own.problem(real or path, what, hint, key)
        if real:
            self.found.append(problem)
        return problem

    def _real(self, path: KeyPath) -> KeyPath | None:
        if len(path) > 2 and path[0] == "inputs" and path[1] in self.names:
            return (*self.where, path[1], *path[3:])
        return None
