"""After a failed parity: which stage broke the graph, and at which node. Not a step of the route."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine import samples
from engine.compare import compare
from engine.errors import StepError
from engine.steps.context import Context, Done

_STAGES = ("export", "simplify", "rewrite")


def run(context: Context) -> Done:
    """Facts ``stage`` and ``divergence`` for the sample that ``context.memo['failing']`` names.

    The graphs of the stages are run on it; the first that differs from the reference is compared tensor by tensor
    with what came before it: the graph of the stage before, or PyTorch itself.
    """
    from engine import divergence, runtime

    sample = context.out / context.memo["failing"]
    feeds, expected = samples.read(sample, "input"), samples.read(sample, "fp32")
    before: Path | None = None
    for stage in _STAGES:
        if stage not in context.earlier or "graph" not in context.earlier[stage].artifacts:
            continue
        path = context.artifact(stage, "graph")
        context.progress(f"the graph of {stage}", 0, 2)
        try:
            outputs = runtime.run(runtime.session(path), feeds)
        except StepError as error:
            return Done(facts={"stage": stage, "why": error.failure.symptom})
        if _differs(expected, outputs, context.plan):
            break
        before = path
    else:
        return Done(facts={"stage": "", "why": "every stage's graph agrees on this sample"})
    context.progress("the first tensor that differs", 1, 2)
    if before:
        with_what, reference = "the graph before", divergence.tap(before, feeds, _names(before))
    else:
        with_what, reference = _pytorch(context, path, feeds, expected)
    found = divergence.first(path, reference, divergence.tap(path, feeds, reference))
    facts: dict[str, Any] = {"stage": stage, "compared_with": with_what, "tensors": len(reference)}
    if found is None:
        return Done(facts=facts | {"why": "none of the tensors compared inside the graph differs"})
    return Done(facts=facts | {"divergence": asdict(found)})


def _differs(expected: Mapping[str, samples.Array], got: Mapping[str, samples.Array], plan: Any) -> bool:
    """By accept.onnx, or by a ten thousandth where it has no such limit."""
    limits = plan.accept.onnx
    for item in compare(expected, got, nan_is_equal=True):
        if item.problem or item.max_abs is None or item.rel_l2 is None:
            return True
        if limits.max_abs is not None and item.max_abs > limits.max_abs:
            return True
        if item.rel_l2 > (limits.rel_l2 or 1e-4):
            return True
    return False


def _names(path: Path) -> list[str]:
    from engine.graph import files

    return [value.name for node in files.load(path).graph for value in node.outputs if value.name]


def _pytorch(
    context: Context,
    path: Path,
    feeds: Mapping[str, samples.Array],
    expected: Mapping[str, samples.Array],
) -> tuple[str, dict[str, samples.Array]]:
    """PyTorch's tensors under the names that the exported graph gives them, and what they are.

    Of the traced program where that is right itself; else the results of the model's modules.
    """
    from engine import torch_model, torch_values
    from engine.graph import files, provenance
    from engine.sources import torch_sources

    plan = context.plan
    if plan.model.source == "onnx":
        return "the file", {}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"torch(\..*)?|copyreg")
    port = torch_model.Port(torch_sources.load(plan), tuple(plan.inputs), plan.outputs).eval()
    what = "the model, module by module"
    if context.earlier["export"].facts["exporter"] == "dynamo":
        values, outputs = torch_values.of_program(_program(context, port), feeds, port.inputs)
        if not _differs(expected, dict(zip(plan.outputs, outputs, strict=True)), plan):
            return "PyTorch", values
        what = "the model, module by module (the program that torch.export traced is wrong already)"
    results = torch_values.of_modules(port, feeds)
    last: dict[str, str] = {}
    for node in files.load(path).graph:
        module = node.metadata_props.get(provenance.MODULE, "")
        for part in _above(module):
            if part in results and node.outputs[0].name:
                last[part] = node.outputs[0].name
    return what, {name: results[module] for module, name in last.items()}


def _above(module: str) -> list[str]:
    """A module's path and those of the modules around it, the innermost last."""
    parts = module.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def _program(context: Context, port: Any) -> Any:
    """The traced program as the dynamo exporter translates it, its nodes named like the ONNX values."""
    import torch

    from engine.exporters import dynamo

    plan = context.plan
    inputs = samples.read(context.samples("export"), "input")
    arguments = tuple(torch.from_numpy(inputs[name].copy()) for name in plan.inputs)
    return dynamo.translate(dynamo.trace(port, plan, arguments), plan).exported_program
