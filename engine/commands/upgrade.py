"""``portwright upgrade``: recipes on the old and on the new TensorRT, and what is different."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import click

from engine import wording
from engine.commands import options
from engine.errors import Exit
from engine.lock import file as lock_file
from engine.store.store import Store
from engine.upgrade import report, upgrade
from engine.upgrade.replay import How


@click.command("upgrade")
@click.argument("recipes", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--to", "after", required=True, metavar="SPEC", help="The new toolchain: tensorrt-rtx==1.7.1.116.")
@click.option("--from", "before", default="", metavar="SPEC", help="The old one; otherwise that of each lock file.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("upgrade"), show_default=True,
    help="Folder of the runs, UPGRADE_REPORT.md and upgrade.json.",
)  # fmt: skip
@click.option("--write", "write_it", is_flag=True, help="Write the lock files when all are accepted.")
@click.option("--jobs", type=click.IntRange(min=1), default=upgrade.default_jobs(), help="Recipes at once.")
@click.option("--time-limit", type=click.FloatRange(min=0, min_open=True), help="Seconds for a build, and a step.")
@options.store
@options.toolchains_folder
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def command(
    recipes: Sequence[Path],
    after: str,
    before: str,
    out: Path,
    write_it: bool,
    jobs: int,
    time_limit: float | None,
    store: Store | None,
    as_json: bool,
) -> Exit:
    """Run RECIPES, files or their folders, on two toolchains, and say what is different.

    Exits 0 when every recipe is accepted on the new one, 1 otherwise.
    """
    todo = upgrade.tasks(recipes, before, after, out)
    out.mkdir(parents=True, exist_ok=True)
    how = How(lambda event: None, store, time_limit)
    try:
        rows = upgrade.run(todo, jobs, how, lambda line: click.echo(line, err=True))
    except KeyboardInterrupt:
        os._exit(Exit.INTERRUPTED)  # the other recipes' processes end with this one
    written = upgrade.write(todo, rows) if write_it else []
    text = report.markdown(rows, before, after, recipes)
    lock_file.write(text, out / "UPGRADE_REPORT.md")
    plain = report.plain(rows, after) | {"written": written}
    lock_file.write(json.dumps(plain, indent=1) + "\n", out / "upgrade.json")
    if as_json:
        click.echo(json.dumps(plain, indent=1))
    else:
        click.echo(wording.table(report.table(rows), report.COLUMNS))
        click.echo(f"{after}: {report.headline(rows)}")
        for line in written:
            click.echo(line)
        click.echo(f"report: {out / 'UPGRADE_REPORT.md'}")
    return Exit.ACCEPTED if all(row.good for row in rows) else Exit.NOT_ACCEPTED
