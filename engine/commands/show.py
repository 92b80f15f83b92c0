"""``portwright show``: the resolved plan as YAML."""

from __future__ import annotations

from pathlib import Path

import click

from engine import intake, origins, writing
from engine.errors import Exit
from engine.plain import to_plain, without_none


@click.command("show")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--resolved", is_flag=True, help="Every value with its origin: FILE:LINE, or default.")
def command(recipe: Path, resolved: bool) -> Exit:
    """Print RECIPE as resolved, with every default filled in. Runs nothing."""
    loaded, plan = intake.make_plan(recipe)
    if resolved:
        click.echo(origins.render(loaded, plan), nl=False)
        return Exit.ACCEPTED
    click.echo(writing.text(without_none(to_plain(plan))), nl=False)
    return Exit.ACCEPTED
