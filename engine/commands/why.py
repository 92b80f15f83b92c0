"""``portwright why``: for each step, whether the store has its result, and otherwise what changed."""

from __future__ import annotations

import json
from pathlib import Path

import click

from engine import why
from engine.commands import options
from engine.errors import Exit
from engine.intake import make_plan
from engine.plain import to_plain
from engine.store.store import Store

_WORDS = {"reused": "reused", "runs": "RUNS", "follows": "may run", "always": "runs always"}


@click.command("why")
@click.argument("recipe", type=click.Path(path_type=Path))
@options.store
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def command(recipe: Path, as_json: bool, store: Store | None) -> Exit:
    """Say for each step of RECIPE whether `run` reuses its stored result, or what changed from what to what.

    Runs nothing. What changed is told against the last run of this recipe with this store.
    """
    if store is None:
        raise click.UsageError("--no-store has every step run")
    _, plan = make_plan(recipe)
    lines = why.explain(plan, store)
    if as_json:
        click.echo(json.dumps(to_plain(lines), indent=1))
        return Exit.ACCEPTED
    for line in lines:
        click.echo(f"{line.step:<10} {_WORDS[line.state]:<12} {line.why}")
        for change in line.changes:
            click.echo(f"{'':<10}   {change.field}: {change.then} -> {change.now}")
    return Exit.ACCEPTED
