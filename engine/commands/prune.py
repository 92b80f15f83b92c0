"""``portwright prune``: the rewrites and overrides that a recipe no longer needs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from engine.commands import options
from engine.errors import Exit
from engine.plain import to_plain
from engine.store.store import Store
from engine.upgrade import prune
from engine.upgrade.prune import Pruned
from engine.upgrade.replay import How


@click.command("prune")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--toolchain", "spec", default="", metavar="SPEC", help="Which TensorRT; otherwise the recipe's own.")
@click.option("--apply", "apply_it", is_flag=True, help="Write the change into the recipe.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder of the runs.")
@options.store
@options.toolchains_folder
@click.option("--json", "as_json", is_flag=True, help="Print what was tried as JSON.")
def command(
    recipe: Path, spec: str, apply_it: bool, out: Path | None, store: Store | None, as_json: bool
) -> Exit:
    """Run RECIPE without each rewrite and each override, and propose to remove those that it is accepted without.

    Prints the change as a diff; every line of it is backed by a run. Whether a layer should stay wide all the same is
    a person's decision: the recipe's limits know only what they measure. Exits 1 where the recipe is not accepted as
    it is.
    """
    how = How(lambda event: None, store)
    found = prune.prune(recipe, spec, out, how, lambda line: click.echo(line, err=True), apply_it)
    if as_json:
        click.echo(json.dumps(_plain(found), indent=1))
    else:
        _print(found)
    return Exit.ACCEPTED if found.whole.accepted else Exit.NOT_ACCEPTED


def _print(found: Pruned) -> None:
    if not found.whole.accepted:
        click.echo(f"{found.recipe}: not accepted as it is on {found.whole.spec}, so nothing was tried")
        return
    for item in found.tried:
        state = f"needed: {item.needed}" if item.needed else f"not needed on {found.whole.spec}: {item.cost}"
        click.echo(f"{item.part.label}: {state}")
        click.echo(f"    run: {item.side.folder}")
    if found.together is not None and len(found.gone) > 1:
        click.echo(f"without these {len(found.gone)}: {found.together.said}\n    run: {found.together.folder}")
    if not found.patch:
        click.echo("everything in the recipe is needed")
    click.echo(found.patch, nl=False)
    if found.wrote:
        click.echo(f"written to {found.recipe}; its lock is of the recipe before: portwright run writes it anew")


def _plain(found: Pruned) -> dict[str, object]:
    return {
        "recipe": found.recipe, "toolchain": found.whole.spec, "as_it_is": found.whole.said,
        "tried": [{**to_plain(item.part), "needed": item.needed, "cost": item.cost, "verdict": item.side.said,
                   "folder": item.side.folder} for item in found.tried],
        "gone": to_plain(found.gone), "together": found.together.said if found.together else None,
        "patch": found.patch, "wrote": found.wrote,
    }  # fmt: skip
