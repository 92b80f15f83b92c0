"""``portwright check``: is the recipe right, as far as can be told without running anything."""

from __future__ import annotations

from pathlib import Path

import click

from engine import intake
from engine.errors import Exit, Problem, RecipeError


@click.command("check")
@click.argument("recipes", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "github", "sarif"]),
    default="text",
    help="How to print problems: for people, as GitHub annotations, or as a SARIF log.",
)
def command(recipes: tuple[Path, ...], form: str) -> Exit:
    """Check RECIPES (files or folders) without importing or running the model."""
    found: list[Problem] = []
    for path in recipes:
        try:
            loaded = intake.check(path)
            if form != "sarif":
                click.echo(f"{loaded.document.file}: ok")
        except RecipeError as error:
            found += error.problems
    if form != "text":
        _print(found, form)
        return Exit.USAGE if found else Exit.ACCEPTED
    if found:
        raise RecipeError(found)
    return Exit.ACCEPTED


def _print(found: list[Problem], form: str) -> None:
    from engine import annotations

    if form == "github":
        for line in annotations.github(found):
            click.echo(line)
        return
    import json

    click.echo(json.dumps(annotations.sarif(found), indent=1))
