"""Both exporters: what each graph gives against PyTorch and against the other, and which one goes on.

The rule: dynamo's graph when it is within ``accept.onnx`` at every parity shape; else torchscript's when that
is, with an open issue; else there is no graph, and both reasons are told.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from engine import samples
from engine.compare import compare as compare_arrays
from engine.comparison import Comparison
from engine.errors import Failure, StepError
from engine.plain import to_plain
from engine.plan import Plan
from engine.recipe import Limits
from engine.samples import Array
from engine.values import Issue

EXPORTERS = ("dynamo", "torchscript")
_AT_LEAST = frozenset({"cosine", "argmax"})


@dataclass(frozen=True)
class Tried:
    """One exporter's graph as ONNX Runtime runs it, or why there is none."""

    failure: Failure | None = None
    issues: tuple[Issue, ...] = ()
    outputs: Mapping[str, Mapping[str, Array]] | None = None
    comparisons: tuple[Comparison, ...] = ()


@dataclass(frozen=True)
class Choice:
    exporter: str
    states: Mapping[str, str]
    figures: Mapping[str, Any]
    issues: tuple[Issue, ...]


def compare(graph: Path, plan: Plan, sample: Callable[[str], Path], issues: tuple[Issue, ...]) -> Tried:
    """Run a graph at every parity shape and compare it with PyTorch's outputs."""
    from engine import runtime

    opened = runtime.session(graph)
    outputs: dict[str, Mapping[str, Array]] = {}
    found: list[Comparison] = []
    for shape in plan.parity_shapes:
        expected = samples.read(sample(shape), "fp32")
        try:
            outputs[shape] = runtime.run(opened, samples.read(sample(shape), "input"))
        except StepError as error:
            found += [Comparison(name, shape, error.failure.symptom) for name in expected]
            continue
        found += compare_arrays(expected, outputs[shape], shape)
    return Tried(None, issues, outputs, tuple(found))


def beyond(limits: Limits, found: Sequence[Comparison]) -> str:
    """The first limit that is broken, as text; empty when all hold. Nothing compared is a break."""
    if not found:
        return "nothing was compared"
    for item in found:
        if item.problem:
            return f"'{item.output}' at {item.shape}: {item.problem}"
    for field in fields(limits):
        limit = getattr(limits, field.name)
        if limit is None:
            continue
        for item in found:
            value = getattr(item, field.name)
            if value is None or not math.isfinite(value):
                return f"{field.name} of '{item.output}' at {item.shape} is not finite"
            if value < limit if field.name in _AT_LEAST else value > limit:
                return (
                    f"{field.name} of '{item.output}' at {item.shape} is {value:.3g}, the limit is {limit:g}"
                )
    return ""


def choose(tried: Mapping[str, Tried], plan: Plan) -> Choice:
    """Apply the rule. Raise StepError with both reasons when neither graph is the model."""
    reasons = {name: _reason(item, plan) for name, item in tried.items()}
    good = next((name for name in EXPORTERS if not reasons[name]), None)
    if good is None:
        klasses = [item.failure.klass for item in tried.values() if item.failure]
        raise StepError(
            "neither exporter gives the model: "
            + "; ".join(f"{name}: {reasons[name]}" for name in EXPORTERS),
            klass=klasses[0] if klasses else "numeric",
            fix="the reasons are those of each exporter alone; mend one of them",
            where="export.exporter",
            evidence="\n\n".join(item.failure.evidence[:2000] for item in tried.values() if item.failure),
        )
    states = {
        name: "goes on" if name == good else _state(item, bool(reasons[name])) for name, item in tried.items()
    }
    other = next(name for name in EXPORTERS if name != good)
    apart = _apart(tried)
    issues = [*tried[good].issues]
    if reasons[other]:
        issues.append(_issue(good, other, reasons[other], tried[other]))
    issues += [
        replace(issue, symptom=f"{other} (not the graph that goes on): {issue.symptom}", disposition="noted")
        for issue in tried[other].issues
    ]
    figures = {
        **{name: to_plain(item.comparisons) for name, item in tried.items() if item.failure is None},
        "apart": to_plain(apart),
        "reasons": {name: reason for name, reason in reasons.items() if reason},
    }
    return Choice(good, states, figures, tuple(issues))


def _reason(item: Tried, plan: Plan) -> str:
    return item.failure.symptom if item.failure else beyond(plan.accept.onnx, item.comparisons)


def _state(item: Tried, bad: bool) -> str:
    if item.failure is not None:
        return "failed"
    return "beyond accept.onnx" if bad else "within accept.onnx"


def _apart(tried: Mapping[str, Tried]) -> list[Comparison]:
    """The two graphs against each other at the shapes that both of them ran at."""
    first, second = (tried[name].outputs or {} for name in EXPORTERS)
    return [
        item
        for shape in first
        if shape in second
        for item in compare_arrays(first[shape], second[shape], shape)
    ]


def _issue(good: str, other: str, reason: str, item: Tried) -> Issue:
    failure = item.failure
    return Issue(
        "export",
        failure.klass if failure else "numeric",  # type: ignore[arg-type]
        f"{'the ' + other + ' exporter failed' if failure else other + ' gives another result'}: {reason}",
        cause=failure.cause if failure else "its graph is beyond accept.onnx",
        fix=f"the port goes on with {good}'s graph",
        evidence=failure.evidence if failure else "",
        disposition="open",
    )
