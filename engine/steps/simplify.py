"""Simplification on probation: the result is kept only when it is smaller and computes the same."""

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
_GROWTH = 1.05  # largest accepted factor on the bytes of all weights


def run(context: Context) -> Done:
    """Write ``onnx/simplify.onnx`` when simplification pays; otherwise the graph before stays in use."""
    context.memo.clear()
    if context.plan.simplify == "none":
        return Done(skipped="not asked for")
    import onnx
    import onnxsim

    from engine.graph import files, inventory, provenance

    before = files.load(context.graph)
    facts: dict[str, Any] = {"tool": "onnxsim", "nodes_before": inventory.take(before)["nodes"]}
    context.progress("onnxsim", 0, 3)
    try:
        # onnxsim's own "check" flag is no proof (it is true for differing graphs): compared below instead.
        proto, _ = onnxsim.simplify(str(context.graph), check_n=0)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        return _kept_before(facts, f"onnxsim failed: {str(error).splitlines()[0]}")
    target = context.folder("onnx") / "simplify.onnx"
    draft = target.with_name("probation.onnx")
    import onnx_ir as ir

    after = ir.from_proto(proto)
    facts["nodes_after"] = inventory.take(after)["nodes"]
    facts["nodes_without_provenance"] = provenance.restore(after, provenance.snapshot(before))
    refusal = _size_refusal(facts, before, after)
    if not refusal:
        context.progress("comparing the graphs before and after", 1, 3)
        files.save(after, draft, "probation.weights")
        refusal = _difference(context, draft)
        for file in (draft, draft.with_name("probation.weights")):
            file.unlink(missing_ok=True)
    if refusal:
        return _kept_before(facts, refusal)
    files.save(after, target, WEIGHTS)
    artifacts: dict[str, Path] = {"graph": target}
    if (target.parent / WEIGHTS).exists():
        artifacts["weights"] = target.parent / WEIGHTS
    return Done(facts=facts | {"kept": True, "ops": inventory.take(after)["ops"]}, artifacts=artifacts)


def _kept_before(facts: dict[str, Any], why: str) -> Done:
    issue = Issue(
        "simplify", "tooling", f"simplification not kept: {why}",
        fix="the graph before it is used; 'simplify: none' saves the time", disposition="fixed",
    )  # fmt: skip
    return Done(facts=facts | {"kept": False, "why": why}, issues=(issue,))


def _size_refusal(facts: dict[str, Any], before: Any, after: Any) -> str:
    from engine.graph import inventory

    if facts["nodes_after"] >= facts["nodes_before"]:
        return f"{facts['nodes_before']} nodes became {facts['nodes_after']}"
    old, new = (sum(inventory.take(model)["weight_bytes"].values()) for model in (before, after))
    if new > old * _GROWTH + 4096:
        return f"the weights grew from {old:,} to {new:,} bytes"
    return ""


def _difference(context: Context, draft: Path) -> str:
    from engine import runtime

    shapes = [shape for shape in ("min", "odd", "opt") if shape in context.plan.shapes][:2]
    try:
        old, new = runtime.session(context.graph), runtime.session(draft)
        for shape in shapes:
            feeds = samples.read(context.samples(shape), "input")
            for item in compare(runtime.run(old, feeds), runtime.run(new, feeds), shape):
                if item.problem:
                    return f"output '{item.output}' at {shape}: {item.problem}"
                if item.rel_l2 is not None and not item.rel_l2 <= _EQUAL:
                    return f"output '{item.output}' moved by rel_l2 {item.rel_l2:.2g} at {shape}"
    except StepError as error:
        return error.failure.symptom
    return ""
