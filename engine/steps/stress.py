"""Make hard inputs for what the graph contains, and the reference's outputs on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine import reference, samples
from engine.errors import StepError
from engine.plan import Plan
from engine.reference import Call
from engine.steps.context import Context, Done
from engine.values import Issue


def run(context: Context) -> Done:
    """Write ``stress/CASE.npz`` for every case: inputs, outputs in FP32 and, where the model allows, in FP64."""
    from engine.graph import files
    from engine.stress import cases, content

    plan = context.plan
    if "call" not in context.memo:
        loaded = reference.load(plan)
        context.memo |= {"port": loaded.port, "call": loaded.call}
    call: Call = context.memo["call"]
    exact, noise = _exact(context.memo.pop("port", None))
    found = cases.cases(plan, content.read(files.load(context.graph)))
    _require_used(plan, {name for case in found for name in (case.name, case.kind)} | {"fp64"})
    folder = context.folder("stress")
    artifacts: dict[str, Path] = {}
    told: list[dict[str, Any]] = []
    issues: list[Issue] = []
    for index, case in enumerate(found):
        context.progress(case.name, index, len(found))
        entry = {"name": case.name, "kind": case.kind, "sizes": dict(case.sizes), "why": case.why,
                 "within": case.within, "state": "made", "because": cases.left_out(plan, case)}  # fmt: skip
        told.append(entry)
        if entry["because"]:
            entry["state"] = "left out"
            continue
        inputs = cases.inputs(plan, case)
        try:
            outputs = {"fp32": call(inputs, case.name)}
        except StepError as error:
            entry["state"] = f"not tried: the reference refuses it: {error.failure.symptom}"
            issues += _refused(case.name, case.within, error)
            continue
        if exact is not None:
            try:
                outputs["fp64"] = exact(inputs, case.name)
            except StepError as error:
                exact, noise = None, f"not run: {error.failure.symptom}"
        artifacts[case.name] = folder / f"{case.name}.npz"
        samples.save(artifacts[case.name], inputs, outputs)
    context.memo.pop("call")
    return Done(facts={"cases": told, "noise": noise}, artifacts=artifacts, issues=tuple(issues))


def _exact(port: Any) -> tuple[Call | None, str]:
    if port is None:
        return None, "not run: there is no PyTorch model"
    from engine import torch_model

    return torch_model.double(port)


def _require_used(plan: Plan, names: set[str]) -> None:
    for index, item in enumerate(plan.stress.leave_out):
        if item.case not in names:
            raise StepError(
                f"no case '{item.case}' is made for this graph",
                fix="take it out; cases: " + ", ".join(sorted(name for name in names if "." in name)),
                where=f"stress.leave_out[{index}].case",
                usage=True,
            )


def _refused(name: str, within: bool, error: StepError) -> list[Issue]:
    """Declared values that the model itself does not take are a fault of the recipe."""
    if not within:
        return []
    symptom = f"the model refuses values that the recipe declares: {error.failure.symptom}"
    fix = f"narrow the axes or values, or leave out the case '{name}' under stress with a reason"
    return [Issue("stress", "shape", symptom, error.failure.cause, fix, f"case {name}", "open")]
