"""Load the model, make samples, compute reference outputs in FP32, where the model allows in FP64 and a half too."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engine import origin, samples
from engine import reference as references
from engine.errors import StepError
from engine.plan import Plan
from engine.reference import Call, Reference
from engine.steps.context import Context, Done
from engine.values import Issue

_MOST_WORK = 1e11  # input elements x parameters; above it half and double precision on a CPU take seconds
_NO_MODEL = "not run: there is no PyTorch model"


def run(context: Context) -> Done:
    """Write ``samples/SHAPE.npz`` for every shape; leave a PyTorch model in ``context.memo['port']``."""
    plan = context.plan
    total = len(plan.shapes) + 2
    context.progress("loading the model", 0, total)
    came = origin.facts(plan)
    reference = references.load(plan)
    came["files"] |= reference.files
    context.memo |= {"port": reference.port, "call": reference.call}
    folder = context.folder("samples")
    artifacts: dict[str, Path] = {}
    facts: dict[str, Any] = {"outputs": {}}
    for index, shape in enumerate(plan.shapes):
        context.progress(f"reference outputs at {shape}", index + 1, total)
        inputs = samples.make(plan, shape)
        outputs = reference.call(inputs, shape)
        _require_finite(outputs, shape, came["reference"])
        if index == 0:
            _require_repeatable(reference.call(inputs, shape), outputs, f"model.{plan.model.source}")
        facts["outputs"][shape] = {name: list(value.shape) for name, value in outputs.items()}
        artifacts[shape] = folder / f"{shape}.npz"
        samples.save(artifacts[shape], inputs, {"fp32": outputs})
    start = time.perf_counter()
    if reference.port is not None:
        facts |= _more_references(
            reference.port, plan, folder,
            lambda shape: context.progress(f"outputs at {shape} in half and double precision", total - 1, total),
        )  # fmt: skip
    else:
        facts |= {"half": {}, "fp64": dict.fromkeys(plan.parity_shapes, _NO_MODEL)}
    more_seconds = round(time.perf_counter() - start, 3)
    facts |= {"repeatable": True, "origin": came, **reference.facts}
    return Done(
        facts=facts,
        measurements={"more_references_seconds": more_seconds},
        artifacts=artifacts,
        issues=tuple(reference.issues + _notes(reference) + _random_weights(plan)),
    )


def _notes(reference: Reference) -> list[Issue]:
    """What a reader must know about how the model was called; known only after it was."""
    port, notes = reference.port, []
    if port is None:
        return []
    if port.modified:
        names = ", ".join(sorted(port.modified))
        cause = "an operation such as ReLU(inplace=True) on the input itself"
        fix = "every run got a copy; the exported graph has no such side effect"
        notes.append(Issue("source", "export", f"the model changes its input in place ({names})", cause, fix))
    if port.not_ported:
        names = ", ".join(port.not_ported)
        notes.append(Issue("source", "export", f"returned by the model and not ported: {names}"))
    if reference.optional:
        names = ", ".join(reference.optional)
        notes.append(Issue("source", "export", f"optional inputs left at their defaults: {names}"))
    return notes


def _random_weights(plan: Plan) -> list[Issue]:
    if plan.model.source not in ("torchvision", "timm", "transformers") or plan.model.weights:
        return []
    return [
        Issue(
            "source", "numeric", f"the weights are random (seed {plan.seed}): no trained model was ported",
            cause="the recipe names no weights", fix="name them under model.weights",
        )
    ]  # fmt: skip


def _require_finite(outputs: dict[str, samples.Array], shape: str, who: str) -> None:
    for name, value in outputs.items():
        bad = int((~np.isfinite(value)).sum()) if value.dtype.kind == "f" else 0
        if bad:
            raise StepError(
                f"{who} itself returns {bad:,} of {value.size:,} values of '{name}' that are not finite"
                f" at shape '{shape}'",
                klass="numeric",
                fix="give sample values that the model is meant for",
                where="inputs",
            )


def _require_repeatable(second: dict[str, Any], first: dict[str, Any], where: str) -> None:
    for name, value in first.items():
        if not np.array_equal(value, second[name]):
            worst = float(np.abs(value.astype(np.float64) - second[name].astype(np.float64)).max())
            raise StepError(
                f"two runs of the model on the same input give different '{name}' (by up to {worst:.2g})",
                klass="export",
                cause="random numbers in forward, or functional dropout / batch statistics left on in eval mode",
                fix="pass training=self.training, or make the noise an input of the model",
                where=where,
            )


def _more_references(
    port: Any, plan: Plan, folder: Path, at: Callable[[str], None]
) -> dict[str, dict[str, str]]:
    """Add ``half`` and ``fp64`` outputs to the samples of the smaller shapes; say per kind and shape what was done.

    Without a PyTorch model neither is run; ``half`` only where the float type is a half.
    """
    from engine import torch_model

    calls = {"half": _half(port, plan), "fp64": torch_model.double(port)}
    weight = sum(parameter.numel() for parameter in port.parameters())
    done: dict[str, dict[str, str]] = {"half": {}, "fp64": {}}
    for shape in plan.parity_shapes:
        at(shape)
        path = folder / f"{shape}.npz"
        inputs = samples.read(path, "input")
        outputs = {"fp32": samples.read(path, "fp32")}
        slow = sum(value.size for value in inputs.values()) * weight > _MOST_WORK
        for kind, (call, why) in calls.items():
            if call is None or slow:
                done[kind] |= (
                    {shape: why if call is None else "not run: too slow on a CPU at this size"} if why else {}
                )
                continue
            try:
                outputs[kind] = call(inputs, shape)
                done[kind][shape] = "run"
            except StepError as error:
                done[kind][shape] = f"not run: {error}"
        samples.save(path, inputs, outputs)
    return done


def _half(port: Any, plan: Plan) -> tuple[Call | None, str]:
    """PyTorch itself in the float type and "run", or why not; no reason where that is no half."""
    import torch

    from engine import torch_model

    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(plan.precision.floats)
    if dtype is None:
        return None, ""
    half, why = torch_model.converted(port, dtype)
    if half is None:
        return None, why
    return lambda inputs, shape: torch_model.call(half, inputs, shape), "run"
