"""Text to plan: the part of the route that every command shares and that imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from engine import meaning, plan, recipe
from engine.plan import Plan
from engine.recipe import LoadedRecipe


def check(path: Path) -> LoadedRecipe:
    """Text to checked recipe. Raises RecipeError with every problem found."""
    loaded = recipe.load(path)
    meaning.check(loaded)
    return loaded


def make_plan(path: Path) -> tuple[LoadedRecipe, Plan]:
    """Text to plan."""
    loaded = check(path)
    return loaded, plan.make(loaded)
