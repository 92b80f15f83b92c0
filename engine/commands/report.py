"""``portwright report``: judge and render a stored run again."""

from __future__ import annotations

from pathlib import Path

import click

from engine import record, route
from engine.commands.run import required_steps
from engine.errors import Exit


@click.command("report")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Where to write the report."
)
@click.option("--require", default="", help="Steps that must have run, by comma; otherwise exit 1.")
def command(run: Path, output: Path | None, require: str) -> Exit:
    """Render the report of RUN (a recipe folder, an output folder or a record.json) again. Runs nothing."""
    try:
        outcome = route.render(run, required_steps(require), output)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        # What a run writes can be judged; this comes from something else.
        raise record.unusable(route.folder_of(run) / record.FILE) from error
    click.echo(f"{outcome.record.plan.name}: {outcome.verdict.headline}")
    click.echo(f"report: {outcome.report}")
    return outcome.exit_code
