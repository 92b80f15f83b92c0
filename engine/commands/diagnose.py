"""``portwright diagnose``: which layers must stay wide, as a change of the recipe that was tried."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from engine import diagnosing
from engine.commands import options
from engine.commands.progress import Bar, Lines, Silent
from engine.diagnosing import Diagnosis
from engine.errors import Exit
from engine.store.store import Store


@click.command("diagnose")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--apply", "apply_it", is_flag=True, help="Write the change into the recipe.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the run to look at, or to make.",
)
@options.store
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(recipe: Path, apply_it: bool, out: Path | None, store: Store | None, as_json: bool) -> Exit:
    """Find the fewest layers of RECIPE to keep in FP32 so that the rehearsal meets accept.engine.

    Looks at the last run of the recipe when that is one of this very recipe, and runs it up to the rehearsal
    otherwise. Prints the change as a diff; every line of it was rehearsed. Exits 0 when the recipe is fine or the
    change makes it so, 1 when no such change was found.
    """
    view = Silent(as_json) if as_json else Bar() if Bar.fits() else Lines()
    with view:
        found = diagnosing.diagnose(recipe, out, view.observe, apply_it, store)
    if as_json:
        click.echo(json.dumps(_plain(found), indent=1))
    else:
        click.echo("\n".join(diagnosing.words(found)))
        if found.patch:
            click.echo(found.patch, nl=False)
    return Exit.ACCEPTED if found.good else Exit.NOT_ACCEPTED


def _plain(found: Diagnosis) -> dict[str, Any]:
    return {"facts": dict(found.facts), "patch": found.patch, "wrote": found.wrote, "good": found.good}
