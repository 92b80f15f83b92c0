"""The hard inputs as the report shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.plan import Plan
from engine.stress import constants, rounding
from engine.stress.judge import judge
from engine.stress_names import KINDS
from engine.values import StepResult
from engine.wording import number, sizes_text


def rows(plan: Plan, stress: StepResult | None, parity: StepResult | None) -> list[dict[str, str]]:
    """One row a case: what it is, why it was made, and how it came out."""
    if stress is None:
        return []
    compared = parity is not None and parity.status == "ok"
    worst: dict[str, Any] = {}
    for item in judge(plan, stress, parity) if compared and parity is not None else ():
        if item.case not in worst or _rank(item.ratio) > _rank(worst[item.case].ratio):
            worst[item.case] = item
    return [_row(case, worst.get(case["name"]), compared) for case in stress.facts.get("cases", ())]


def _rank(ratio: float | None) -> float:
    return float("inf") if ratio is None else ratio


def _row(case: Mapping[str, Any], worst: Any, compared: bool) -> dict[str, str]:
    if case["state"] == "left out":
        outcome = f"**left out**: {case['because']}"
    elif case["state"] != "made":
        outcome = case["state"]
    elif not compared or worst is None:
        outcome = "not run"
    elif worst.problem:
        outcome = f"**{worst.problem}**"
    else:
        figures = f"off by {number(worst.max_abs)}, {number(worst.ratio)} of what is allowed"
        outcome = f"**{figures}**" if worst.broken else figures
    return {
        "name": case["name"],
        "what": KINDS.get(case["kind"], "added by the recipe"),
        "sizes": sizes_text(case["sizes"]),
        "why": case["why"],
        "declared": "yes" if case["within"] else "no",
        "outcome": outcome,
    }


def beyond_limits(stress: StepResult | None, parity: StepResult | None) -> list[str]:
    """What the hard inputs tell beside the limits: the error against rounding, and the constants."""
    if stress is None or parity is None or parity.status != "ok":
        return []
    error, held = rounding.claim(parity, ""), constants.claim(parity, "")
    checked, estimated = f"not run: {error.why}", f"not run: {held.why}"
    if error.value is not None:
        checked = (
            "graph and model were computed again in FP64, where hardly any rounding is left. They differ by"
            f" {number(error.value)} times the rounding error of the model in FP32 (output {error.where});"
            f" more than {rounding.MOST:g} would be no rounding but another computation"
        )
    if held.value is not None:
        estimated = (
            "the outputs in FP64 tell by how much constants of the graph differ from the model's. The worst is"
            f" {held.where}, with {number(held.value)} times what rounding to FP32 explains"
        )
    return [f"Same computation: {checked}.", f"Same constants: {estimated}."]


def looked_up(facts: Mapping[str, Any]) -> list[str]:
    """How much of each table the samples of parity have read."""
    return [
        f"Looked up by {', '.join(f'`{name}`' for name in table['inputs'])} in `{table['table']}`: "
        + (f"not told ({table['why']})" if "why" in table
           else f"{table['read']:,} of {table['rows']:,} rows read by any sample" + _unread(table))
        + "."
        for table in facts.get("lookups", ())
    ]  # fmt: skip


def _unread(table: Mapping[str, Any]) -> str:
    left = table["rows"] - table["read"]
    return f"; a number that reads one of the other {left:,} was not tried" if left else ""


def place(divergence: Mapping[str, Any]) -> str:
    """The node of a divergence, its module and its line of the model's source, as far as they are known."""
    text = f"`{divergence['node']}` ({divergence['op']})"
    text += f" in `{divergence['module']}`" if divergence["module"] else ""
    return text + (f", from {divergence['source']}" if divergence["source"] else "")


def located(facts: Mapping[str, Any]) -> list[str]:
    """Where a failed parity comes from, as lines of text; empty when parity held."""
    found = facts.get("located")
    if not found:
        return []
    lines = [f"Looked for on the sample `{found['sample']}`."]
    if found.get("stage"):
        lines.append(f"The step {found['stage']} wrote the first graph that is wrong.")
    divergence = found.get("divergence")
    if divergence is None:
        return [*lines, f"No node could be named: {found.get('why', 'it was not looked for')}."]
    index = ", ".join(map(str, divergence["index"]))
    lines.append(
        f"First tensor that differs from {found['compared_with']}: `{divergence['value']}` of"
        f" {place(divergence)};"
        f" relative error {number(divergence['error'])}."
    )
    lines.append(f"At [{index}] it should be {divergence['expected']} and is {divergence['got']}.")
    if divergence["after"]:
        shown = ", ".join(f"`{name}`" for name in divergence["after"][:4])
        lines.append(f"What it is computed from agrees: {shown}.")
    return lines
