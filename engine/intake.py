"""Text to plan: the part of the route that every command shares. It imports onnx for a recipe with rules of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine import meaning, plan, recipe
from engine.checks import rules
from engine.errors import Problem, RecipeError
from engine.plan import Plan
from engine.recipe import LoadedRecipe


def check(path: Path) -> LoadedRecipe:
    """Text to checked recipe. Raises RecipeError with every problem found."""
    loaded = recipe.load(path)
    found = meaning.problems(loaded)
    found += _of_rules(loaded)
    if found:
        raise RecipeError(found)
    return loaded


def _of_rules(loaded: LoadedRecipe) -> list[Problem]:
    """What is wrong with rules beside the recipe, in themselves and beside the others that it names."""
    files = rules.files(loaded)
    if not files or any(rules.problems(loaded)):
        return []
    from engine.rules import active

    try:
        active.load(files, run_python=False)
    except RecipeError as error:
        return [replace(problem, kind="rewrites") for problem in error.problems]
    return []


def make_plan(path: Path) -> tuple[LoadedRecipe, Plan]:
    """Text to plan."""
    loaded = check(path)
    return loaded, plan.make(loaded)
