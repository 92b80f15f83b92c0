"""Mutations of a recipe that extends another, and of the one that it extends; see tests/mutations.py."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

from engine import document, meaning, recipe
from engine.errors import Problem, RecipeError
from engine.plain import to_plain
from tests import mutations
from tests.mutations import ROOT, Mutation

FILES = ("base", "variant")


def data() -> dict[str, Any]:
    """A variant and its base, by file name without suffix."""
    recipes = ROOT / "tests" / "recipes"
    variant = document.read(recipes / "accept" / "extends.yaml").data
    return {
        "base": document.read(recipes / "base" / "recipe.yaml").data,
        "variant": {**variant, "extends": "base.yaml"},
    }


def prepare(folder: Path) -> None:
    shutil.copy(ROOT / "tests" / "recipes" / "base" / "model.py", folder)


def mutate(both: dict[str, Any], which: str, kind: str, rng: random.Random) -> Mutation:
    return mutations.mutate(both[which], kind, rng)


def merged(base: Any, over: Any) -> Any:
    """The merge rule, written once more."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    both = {key: value for key, value in base.items() if key not in over}
    for key, value in over.items():
        if key in base and value is None:
            continue
        both[key] = merged(base[key], value) if key in base else value
    return both


def fault(mutation: Mutation, which: str, both: dict[str, Any], folder: Path) -> str:
    """What is wrong with how a mutation of the file ``which`` was received; empty when nothing is."""
    texts = {name: mutations.write(mutations.tree(both[name])) for name in FILES} | {which: mutation.text}
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    try:
        loaded = recipe.load(folder / "variant.yaml")
        meaning.check(loaded)
    except RecipeError as error:
        return next(filter(None, (_misplaced(problem, mutation, which) for problem in error.problems)), "")
    read = {name: document.parse(text).data for name, text in texts.items()}
    whole = merged(read["base"], read["variant"]) if "extends" in read["variant"] else read["variant"]
    if not mutations._same(to_plain(loaded.recipe), whole):
        return "accepted, but what was understood is not what is written"
    return "accepted with a key that stands twice" if mutation.kind == "duplicate" else ""


def _misplaced(problem: Problem, mutation: Mutation, which: str) -> str:
    """The place is in the mutated file at the mutated line, or the message names what was touched."""
    if problem.place is None:
        return f"no place: {problem.what}"
    name = Path(problem.place.file).name
    if name == f"{which}.yaml" and problem.place.line in mutation.lines | mutation.near:
        return ""
    words = mutation.words | {name} if name.removesuffix(".yaml") not in FILES else mutation.words
    named = name in words or any(mutations._names(f"{problem.what} {problem.hint}", word) for word in words)
    return "" if named else f"names neither: {problem}"
