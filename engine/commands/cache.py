"""``portwright cache``: the stored results of steps."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import click

from engine import wording
from engine.errors import Exit
from engine.store import care
from engine.store.store import VARIABLE, Store, default_folder

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class _Size(click.ParamType[int]):
    """``500M``, ``20 GiB``."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", str(value).strip(), re.IGNORECASE)
        if not found:
            self.fail(f"{value!r} is no size; write for example 500M or 20G", param, ctx)
        return int(float(found[1]) * _UNITS[found[2].upper()])


def _opened(context: click.Context, option: click.Parameter, value: Path | None) -> Store:
    return Store.open(value or default_folder())


_store = click.option(
    "--store",
    type=click.Path(path_type=Path, file_okay=False),
    callback=_opened,
    help=f"Folder of the store; otherwise ${VARIABLE} or the user's cache folder.",
)


@click.group("cache")
def command() -> None:
    """The stored results of steps: what there is, keeping it small, and whether it is whole."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@_store
def list_(store: Store, as_json: bool) -> Exit:
    """List the stored results, the last used first."""
    found = care.entries(store)
    rows = [
        {"recipe": item.recipe, "step": item.step, "ran": item.ended, "files": str(len(item.artifacts)),
         "MiB": f"{item.bytes / 2**20:.1f}", "last used": time.strftime("%Y-%m-%d %H:%M", time.gmtime(item.used))}
        for item in found
    ]  # fmt: skip
    total = care.size(store)
    if as_json:
        click.echo(json.dumps({"folder": str(store.folder), "bytes": total, "limit": care.DEFAULT_SIZE,
                               "entries": rows}, indent=1))  # fmt: skip
        return Exit.ACCEPTED
    if rows:
        click.echo(wording.table(rows, list(rows[0])))
    click.echo(
        f"{len(rows)} results, {total / 2**20:,.1f} MiB in {store.folder};"
        f" a run keeps it within {care.DEFAULT_SIZE / 2**30:.0f} GiB"
    )
    return Exit.ACCEPTED


@command.command("prune")
@click.option("--max-size", type=_Size(), default=care.DEFAULT_SIZE, help="Such as 500M or 20G; 0 empties it.")
@_store
def prune(store: Store, max_size: int) -> Exit:
    """Remove the results that were not used for longest, until the rest fits."""
    done = care.prune(store, max_size)
    freed, left = (f"{size / 2**20:,.1f} MiB" for size in (done.freed, done.left))
    click.echo(f"{done.entries} results removed, {freed} freed, {left} left")
    return Exit.ACCEPTED


@command.command("verify")
@_store
def verify(store: Store) -> Exit:
    """Read every stored file; remove what is not as it was written. Exits 1 when there was any."""
    faults = care.verify(store)
    for fault in faults:
        click.echo(f"removed: {fault}")
    word = f"{len(faults)} faults" if faults else "no fault"
    click.echo(f"{word} in {len(care.entries(store))} results; what was removed is run again when it is asked for")
    return Exit.NOT_ACCEPTED if faults else Exit.ACCEPTED
