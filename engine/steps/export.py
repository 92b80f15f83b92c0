"""PyTorch to ONNX by the exporter that the recipe names, never by another one in its place."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine import reference, samples
from engine.errors import StepError
from engine.exporters.exported import Exported
from engine.steps.context import Context, Done
from engine.values import Issue

WEIGHTS = "export.weights"


def run(context: Context) -> Done:
    """Write ``onnx/export.onnx`` and its weights; the graph's nodes carry condensed provenance."""
    plan = context.plan
    if plan.model.source == "onnx":
        return _adopted(context)
    port = context.memo.get("port") or reference.load(plan).port
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"torch(\..*)?|copyreg")
    if plan.exporter == "both":
        return _both(port, context)
    target = context.folder("onnx") / "export.onnx"
    facts, issues = _one(port, context, plan.exporter, target, WEIGHTS)
    artifacts = {"graph": target}
    if (target.parent / WEIGHTS).exists():
        artifacts["weights"] = target.parent / WEIGHTS
    return Done(facts=facts, artifacts=artifacts, issues=issues)


def _one(
    port: Any, context: Context, exporter: str, target: Path, weights: str
) -> tuple[dict[str, Any], tuple[Issue, ...]]:
    """Export, write and check; the file is there for looking at when a check fails."""
    from engine import model_state
    from engine.exporters import checks
    from engine.graph import boundary, files, provenance

    plan = context.plan
    before = model_state.take(port.model)
    made = _export(port, context, exporter, target)
    boundary.name_axes(made.model, plan)
    context.progress("writing weights", 2, 3)
    files.save(made.model, target, weights)
    observed = context.earlier["source"].facts["outputs"] if "source" in context.earlier else {}
    checked = checks.check(made, port, plan, observed)
    facts = {
        "exporter": exporter,
        "opset": made.model.opset_imports.get(""),
        "nodes": sum(1 for _ in made.model.graph),
        "modules_named": len(provenance.modules(made.model)),
        **boundary.facts(made.model),
        **checked.facts,
    }
    changes = model_state.changes(before, model_state.take(port.model))
    return facts, (*checked.issues, *_unsteady(changes))


def _export(port: Any, context: Context, exporter: str, target: Path) -> Exported:
    import torch

    from engine.exporters import dynamo, torchscript

    inputs = samples.read(context.samples("export"), "input")
    arguments = tuple(torch.from_numpy(inputs[name].copy()) for name in context.plan.inputs)
    if exporter == "dynamo":
        return dynamo.export(port, context.plan, arguments, context.progress)
    raw = target.with_name(".export-raw.onnx")
    return torchscript.export(port, context.plan, arguments, context.progress, raw)


def _unsteady(changes: list[str]) -> list[Issue]:
    if not changes:
        return []
    shown = ", ".join(changes[:3]) + (f" and {len(changes) - 3} more" if len(changes) > 3 else "")
    return [
        Issue(
            "export",
            "export",
            f"the model is not the same after it was exported: {shown}",
            cause="forward changes the module: a mode, a counter, a cache; the second call is not the first",
            fix="make the state an input and an output of the model",
            evidence="\n".join(changes[:20]),
            disposition="open",
        )
    ]


def _both(port: Any, context: Context) -> Done:
    """Each exporter into a file of its own; ``export.onnx`` is a copy of the one that goes on, sharing its weights."""
    from engine.exporters import both
    from engine.graph import files

    folder = context.folder("onnx")
    tried: dict[str, both.Tried] = {}
    facts: dict[str, Mapping[str, Any]] = {}
    artifacts: dict[str, Path] = {}
    for exporter in both.EXPORTERS:
        target, weights = folder / f"export.{exporter}.onnx", f"export.{exporter}.weights"
        try:
            facts[exporter], issues = _one(port, context, exporter, target, weights)
            tried[exporter] = both.compare(target, context.plan, context.samples, issues)
        except StepError as error:
            tried[exporter] = both.Tried(failure=error.failure)
        for name, path in ((exporter, target), (f"{exporter}_weights", folder / weights)):
            if path.exists():
                artifacts[name] = path
    choice = both.choose(tried, context.plan)
    target = folder / "export.onnx"
    files.save(files.load(artifacts[choice.exporter]), target)
    artifacts = {"graph": target, **artifacts}
    return Done(
        facts={**facts[choice.exporter], "asked": "both", "exporters": choice.states},
        measurements={"exporters": choice.figures},
        artifacts=artifacts,
        issues=choice.issues,
    )


def _adopted(context: Context) -> Done:
    """The file that the recipe starts from: its graph, and its weight files copied beside it."""
    from engine.graph import boundary, provenance
    from engine.sources import onnx_file

    plan = context.plan
    target = context.folder("onnx") / "export.onnx"
    context.progress("taking over the ONNX file", 0, 2)
    model, copied = onnx_file.adopt(plan, target)
    facts = {
        "exporter": "none",
        "opset": model.opset_imports.get(""),
        "nodes": sum(1 for _ in model.graph),
        "modules_named": len(provenance.modules(model)),
        **boundary.facts(model),
    }
    artifacts = {"graph": target} | {path.name: path for path in copied}
    if (target.parent / WEIGHTS).exists():
        artifacts["weights"] = target.parent / WEIGHTS
    boundary.check(model, plan)
    return Done(facts=facts, artifacts=artifacts)
