"""``portwright diff``: what a change of a recipe or of a lock file means."""

from __future__ import annotations

import json

import click

from engine.diff import compare, words
from engine.errors import Exit


@click.command("diff")
@click.argument("old")
@click.argument("new")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    help="How to print it.",
)
def command(old: str, new: str, form: str) -> Exit:
    """Say what changed from OLD to NEW, which limits became looser and which steps a run repeats.

    Each is a recipe, the folder of one, or REV:PATH, a recipe in a git revision; or both are lock files
    (recipe.lock.yaml): then it says how the outcomes differ and what became worse. Exits 0 when both say
    the same, 1 when they differ, 2 for bad input. Runs no code of a recipe.
    """
    found = compare.compare(old, new)
    if form == "json":
        click.echo(json.dumps(words.plain(found), indent=1))
    else:
        click.echo(words.markdown(found) if form == "markdown" else words.text(found))
    return Exit.NOT_ACCEPTED if found.changes else Exit.ACCEPTED
