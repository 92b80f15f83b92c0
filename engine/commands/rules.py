"""``portwright rules``: the library of rewrite rules."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from engine import compatibility, toolchain, wording
from engine.errors import Exit
from engine.rules import summary
from engine.rules.summary import Summary
from engine.rules.why import first_sentence

_MOST_OPS = 3


@click.command("rules")
@click.option(
    "--for", "spec", default=None, help="Only those that this toolchain needs: tensorrt-rtx==1.7.1.116."
)
@click.option("--json", "as_json", is_flag=True, help="Print the rules as JSON.")
def command(spec: str | None, as_json: bool) -> Exit:
    """List the rewrite rules: what each is for, which toolchains need it, how exact it is."""
    from engine.rules import active, library

    tool = toolchain.of_version(spec) if spec else None
    active.load(((path, str(path)) for path in map(library.path_of, library.names())), run_python=False)
    every = summary.read_all()
    found = [rule for rule in every if tool is None or rule.needed(tool)]
    strange = compatibility.unknown(tool.module, tool.version) if tool else ""
    if strange:
        click.echo(f"note: {strange}", err=True)
    silent = sum(not rule.speaks_of(tool) for rule in every) if tool else 0
    if tool and silent and not strange:
        product = toolchain.product(tool).partition(" ")[0]
        click.echo(f"note: {silent} of {len(every)} rules say nothing about {product}: nobody tried", err=True)
    if as_json:
        click.echo(json.dumps([plain(rule) for rule in found], indent=1))
        return Exit.ACCEPTED
    if found:
        click.echo(wording.table([_row(rule) for rule in found], list(_row(found[0]))))
    needed = f" needed by {toolchain.product(tool)}" if tool and not strange else ""
    needed += f" whose 'needed_by' takes in {toolchain.product(tool)}" if tool and strange else ""
    click.echo(
        f"\n{len(found)} rule{'' if len(found) == 1 else 's'}{needed}; `portwright explain RULE` says more"
    )
    return Exit.ACCEPTED


def plain(rule: Summary) -> dict[str, object]:
    return {
        "rule": rule.name, "ops": list(rule.ops), "class": rule.klass, "needed_by": dict(rule.needed_by),
        "opset": rule.opset, "tolerance": rule.tolerance, "why": asdict(rule.why),
    }  # fmt: skip


def _row(rule: Summary) -> dict[str, str]:
    more = f" and {len(rule.ops) - _MOST_OPS} more" if len(rule.ops) > _MOST_OPS else ""
    return {
        "rule": rule.name,
        "operators": ", ".join(rule.ops[:_MOST_OPS]) + more or ", ".join(rule.data.get("types", ())),
        "needed by": rule.needed_text(),
        "tolerance": rule.tolerance,
        "what breaks": first_sentence(rule.why.breaks),
    }
