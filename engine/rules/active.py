"""Rules that are active together: each file read and checked in full, then all of them beside each other."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from engine import document
from engine.document import Document
from engine.errors import Problem, RecipeError
from engine.rules import result_types, undo
from engine.rules.language import Rule, load_rule


def load(files: Iterable[tuple[Path, str]], run_python: bool = True) -> list[Rule]:
    """The rules of these files, each with the name that messages have for it; one that stands twice is read once.

    Raises RecipeError with everything that is wrong, each at its line: forms and texts, replacements of another type
    or rank, rules that undo each other. Without ``run_python`` the Python beside them is not run for the last.
    """
    rules: dict[Path, Rule] = {}
    docs: dict[Path, Document] = {}
    found: list[Problem] = []
    for path, shown in dict(files).items():
        try:
            rule = load_rule(path, shown)
            docs[path] = document.read(path, shown)
            found += result_types.problems(docs[path], rule)
            rules[path] = rule
        except RecipeError as error:
            found += error.problems
    if not found:
        known = [rule for rule in rules.values() if run_python or rule.apply is None]
        found += [_undone(circle, docs) for circle in undo.circles(known)]
    if found:
        raise RecipeError(found)
    return list(rules.values())


def _undone(circle: tuple[Rule, ...], docs: dict[Path, Document]) -> Problem:
    first, *others = circle
    doc, path = docs[first.path], _replacement(first)
    if not others:
        what = f"rule {first.name} matches what it puts there itself, without end"
        return doc.problem(path, what, "add a condition (where) that its own result does not meet", key=True)
    places = {rule.name: docs[rule.path].place(_replacement(rule), key=True) for rule in others}
    listed = " and then ".join(f"{name} ({place})" for name, place in places.items())
    names = [first.name, *places]
    what = (
        f"rules {', '.join(names[:-1])} and {names[-1]} undo each other:"
        f" {listed} turns what {first.name} puts there back into what it matches"
    )
    hint = "name one of them only, or add a condition (where) that the other's result does not meet"
    return doc.problem(path, what, hint, key=True)


def _replacement(rule: Rule) -> tuple[str]:
    return ("replace" if rule.replace is not None else "apply" if rule.apply is not None else "definition",)
