"""``portwright fmt``: recipes in the canonical order of keys."""

from __future__ import annotations

from pathlib import Path

import click

from engine import document, formatting, recipe
from engine.errors import Exit, Problem, RecipeError


@click.command("fmt")
@click.argument("recipes", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit 1 when a file would change.")
def command(recipes: tuple[Path, ...], only_check: bool) -> Exit:
    """Put the keys of RECIPES (files or folders) in the order of the schema and even out their layout.

    Comments and values stay as they are. A file that is no recipe is left alone.
    """
    found: list[Problem] = []
    changed = 0
    for path in recipes:
        try:
            changed += _one(path, only_check)
        except RecipeError as error:
            found += error.problems
    if found:
        raise RecipeError(found)
    return Exit.NOT_ACCEPTED if only_check and changed else Exit.ACCEPTED


def _one(path: Path, only_check: bool) -> bool:
    """True when the file is not, or was not, as ``fmt`` leaves it."""
    file = recipe.find(path)
    text = document.text_of(file)
    after = formatting.canonical(text, str(file))
    if after == text:
        return False
    if not only_check:
        formatting.write(file, after)
    click.echo(f"{file}: {'would be changed' if only_check else 'changed'}")
    return True
