"""``portwright explain``: one rewrite rule in full."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from engine.errors import Exit
from engine.rules import summary
from engine.rules.summary import Summary

_WIDTH = 100


@click.command("explain")
@click.argument("rule")
@click.option("--json", "as_json", is_flag=True, help="Print the rule as JSON.")
def command(rule: str, as_json: bool) -> Exit:
    """Say what RULE (a name, or a rule file) mends, on which versions, how, at which cost, how exactly, and when."""
    from engine.rules import active, library

    path = Path(rule) if rule.endswith(".yaml") else library.path_of(rule)
    active.load([(path, str(path))], run_python=False)
    found = summary.read(path)
    click.echo(json.dumps(dict(found.data), indent=1) if as_json else "\n".join(text(found)))
    return Exit.ACCEPTED


def text(rule: Summary) -> Iterator[str]:
    yield rule.name
    for heading, said in rule.headings():
        yield ""
        yield heading
        yield textwrap.fill(said, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    yield ""
    for what, said in (
        ("operators", ", ".join(rule.ops)),
        ("types", rule.types_text()),
        ("class", rule.klass),
        ("opset", rule.opset),
        ("proven on", f"{rule.proof_text()}, and again at every place where it is applied"),
        ("file", rule.path),
    ):
        if said:
            yield f"{what:<11} {said}"
    yield ""
    conditions = rule.data.get("where", {})
    if conditions:
        yield "only where"
        yield from (f"  {name}: {_condition(said)}" for name, said in conditions.items())
    yield from _pattern(rule.data)


def _pattern(data: Mapping[str, Any]) -> Iterator[str]:
    """The rule's own texts are the example; a rule with ``op`` has its first case."""
    if "types" in data:
        yield "changes the types of the whole graph; inputs and outputs keep theirs"
        return
    if "match" in data:
        yield "looks for"
        yield textwrap.indent(data["match"].rstrip(), "  ")
    elif "cases" in data["proof"]:
        yield "looks for any such node, for example"
        yield textwrap.indent(data["proof"]["cases"][0].rstrip(), "  ")
    else:
        yield "looks for any such node"
    if "replace" in data:
        yield "puts there"
        yield textwrap.indent(data["replace"].rstrip(), "  ")
    elif "apply" in data:
        yield f"puts there what {data['apply']} makes, beside the rule"
    elif "branch" in data:
        yield "puts there the branch that is taken"
    elif "fold" in data:
        yield f"computes the input {data['fold']} beforehand"
    else:
        yield "puts there the operator's own definition in the ONNX standard"


def _condition(said: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {json.dumps(value)}" for key, value in said.items())
