"""``portwright plan``: what a run would do."""

from __future__ import annotations

import json
from pathlib import Path

import click

from engine import intake, wording
from engine.errors import Exit
from engine.plain import to_plain
from engine.steps import STEPS, does


@click.command("plan")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the whole plan as JSON.")
def command(recipe: Path, as_json: bool) -> Exit:
    """Print the steps, shapes and choices that RECIPE resolves to. Runs nothing."""
    _, plan = intake.make_plan(recipe)
    if as_json:
        click.echo(json.dumps(to_plain(plan) | {"digest": plan.digest}, indent=1))
        return Exit.ACCEPTED
    click.echo(f"{plan.name}  plan {plan.digest[:12]}")
    shapes = [{"shape": name, "sizes": wording.sizes_text(sizes)} for name, sizes in plan.shapes.items()]
    click.echo("\n" + wording.table(shapes, ["shape", "sizes"]) + "\n")
    rows = [
        {"step": step.name, "does": does(step, plan.model.source), "proves": step.proves} for step in STEPS
    ]
    click.echo(wording.table(rows, ["step", "does", "proves"]))
    return Exit.ACCEPTED
