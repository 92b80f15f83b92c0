"""``portwright explain``: one rewrite rule in full."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
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
    """Say what RULE is for, what it looks for and puts there, when it may, and how it is proven."""
    found = summary.read(rule)
    click.echo(json.dumps(dict(found.data), indent=1) if as_json else "\n".join(text(found)))
    return Exit.ACCEPTED


def text(rule: Summary) -> Iterator[str]:
    yield rule.name
    yield ""
    yield from textwrap.wrap(rule.why, _WIDTH)
    yield ""
    for what, said in (
        ("operators", ", ".join(rule.ops)),
        ("class", rule.klass),
        ("needed by", rule.needed_text()),
        ("opset", rule.opset),
        ("cost", rule.cost()),
        ("tolerance", f"{rule.tolerance}; proven by itself, and again at every place where it is applied"),
        ("file", rule.path),
    ):
        if said:
            yield f"{what:<11} {said}"
    yield ""
    yield from _pattern(rule.data)
    conditions = rule.data.get("where", {})
    if conditions:
        yield "only where"
        yield from (f"  {name}: {_condition(said)}" for name, said in conditions.items())


def _pattern(data: Mapping[str, Any]) -> Iterator[str]:
    if "match" in data:
        yield "looks for"
        yield textwrap.indent(data["match"].rstrip(), "  ")
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
