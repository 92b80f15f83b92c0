"""Simplification on probation: the result is kept only when it is smaller, loses nothing and computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine import samples
from engine.compare import compare
from engine.errors import StepError
from engine.steps.context import Context, Done
from engine.values import Issue

WEIGHTS = "simplify.weights"
_EQUAL = 1e-5  # largest accepted rel_l2 between the graphs before and after


def run(context: Context) -> Done:
    """Write ``onnx/simplify.onnx`` when simplification pays; otherwise the graph before stays in use."""
    context.memo.clear()
    if context.plan.simplify == "none":
        return Done(skipped="not asked for")
    from engine.graph import files, inventory, probation, provenance, simplifier, sound

    before = files.load(context.graph)
    facts: dict[str, Any] = {"tool": "onnxsim", "nodes_before": inventory.take(before)["nodes"]}
    target = context.folder("onnx") / "simplify.onnx"
    draft = target.with_name("probation.onnx")
    context.progress("onnxsim", 0, 3)
    try:
        failure = simplifier.simplified(context.graph, draft, context.out / "logs" / "onnxsim.log")
        if failure:
            return _kept_before(facts, failure)
        try:
            sound.require(draft, taken=False)
        except StepError as error:
            return _kept_before(facts, error.failure.symptom.replace(draft.name, "the simplified graph"))
        after = files.load(draft)
        facts["nodes_after"] = inventory.take(after)["nodes"]
        facts["nodes_without_provenance"] = provenance.restore(after, provenance.snapshot(before))
        facts["names_restored"] = probation.restore_names(after, before)
        refusal = probation.refusal(before, after)
        if not refusal:
            context.progress("comparing the graphs before and after", 1, 3)
            files.save(after, target, WEIGHTS)
            refusal, facts["compared_at"] = _difference(context, target)
        if refusal:
            _remove(target, target.with_name(WEIGHTS))
            return _kept_before(facts, refusal)
    finally:
        _remove(draft, draft.with_suffix(".weights"))
    artifacts: dict[str, Path] = {"graph": target}
    if (target.parent / WEIGHTS).exists():
        artifacts["weights"] = target.parent / WEIGHTS
    return Done(facts=facts | {"kept": True, "ops": inventory.take(after)["ops"]}, artifacts=artifacts)


def _remove(*paths: Path) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _kept_before(facts: dict[str, Any], why: str) -> Done:
    issue = Issue(
        "simplify", "tooling", f"simplification not kept: {why}",
        fix="the graph before it is used; 'simplify: none' saves the time", disposition="fixed",
    )  # fmt: skip
    return Done(facts=facts | {"kept": False, "why": why}, issues=(issue,))


def _difference(context: Context, simplified: Path) -> tuple[str, list[str]]:
    """Why the graphs are not the same, or ""; and the shapes at which they were compared."""
    from engine import runtime

    shapes = [shape for shape in ("min", "odd", "opt", "export") if shape in context.plan.shapes][:2]
    if not shapes:
        return "there is no shape to compare it at", []
    try:
        old = runtime.session(context.graph)
        before = {shape: runtime.run(old, _feeds(context, shape)) for shape in shapes}
    except StepError as error:
        # A graph that runs only once it was simplified would hide that failure.
        return f"the graph before it does not run: {error.failure.symptom}", shapes
    try:
        new = runtime.session(simplified)
        for shape in shapes:
            for item in compare(before[shape], runtime.run(new, _feeds(context, shape)), shape):
                if item.problem:
                    return f"output '{item.output}' at {shape}: {item.problem}", shapes
                whole = before[shape][item.output].dtype.kind != "f"
                if item.rel_l2 is None or not item.rel_l2 <= (0 if whole else _EQUAL):
                    return f"output '{item.output}' moved by rel_l2 {item.rel_l2:.2g} at {shape}", shapes
    except StepError as error:
        return error.failure.symptom, shapes
    return "", shapes


def _feeds(context: Context, shape: str) -> dict[str, samples.Array]:
    return samples.read(context.samples(shape), "input")
