"""``portwright schema``: the shipped JSON schemas, for editors and other tools."""

from __future__ import annotations

import click

from engine import schema
from engine.errors import Exit


@click.command("schema")
@click.argument("name", type=click.Choice(["recipe", "rule", "lock"]), default="recipe")
def command(name: str) -> Exit:
    """Print the JSON schema of recipes, of rewrite rules or of lock files, exactly as it ships with this version."""
    click.echo(schema.text(name), nl=False)
    return Exit.ACCEPTED
