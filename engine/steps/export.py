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

    from engine.traced import Study

WEIGHTS = "export.weights"


def run(context: Context) -> Done:
    """Write ``onnx/export.onnx`` and its weights; the graph's nodes carry condensed provenance."""
    from engine.graph import boundary, files, provenance

    plan = context.plan
    if plan.model.source == "onnx":
        return _adopted(context)
    port = context.memo.get("port") or _reload(plan)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"torch(\..*)?|copyreg")
    target = context.folder("onnx") / "export.onnx"
    if plan.exporter == "dynamo":
        model, issues = _dynamo(port, context)
        provenance.condense_dynamo(model)
    else:
        model, issues = _torchscript(port, context, target)
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
    _check_opset(model, plan)
    return Done(facts=facts, artifacts=artifacts, issues=tuple(issues))


def _check_opset(model: ir.Model, plan: Plan) -> None:
    written = model.opset_imports.get("")
    if written == plan.opset:
        return
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


def _dynamo(port: Any, context: Context) -> tuple[ir.Model, list[Issue]]:
    import torch

    from engine import traced
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
    study = traced.study(program)
    _refuse_random(study)
    context.progress("translating to ONNX", 1, 3)
    try:
        onnx_program = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=plan.opset,
            input_names=list(plan.inputs),
            output_names=list(plan.outputs),
            verbose=False,
            optimize=not study.fragile,
        )
    except Exception as error:  # process edge: see above
        raise _failed("the dynamo exporter", error) from error
    assert onnx_program is not None
    model: ir.Model = onnx_program.model
    if study.fragile:
        _fold(model)
    return model, _noted(study)


def _refuse_random(study: Study) -> None:
    if study.random:
        first, more = study.random[0], len(study.random) - 1
        raise StepError(
            f"the model draws random numbers: {first}" + (f" and {more} more" if more else ""),
            klass="export",
            cause="no two runs agree, so nothing about the port could be proven",
            fix="make the noise an input of the model, or switch it off (dropout: training=self.training)",
            where="model.python",
            evidence="\n".join(map(str, study.random[:10])),
        )


def _noted(study: Study) -> list[Issue]:
    issues = []
    if study.fragile:
        shown = ", ".join(dict.fromkeys(map(str, study.fragile[:3])))
        issues.append(
            Issue(
                "export",
                "export",
                f"{len(study.fragile)} constants so close to 0 or 1 that the exporter's optimiser deletes them",
                cause="it takes addends up to 1e-8 for 0 and factors within 1e-5 of 1 for 1",
                fix="exported without that optimiser; constants folded and common nodes merged instead",
                evidence=shown,
                disposition="fixed",
            )
        )
    if study.batch_statistics:
        issues.append(
            Issue(
                "export",
                "export",
                f"batch statistics in use ({len(study.batch_statistics)} batch norms)",
                cause="functional batch_norm with training=True; each row's result depends on the others",
                fix="pass training=self.training if that is not meant",
                evidence=", ".join(map(str, study.batch_statistics[:3])),
                disposition="open",
            )
        )
    return issues


def _fold(model: ir.Model) -> None:
    """The exact part of what the exporter's optimiser does: nothing here drops or changes a number."""
    import onnxscript.optimizer
    from onnx_ir.passes import common

    common.InlinePass()(model)
    onnxscript.optimizer.fold_constants(model)
    for step in (
        common.RemoveUnusedNodesPass(),
        common.IdentityEliminationPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
        common.RemoveUnusedNodesPass(),
        common.RemoveUnusedOpsetsPass(),
    ):
        step(model)


def _failed(who: str, error: BaseException) -> StepError:
    import traceback

    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    lines = [line for line in str(chain[-1]).strip().splitlines() if line.strip()]
    text = " ".join(line.strip() for line in lines[:8])[:900]
    shape = "constraint" in text.lower() or "specializ" in text.lower() or "dynamic" in text.lower()
    return StepError(
        f"{who} failed: {type(chain[-1]).__name__}: {text}",
        klass="shape" if shape else "export",
        fix="the whole text is in the log torch.log; the torchscript exporter takes more models, but it bakes"
        " Python values and branches into the graph",
        where="axes" if shape else "model.python",
        evidence="".join(traceback.format_exception(error))[-4000:],
    )


def _torchscript(port: Any, context: Context, target: Path) -> tuple[ir.Model, list[Issue]]:
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
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
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
    return model, _baked(caught)


def _baked(caught: list[warnings.WarningMessage]) -> list[Issue]:
    """One issue a place at which the tracer turned a tensor into a Python value."""
    import torch

    issues = {}
    for item in caught:
        if issubclass(item.category, torch.jit._trace.TracerWarning):
            place = f"{Path(item.filename).name}:{item.lineno}"
            issues[place] = Issue(
                "export",
                "export",
                f"the tracer took a value at {place} for a constant",
                cause=str(item.message).split(". ")[0],
                fix="the graph is right only while that value stays the same; try the dynamo exporter",
                evidence="parity at the recipe's own inputs does not prove other branches",
                disposition="open",
            )
    return list(issues.values())


def _traced(port: Any, arguments: tuple[Any, ...]) -> Any:
    import torch

    return torch.jit.trace(port, arguments, check_trace=False)  # type: ignore[no-untyped-call]
