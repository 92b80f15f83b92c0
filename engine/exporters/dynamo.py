"""torch.export, then the dynamo exporter's translation. Nothing here falls back to another way of tracing."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from engine.errors import StepError
from engine.exporters.exported import Exported, failed
from engine.plan import Plan
from engine.values import Issue

if TYPE_CHECKING:
    import onnx_ir as ir

    from engine.traced import Study

CAPTURE = "torch.export, non-strict"


def export(
    port: Any, plan: Plan, arguments: tuple[Any, ...], progress: Callable[[str, int, int], None]
) -> Exported:
    """Trace and translate; raise StepError where the program is not the model that the recipe declares."""
    from engine import traced
    from engine.graph import provenance
    from engine.sources import ranges

    progress("torch.export traces the model", 0, 3)
    try:
        program = trace(port, plan, arguments)
    except Exception as error:  # process edge: the exporter and the customer's code may raise anything
        if "Constraints violated" in str(error):
            raise narrowed(port, plan, arguments, error) from error
        raise failed("torch.export", error) from error
    ranges.check(program, plan, "the exporter narrowed")
    study = traced.study(program)
    _refuse_random(study)
    progress("translating to ONNX", 1, 3)
    try:
        onnx_program = translate(program, plan)
        before = onnx_program.model.clone()
        if not study.fragile:
            onnx_program.optimize()
    except Exception as error:  # process edge: see above
        raise failed("the dynamo exporter", error) from error
    model: ir.Model = onnx_program.model
    if study.fragile:
        _fold(model)
    provenance.condense_dynamo(model)
    provenance.condense_dynamo(before)
    return Exported(
        "dynamo",
        model,
        CAPTURE,
        issues=tuple(_noted(study)),
        used=study.used,
        before=before,
        constants=study.constants,
        doubles=study.doubles,
        types=traced.types(onnx_program.exported_program),
    )


def trace(port: Any, plan: Plan, arguments: tuple[Any, ...]) -> Any:
    """The model as torch.export's program with the plan's dynamic axes."""
    import torch

    return torch.export.export(port, arguments, dynamic_shapes=(shapes(plan),), strict=False)


def translate(program: Any, plan: Plan) -> Any:
    """A program as torch.onnx's own, not optimised; its ``exported_program`` has nodes named like the ONNX values."""
    import torch

    # A program that is already traced leaves torch.onnx.export nothing to fall back from.
    translated = torch.onnx.export(
        program,
        dynamo=True,
        opset_version=plan.opset,
        input_names=list(plan.inputs),
        output_names=list(plan.outputs),
        verbose=False,
        optimize=False,
    )
    assert translated is not None
    return translated


def shapes(plan: Plan) -> tuple[dict[int, Any], ...]:
    import torch

    dims = {
        name: torch.export.Dim(name, min=axis.min, max=axis.max)
        for name, axis in plan.axes.items()
        if axis.min < axis.max
    }
    return tuple(
        {index: dims[size] for index, size in enumerate(item.shape) if isinstance(size, str) and size in dims}
        for item in plan.inputs.values()
    )


def narrowed(port: Any, plan: Plan, arguments: tuple[Any, ...], error: BaseException) -> StepError:
    """Which axis torch.export does not take as wide as declared, what it would take, and the line that limits it."""
    general, text = failed("torch.export", error), str(error)
    suggested = re.findall(r"^ *(\w+) = (.+)$", text, re.MULTILINE)
    axis, limit = next(((name, limit) for name, limit in suggested if name in plan.axes), ("", ""))
    if not axis:
        return general
    asked = plan.axes[axis]
    with _guards() as lines, suppress(Exception):  # process edge: it fails as it did before
        trace(port, plan, arguments)
    bounds = {side: int(number) for side, number in re.findall(r"(min|max)=(\d+)", limit)}
    got = limit if not bounds else f"{bounds.get('min', asked.min)}..{bounds.get('max', asked.max)}"
    return StepError(
        f"the model takes axis '{axis}' only as {got}; the recipe asks {asked.min}..{asked.max}",
        klass="shape",
        cause=f"decided at {', '.join(lines[:3])}" if lines else general.failure.symptom,
        fix="use x.shape or -1 instead of Python numbers made of it, or narrow the axis in the recipe",
        where=f"axes.{axis}",
        evidence=general.failure.evidence,
    )


@contextmanager
def _guards() -> Iterator[list[str]]:
    """Collect the places at which torch.export decides something by a size; it tells them in its log only."""
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            match = re.search(r"eval (.+) \[guard added\] \((.+?):(\d+) in \w+\)", record.getMessage())
            if match:
                place = f"{match[2].rsplit('/', 1)[-1]}:{match[3]}"
                if place not in lines:
                    lines.append(place)

    logger, listener = logging.getLogger("torch.fx.experimental.symbolic_shapes"), Listener()
    level = logger.level
    logger.addHandler(listener)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)


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
    if study.written:
        issues.append(
            Issue(
                "export",
                "export",
                f"the model writes to its own buffers ({', '.join(sorted({f.detail for f in study.written}))})",
                cause="state that one call leaves for the next; the exported graph has none",
                fix="make the state an input and an output of the model",
                evidence=", ".join(map(str, study.written[:3])),
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
