"""``portwright search``: the cheapest types that meet the limits, with the frontier as a table and a picture."""

from __future__ import annotations

import json
from pathlib import Path

import click

from engine import searching
from engine.commands import options
from engine.commands.progress import Bar, Lines, Silent
from engine.errors import Exit
from engine.store.store import Store

_COLUMNS = ("base", "exceptions", "cost", "mult.", "bytes", "error / limit", "")


@click.command("search")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--apply", "apply_it", is_flag=True, help="Write the cheapest that holds into the recipe.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the run to look at, or to make.",
)
@options.store
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def command(recipe: Path, apply_it: bool, out: Path | None, store: Store | None, as_json: bool) -> Exit:
    """Find the cheapest types for RECIPE whose rehearsal meets accept.engine.

    Tries the bases of precision.search (int8 and fp16 where it names none), each as it is and with the fewest
    exceptions that bring it within the limits. Cost is bytes moved and multiplications by type, relative to FP32: no
    GPU has timed it. Exits 0 when something holds, 1 when nothing does.
    """
    view = Silent(as_json) if as_json else Bar() if Bar.fits() else Lines()
    with view:
        found = searching.search(recipe, out, view.observe, apply_it, store)
    if as_json:
        picture = str(found.picture) if found.picture else None
        click.echo(json.dumps({"facts": dict(found.facts), "patch": found.patch, "wrote": found.wrote,
                               "picture": picture}, indent=1))  # fmt: skip
    else:
        if "points" in found.facts:
            _table(searching.rows(found.facts))
        click.echo("\n".join(searching.words(found)))
        click.echo(found.patch, nl=False)
    return Exit.ACCEPTED if found.good and not (apply_it and found.refused) else Exit.NOT_ACCEPTED


def _table(rows: list[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*_COLUMNS, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, soft_wrap=True).print(table)
