"""What the parity step found, while the run goes on: limits that are broken, and the sample that shows it best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine import accept, waivers
from engine.plan import Plan
from engine.stress import constants, rounding, view
from engine.stress import judge as hard
from engine.values import Issue, StepResult


def issues(result: StepResult, stress: StepResult | None, plan: Plan, date: str) -> list[Issue]:
    """An open issue for each limit of ``accept.onnx`` that a step breaks and no waiver covers on ``date``."""
    claims = accept.judge_limits("accept.onnx", plan.accept.onnx, accept.comparisons(result), "")
    if stress is not None:
        claims.append(hard.claim(hard.judge(plan, stress, result), ""))
        if plan.accept.rounding is not None:
            claims += [
                rounding.claim(result, "", plan.accept.rounding),
                constants.claim(result, ""),
            ]
    return [
        Issue(
            result.step,
            "shape" if "shape" in claim.why or "dimension" in claim.why else "numeric",
            f"{claim.name} {claim.limit} is broken" + (f" by {claim.where}" if claim.where else ""),
            cause=claim.why or f"the worst value is {claim.value:.3g}",
            fix="; ".join(("see where the graph goes wrong in the report", *_ways_out(plan))),
            disposition="open",
        )
        for claim in waivers.apply(claims, plan.waivers, date)[0]
        if claim.status == "fail"
    ]


def placed(found: Sequence[Issue], located: Mapping[str, Any]) -> list[Issue]:
    """Issues of a parity that failed, with the place at which the search on one sample saw the graph go wrong."""
    return [replace(issue, cause="; ".join((issue.cause, *places(located)))) for issue in found]


def places(located: Mapping[str, Any]) -> list[str]:
    """What the search for the place of an error found, as phrases."""
    stage = located.get("stage")
    found = [f"the step {stage} wrote the first graph that is wrong"] if stage else []
    if divergence := located.get("divergence"):
        return [*found, f"on {located['sample']} it begins at {view.place(divergence)}"]
    return [*found, f"no node could be named: {located['why']}"] if "why" in located else found


def _ways_out(plan: Plan) -> list[str]:
    ways = ["try the other exporter"] if plan.model.source != "onnx" else []
    ways += ["leave out simplify"] if plan.simplify != "none" else []
    return ways + (["leave out a rewrite"] if plan.rewrites else [])


def suspicions(result: StepResult, stress: StepResult, plan: Plan) -> list[Issue]:
    """Open issues for an error within every limit that is more than rounding explains."""
    if plan.accept.rounding is not None or issues(result, stress, plan, ""):
        return []
    return [
        Issue(
            "parity", "numeric", f"within the limits, but more than rounding: {claim.why}",
            fix="look at what the exporter did, or at the runtime's own kernels; accept.rounding makes it binding",
            evidence=f"{claim.name} {claim.limit}", disposition="open",
        )
        for claim in (rounding.claim(result, ""), constants.claim(result, ""))
        if claim.status == "fail"
    ]  # fmt: skip


def failing(result: StepResult, stress: StepResult | None, plan: Plan) -> str:
    """File of the smallest sample, relative to the run's folder, on which the parity step saw a limit broken."""
    hard_ones = {item.case for item in hard.judge(plan, stress, result) if item.broken and item.within} \
        if stress else set()  # fmt: skip
    usual = {
        item.shape
        for item in accept.comparisons(result)
        if any(
            claim.status == "fail"
            for claim in accept.judge_limits("accept.onnx", plan.accept.onnx, [item], "")
        )
    }
    sizes = {f"samples/{name}.npz": plan.shapes[name] for name in usual if name in plan.shapes}
    for case in hard.made(stress) if stress else ():
        if case["name"] in hard_ones:
            sizes[f"stress/{case['name']}.npz"] = case["sizes"]
    if not sizes and stress is not None:  # broken over all of them together
        sizes = {f"stress/{case['name']}.npz": case["sizes"] for case in hard.made(stress) if case["within"]}
    return min(sizes, key=lambda path: (math.prod(sizes[path].values()), path), default="")
