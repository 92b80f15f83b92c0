"""``portwright show``: the resolved plan as YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from engine import intake, origins, writing
from engine.errors import Exit
from engine.plain import to_plain


@click.command("show")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--resolved", is_flag=True, help="Every value with its origin: FILE:LINE, or default.")
def command(recipe: Path, resolved: bool) -> Exit:
    """Print RECIPE as resolved, with every default filled in. Runs nothing."""
    loaded, plan = intake.make_plan(recipe)
    if resolved:
        click.echo(origins.render(loaded, plan), nl=False)
        return Exit.ACCEPTED
    click.echo(writing.text(_without_none(to_plain(plan))), nl=False)
    return Exit.ACCEPTED


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value
