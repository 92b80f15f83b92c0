"""The cases that a recipe adds to the hard inputs, and those that it leaves out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.checks import moved
from engine.document import KeyPath
from engine.errors import Problem
from engine.recipe import AddedCase, LoadedRecipe
from engine.schema import nearest
from engine.stress_names import KINDS


def problems(loaded: LoadedRecipe) -> Iterator[Problem]:
    """Every problem under ``stress``."""
    stress = loaded.recipe.stress
    if stress is None:
        return
    names = [case.name for case in stress.add or ()]
    for index, case in enumerate(stress.add or ()):
        where = ("stress", "add", index)
        if case.name in KINDS:
            what = f"'{case.name}' is the name of a kind of case"
            yield loaded.document.problem((*where, "name"), what, "give it a name of its own")
        if case.name in names[:index]:
            yield loaded.document.problem((*where, "name"), f"case '{case.name}' stands twice")
        yield from _sizes(loaded, index, case)
        yield from _values(loaded, index, case)
    left: set[str] = set()
    for index, item in enumerate(stress.leave_out or ()):
        spot = ("stress", "leave_out", index, "case")
        if item.case in left:
            yield loaded.document.problem(spot, f"'{item.case}' is left out twice")
        left.add(item.case)
        yield from _left_out(loaded, spot, item.case, names)


def _left_out(loaded: LoadedRecipe, spot: KeyPath, case: str, added: list[str]) -> Iterator[Problem]:
    kind, dot, of = case.removesuffix(".long").partition(".")
    if kind == "compared" and of not in loaded.recipe.inputs:
        of = re.sub(r"\.\d+$", "", of)  # one of several for the same input
    recipe = loaded.recipe
    if case in added:
        yield loaded.document.problem(
            spot, f"'{case}' is a case that the recipe adds itself", "take it out there"
        )
    elif kind not in KINDS:
        hint = nearest(kind, KINDS) or "kinds: " + ", ".join(KINDS)
        yield loaded.document.problem(spot, f"there is no kind of case '{kind}'", hint)
    elif dot and of not in (there := recipe.axes or {} if kind == "corner" else recipe.inputs):
        what = "axis" if kind == "corner" else "input"
        hint = nearest(of, there) or f"{'axes' if kind == 'corner' else 'inputs'}: " + ", ".join(there)
        yield loaded.document.problem(spot, f"there is no {what} '{of}'", hint)


def _sizes(loaded: LoadedRecipe, index: int, case: AddedCase) -> Iterator[Problem]:
    axes = loaded.recipe.axes or {}
    for name, size in (case.axes or {}).items():
        spot = ("stress", "add", index, "axes", name)
        if name not in axes:
            hint = nearest(name, axes) or "axes: " + (", ".join(axes) or "none")
            yield loaded.document.problem(spot, f"axis '{name}' is not declared", hint, key=True)
        elif not axes[name].min <= size <= axes[name].max:
            what = f"{size} is outside of axis '{name}': min {axes[name].min}, max {axes[name].max}"
            yield loaded.document.problem(spot, what)


def _values(loaded: LoadedRecipe, index: int, case: AddedCase) -> Iterator[Problem]:
    yield from moved.values_at(loaded, ("stress", "add", index, "values"), case.values)
