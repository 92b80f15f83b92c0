"""PyTorch to ONNX by the exporter that the recipe names, never by another one in its place."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import samples
from engine.errors import StepError
from engine.plan import Plan
from engine.steps.context import Context, Done
from engine.values import Issue

if TYPE_CHECKING:
    import onnx_ir as ir

WEIGHTS = "export.weights"


def run(context: Context) -> Done:
    """Write ``onnx/export.onnx`` and its weights; the graph's nodes carry condensed provenance."""
    from engine.graph import boundary, files, provenance

    plan = context.plan
    if plan.model.source == "onnx":
        return _adopted(context)
    port = context.memo.pop("port", None) or _reload(plan)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"torch(\..*)?|copyreg")
    target = context.folder("onnx") / "export.onnx"
    if plan.exporter == "dynamo":
        model = _dynamo(port, context)
        provenance.condense_dynamo(model)
    else:
        model = _torchscript(port, context, target)
        scripted = plan.model.source == "torchscript"
        provenance.condense_torchscript(model, "model.script" if scripted else provenance.WRAPPER)
    boundary.name_axes(model, plan)
    context.progress("writing weights", 2, 3)
    files.save(model, target, WEIGHTS)
    modules = provenance.modules(model)
    facts = {
        "exporter": plan.exporter,
        "opset": model.opset_imports.get(""),
        "nodes": sum(1 for _ in model.graph),
        "modules_named": len(modules),
        **boundary.facts(model),
    }
    artifacts = {"graph": target}
    if (target.parent / WEIGHTS).exists():
        artifacts["weights"] = target.parent / WEIGHTS
    boundary.check(model, plan)
    return Done(facts=facts, artifacts=artifacts, issues=_findings(model, plan))


def _findings(model: ir.Model, plan: Plan) -> tuple[Issue, ...]:
    written = model.opset_imports.get("")
    if written == plan.opset:
        return ()
    raise StepError(
        f"asked for opset {plan.opset}, the exporter wrote opset {written}",
        klass="export",
        fix=f"ask for opset {written}, or use the other exporter",
        where="export.opset",
    )


def _reload(plan: Plan) -> Any:
    from engine import torch_model
    from engine.sources import torch_sources

    return torch_model.Port(torch_sources.load(plan), tuple(plan.inputs), plan.outputs).eval()


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


def _arguments(context: Context) -> tuple[Any, ...]:
    import torch

    inputs = samples.read(context.samples("export"), "input")
    return tuple(torch.from_numpy(inputs[name].copy()) for name in context.plan.inputs)


def _dynamo(port: Any, context: Context) -> ir.Model:
    import torch

    from engine.sources import ranges

    plan = context.plan
    dims = {
        name: torch.export.Dim(name, min=axis.min, max=axis.max)
        for name, axis in plan.axes.items()
        if axis.min < axis.max
    }
    shapes = tuple(
        {index: dims[size] for index, size in enumerate(item.shape) if isinstance(size, str) and size in dims}
        for item in plan.inputs.values()
    )
    context.progress("torch.export traces the model", 0, 3)
    try:
        program = torch.export.export(port, _arguments(context), dynamic_shapes=(shapes,), strict=False)
    except Exception as error:  # process edge: the exporter and the customer's code may raise anything
        raise _failed("torch.export", error) from error
    ranges.check(program, plan, "the exporter narrowed")
    context.progress("translating to ONNX", 1, 3)
    try:
        onnx_program = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=plan.opset,
            input_names=list(plan.inputs),
            output_names=list(plan.outputs),
            verbose=False,
        )
    except Exception as error:  # process edge: see above
        raise _failed("the dynamo exporter", error) from error
    assert onnx_program is not None
    model: ir.Model = onnx_program.model
    return model


def _failed(who: str, error: BaseException) -> StepError:
    import traceback

    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    lines = [line for line in str(chain[-1]).strip().splitlines() if line.strip()]
    text = " ".join(line.strip() for line in lines[:3])[:600]
    shape = "constraint" in text.lower() or "specializ" in text.lower() or "dynamic" in text.lower()
    return StepError(
        f"{who} failed: {type(chain[-1]).__name__}: {text}",
        klass="shape" if shape else "export",
        fix="see the log for the exporter's whole text; the other exporter may take this model",
        where="axes" if shape else "export",
        evidence="".join(traceback.format_exception(error))[-4000:],
    )


def _torchscript(port: Any, context: Context, target: Path) -> ir.Model:
    import torch

    from engine.graph import files

    plan = context.plan
    axes = {
        name: {i: size for i, size in enumerate(item.shape)
               if isinstance(size, str) and plan.axes[size].min < plan.axes[size].max}
        for name, item in plan.inputs.items()
    }  # fmt: skip
    raw = target.with_name(".export-raw.onnx")
    context.progress("tracing to ONNX (torchscript)", 0, 3)
    try:
        if plan.model.source == "torchscript":
            # The exporter's own tracer does not know scripts inside modules; torch.jit.trace keeps them whole.
            port = _traced(port, _arguments(context))
        torch.onnx.export(
            port,
            _arguments(context),
            str(raw),
            dynamo=False,
            opset_version=plan.opset,
            input_names=list(plan.inputs),
            output_names=list(plan.outputs),
            dynamic_axes=axes,
        )
    except Exception as error:  # process edge: see _dynamo
        raise _failed("the torchscript exporter", error) from error
    model = files.load(raw)
    raw.unlink()
    return model


def _traced(port: Any, arguments: tuple[Any, ...]) -> Any:
    import torch

    return torch.jit.trace(port, arguments, check_trace=False)  # type: ignore[no-untyped-call]
