"""``portwright run``: the whole route."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import click

from engine import locking, route, wording
from engine.accept import REHEARSED
from engine.commands import options
from engine.commands.progress import Bar, Lines, Silent
from engine.diff import words
from engine.errors import Exit
from engine.locking import Locked
from engine.plain import to_plain
from engine.route import Outcome
from engine.steps import NAMES
from engine.store.store import Store
from engine.upgrade.replay import How


@click.command("run")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for everything that is written."
)
@click.option("--until", type=click.Choice(NAMES), default=NAMES[-1], help="Stop after this step.")
@click.option(
    "--time-limit", type=click.FloatRange(min=0, min_open=True), help="Seconds for a group of steps."
)
@click.option("--require", default="", help="Steps that must have run, by comma; otherwise exit 1.")
@click.option(
    "--locked",
    is_flag=True,
    help="Exit 1 when the outcome differs from the recipe's lock file; write none.",
)
@click.option(
    "--write-rewrites", is_flag=True, help="Turn what rewrites: auto did into lines of the recipe; no lock."
)
@click.option("--matrix", is_flag=True, help="Run every toolchain with every target of the recipe's matrix; no lock.")
@options.store
@click.option("--fresh", is_flag=True, help="Take nothing out of the store; read every file again.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the outcome as JSON, and events as JSON lines on stderr."
)
@click.option("--quiet", "-q", is_flag=True, help="Print only the line with the verdict.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def command(
    recipe: Path,
    out: Path | None,
    until: str,
    require: str,
    time_limit: float | None,
    locked: bool,
    write_rewrites: bool,
    matrix: bool,
    store: Store | None,
    fresh: bool,
    as_json: bool,
    quiet: bool,
    debug: bool,
) -> Exit:
    """Run RECIPE from PyTorch to TensorRT engine and port report; a whole run also writes its lock file."""
    wanted = required_steps(require)
    if locked and write_rewrites:
        raise click.UsageError("--locked holds the run against the recipe as it is; --write-rewrites changes it")
    if matrix:
        if locked or write_rewrites or until != NAMES[-1] or require:
            raise click.UsageError("--matrix goes with none of --locked, --write-rewrites, --until and --require")
        return _matrix(recipe, out, How(lambda event: None, None if fresh else store, time_limit), as_json)
    view = Silent(as_json) if as_json or quiet else Bar() if Bar.fits() else Lines()
    with view:
        outcome = route.run(recipe, out, until, wanted, view.observe, time_limit, locked, write_rewrites, store, fresh)
    if quiet and not as_json:
        _print_verdict(outcome)
    else:
        _print(outcome, as_json, debug)
    return outcome.exit_code


def _matrix(recipe: Path, out: Path | None, how: How, as_json: bool) -> Exit:
    from engine.upgrade import matrix, report

    cells = matrix.run(recipe, out, how, lambda line: click.echo(line, err=True))
    if as_json:
        found = [{"target": cell.target or None} | report.side(cell.side) for cell in cells]
        click.echo(json.dumps(found, indent=1))
    else:
        click.echo(wording.table(matrix.table(cells), matrix.COLUMNS))
    return Exit.ACCEPTED if all(cell.side.accepted for cell in cells) else Exit.NOT_ACCEPTED


def required_steps(text: str) -> Sequence[str]:
    """``verify,bench`` as step names. Raises BadParameter for a word that is none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in NAMES:
            raise click.BadParameter(
                f"no step '{name}'; steps are {', '.join(NAMES)}", param_hint="--require"
            )
    return names


def _print_verdict(outcome: Outcome) -> None:
    """One line; on stderr what else the exit code stands for."""
    if outcome.message:
        click.echo(outcome.message, err=True)
    if outcome.lock is not None and outcome.lock.state == "differs":
        click.echo(outcome.lock.text, err=True)
    click.echo(f"{outcome.record.plan.name}: {outcome.verdict.headline}")


def _print(outcome: Outcome, as_json: bool, debug: bool) -> None:
    if as_json:
        plain = {"verdict": to_plain(outcome.verdict), "report": str(outcome.report),
                 "exit_code": int(outcome.exit_code), "message": outcome.message,
                 "wrote": outcome.wrote,
                 "lock": locking.plain(outcome.lock) if outcome.lock else None}  # fmt: skip
        click.echo(json.dumps(plain, indent=1))
        return
    failure = outcome.record.failure
    if outcome.message:
        click.echo(outcome.message, err=True)
    if debug and failure is not None and failure.evidence:
        click.echo(failure.evidence, err=True)
    for claim in outcome.verdict.claims:
        if claim.status != "pass":
            why = f": {claim.why}" if claim.why else f": {claim.value:.3g}" if claim.value is not None else ""
            where = f" at {claim.where}" if claim.where else ""
            click.echo(f"{claim.status:>8}  {claim.name} {claim.limit}{why}{where}")
    click.echo(f"{outcome.record.plan.name}: {outcome.verdict.headline}")
    click.echo(f"report: {outcome.report}")
    if any(claim.status == "fail" and claim.name.startswith(REHEARSED) for claim in outcome.verdict.claims):
        plan = outcome.record.plan
        recipe = os.path.relpath(Path(plan.folder) / Path(plan.recipe_file).name)
        click.echo(f"portwright diagnose {recipe} says which layers to keep wide")
    if outcome.wrote:
        click.echo(outcome.wrote)
    if outcome.lock is not None:
        _print_lock(outcome.lock)


def _print_lock(lock: Locked) -> None:
    if lock.differences is not None:
        click.echo(words.text(lock.differences))
    if lock.text:
        click.echo(lock.text)
