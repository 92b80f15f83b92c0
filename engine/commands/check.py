"""``portwright check``: is the recipe right, as far as can be told without running anything."""

from __future__ import annotations

from pathlib import Path

import click

from engine import intake
from engine.errors import Exit, Problem, RecipeError


@click.command("check")
@click.argument("recipes", nargs=-1, required=True, type=click.Path(path_type=Path))
def command(recipes: tuple[Path, ...]) -> Exit:
    """Check RECIPES (files or folders) without importing or running the model."""
    found: list[Problem] = []
    for path in recipes:
        try:
            loaded = intake.check(path)
            click.echo(f"{loaded.document.file}: ok")
        except RecipeError as error:
            found += error.problems
    if found:
        raise RecipeError(found)
    return Exit.ACCEPTED
