"""``portwright toolchain``: the TensorRT versions that can be built with here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from engine import toolchain, wording
from engine.commands.options import toolchains_folder
from engine.errors import Exit, RecipeError, quoted
from engine.toolchains import make, places


@click.group("toolchain")
@toolchains_folder
def command() -> None:
    """The TensorRT versions to build with: each a Python environment of its own.

    \b
    SPEC is one of
      tensorrt-rtx==1.6.1.120   installed from the package index into an environment of its own
      tensorrt==11.4.0.106      the same; its wheels need https://pypi.nvidia.com
      path:/x/bin/python        an interpreter that has TensorRT
      current                   the environment that Portwright runs in
    """


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def list_(as_json: bool) -> Exit:
    """List what can be built with, and what is half-made."""
    rows = [_row(kept.spec, kept.version, str(kept.python), "ready") for kept in places.kept()]
    seen = {row["toolchain"] for row in rows}
    for name in toolchain.DISTRIBUTION.values():
        try:
            tool = toolchain.find(name)
        except RecipeError:
            continue
        if (spec := f"{name}=={tool.version}") not in seen:
            rows.insert(0, _row(spec, tool.version, str(tool.python), "current"))
    rows += [_row(folder.name, "", str(folder), "half-made, not used") for folder in places.half_made()]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
    elif rows:
        click.echo(wording.table(rows, list(rows[0])))
    else:
        click.echo(f"no toolchain here or in {places.root()}; portwright toolchain add tensorrt-rtx==VERSION")
    return Exit.ACCEPTED


def _row(spec: str, version: str, python: str, state: str) -> dict[str, str]:
    return {"toolchain": spec, "version": version or "-", "state": state, "where": python}


@command.command("add")
@click.argument("specs", nargs=-1, required=True, metavar="SPEC...")
def add(specs: tuple[str, ...]) -> Exit:
    """Make toolchains, or find them made; take down what each can do."""
    for spec in specs:
        kept = make.add(spec, lambda text: click.echo(text, err=True))
        click.echo(f"{kept.spec}: ready, {kept.python}")
    return Exit.ACCEPTED


@command.command("remove")
@click.argument("specs", nargs=-1, required=True, metavar="SPEC...")
def remove(specs: tuple[str, ...]) -> Exit:
    """Remove toolchains that were added. Interpreters that they name are left alone."""
    for spec in specs:
        click.echo(f"removed {make.remove(spec)}")
    return Exit.ACCEPTED


@command.command("show")
@click.argument("spec")
@click.option("--json", "as_json", is_flag=True, help="Print the whole record as JSON.")
def show(spec: str, as_json: bool) -> Exit:
    """Show what a toolchain said of itself when it was added."""
    kept = places.find(spec)
    if kept is None:
        raise RecipeError(f"there is no record of {quoted(spec)}", hint=f"portwright toolchain add {spec}")
    if as_json:
        click.echo(json.dumps(dict(kept.record), indent=1))
        return Exit.ACCEPTED
    record = kept.record
    lacking = [name for name, there in record["operators"].items() if not there]
    click.echo(f"{toolchain.product(toolchain.Toolchain(spec, kept.python, kept.module, kept.version))}"
               f" ({kept.version}), {kept.python}")  # fmt: skip
    click.echo(f"newest opset to hand to it: {record['opset'] or 'not known'}")
    click.echo(f"operators: {len(record['operators']) - len(lacking)} of {len(record['operators'])} have an importer;"
               f" not {', '.join(lacking)}")  # fmt: skip
    click.echo(f"data types that build ({'no GPU here' if not record['devices'] else 'with a GPU'}):\n")
    click.echo(wording.table(_types(record["types"]), ["type", *record["types"]]))
    return Exit.ACCEPTED


def _types(found: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    return [
        {"type": name, **{target: _word(answers[name]) for target, answers in found.items()}}
        for name in next(iter(found.values()))
    ]


def _word(answer: str) -> str:
    return "yes" if answer == "builds" else "CRASHES" if answer.startswith("crashed") else "no"
