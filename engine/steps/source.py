"""Load the model, make samples, compute reference outputs in FP32 and, for a half base, in half."""

from __future__ import annotations

import copy
import time
from pathlib import Path
from typing import Any

import numpy as np

from engine import samples
from engine.digests import digest_file
from engine.errors import StepError
from engine.plan import Plan
from engine.steps.context import Context, Done
from engine.values import Issue

_HALF_MOST = 1e11  # input elements x parameters; above it half precision on a CPU takes seconds


def run(context: Context) -> Done:
    """Write ``samples/SHAPE.npz`` for every shape; leave the model in ``context.memo['port']``."""
    from engine import torch_model

    plan = context.plan
    total = len(plan.shapes) + 2
    context.progress("loading the model", 0, total)
    weights = _weights_facts(plan)
    model = torch_model.load(plan.model)
    torch_model.check_signature(model, plan)
    _require_fp32(model)
    issues = list(_set_eval(model))
    port = torch_model.Port(model, tuple(plan.inputs), plan.outputs).eval()
    context.memo["port"] = port
    folder = context.folder("samples")
    artifacts: dict[str, Path] = {}
    facts: dict[str, Any] = {"outputs": {}}
    for index, shape in enumerate(plan.shapes):
        context.progress(f"reference outputs at {shape}", index + 1, total)
        inputs = samples.make(plan, shape)
        outputs = torch_model.call(port, inputs, shape)
        _require_finite(outputs, shape)
        if index == 0:
            _require_repeatable(port, inputs, outputs)
        facts["outputs"][shape] = {name: list(value.shape) for name, value in outputs.items()}
        artifacts[shape] = folder / f"{shape}.npz"
        samples.save(artifacts[shape], inputs, {"fp32": outputs})
    context.progress("reference outputs in half precision", total - 1, total)
    start = time.perf_counter()
    facts["half"] = _half_references(port, plan, folder)
    half_seconds = round(time.perf_counter() - start, 3)
    parameters = list(model.parameters())
    facts |= {
        "module": f"{type(model).__module__}.{type(model).__qualname__}",
        "parameters": sum(parameter.numel() for parameter in parameters),
        "parameter_types": sorted({str(parameter.dtype).removeprefix("torch.") for parameter in parameters}),
        "repeatable": True,
        **weights,
    }
    issues += _notes(port, torch_model.optional_inputs(model, plan))
    measurements = {"half_seconds": half_seconds}
    return Done(facts=facts, measurements=measurements, artifacts=artifacts, issues=tuple(issues))


def _require_fp32(model: Any) -> None:
    """The reference of every comparison is FP32; other parameters would be rounded or narrowed on the way."""
    import torch

    for name, parameter in model.named_parameters():
        if parameter.dtype in (torch.float16, torch.bfloat16, torch.float64):
            kind = str(parameter.dtype).removeprefix("torch.")
            raise StepError(
                f"the model's parameters are {kind} ({name})",
                klass="numeric",
                fix="return the model in float32 (model.float()); the recipe's precision makes it narrower",
                where="model.python",
                usage=True,
            )


def _notes(port: Any, optional: list[str]) -> list[Issue]:
    """What a reader must know about how the model was called."""
    notes = []
    if port.modified:
        names = ", ".join(sorted(port.modified))
        cause = "an operation such as ReLU(inplace=True) on the input itself"
        fix = "every run got a copy; the exported graph has no such side effect"
        notes.append(Issue("source", "export", f"the model changes its input in place ({names})", cause, fix))
    if port.not_ported:
        names = ", ".join(port.not_ported)
        notes.append(Issue("source", "export", f"returned by the model and not ported: {names}"))
    if optional:
        names = ", ".join(optional)
        notes.append(Issue("source", "export", f"optional inputs left at their defaults: {names}"))
    return notes


def _weights_facts(plan: Plan) -> dict[str, Any]:
    if plan.model.weights is None:
        return {}
    path = Path(plan.model.weights)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    digests = {str(file.relative_to(path) if path.is_dir() else file.name): digest_file(file)
               for file in files if file.is_file()}  # fmt: skip
    expected = plan.model.weights_sha256
    if expected and digests.get(path.name) != expected:
        raise StepError(
            f"the weights file {path.name} has another sha256 than the recipe says",
            klass="tooling",
            cause=f"sha256 is {digests.get(path.name)}",
            fix="use the file that the recipe was reviewed with, or update model.weights.sha256",
            where="model.weights.sha256",
            usage=True,
        )
    return {"weights": digests}


def _set_eval(model: Any) -> list[Issue]:
    from torch.nn.modules import batchnorm, dropout

    # A module without these behaves the same in both modes.
    matters = (batchnorm._BatchNorm, dropout._DropoutNd)
    training = [name or "the model" for name, module in model.named_modules()
                if module.training and isinstance(module, matters)]  # fmt: skip
    model.eval()
    if not training:
        return []
    shown = ", ".join(training[:3]) + (f" and {len(training) - 3} more" if len(training) > 3 else "")
    return [
        Issue(
            "source", "export", f"the model came in training mode ({shown})",
            cause="dropout and batch statistics would be active", fix="switched to eval mode",
            disposition="fixed",
        )
    ]  # fmt: skip


def _require_finite(outputs: dict[str, samples.Array], shape: str) -> None:
    for name, value in outputs.items():
        bad = int((~np.isfinite(value)).sum()) if value.dtype.kind == "f" else 0
        if bad:
            raise StepError(
                f"PyTorch itself returns {bad:,} of {value.size:,} values of '{name}' that are not finite"
                f" at shape '{shape}'",
                klass="numeric",
                fix="give sample values that the model is meant for",
                where="inputs",
            )


def _require_repeatable(port: Any, inputs: dict[str, Any], first: dict[str, Any]) -> None:
    from engine import torch_model

    second = torch_model.call(port, inputs, "export")
    for name, value in first.items():
        if not np.array_equal(value, second[name]):
            worst = float(np.abs(value.astype(np.float64) - second[name].astype(np.float64)).max())
            raise StepError(
                f"two runs of the model on the same input give different '{name}' (by up to {worst:.2g})",
                klass="export",
                cause="random numbers in forward, or functional dropout / batch statistics left on in eval mode",
                fix="pass training=self.training, or make the noise an input of the model",
                where="model.python",
            )


def _half_references(port: Any, plan: Plan, folder: Path) -> dict[str, str]:
    """Add ``half`` outputs to the samples of the smaller shapes; say per shape what was done."""
    import torch

    from engine import torch_model

    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(plan.precision.base)
    if dtype is None:
        return {}
    half = copy.deepcopy(port).to(dtype)
    weight = sum(parameter.numel() for parameter in port.parameters())
    done = {}
    for shape in plan.parity_shapes:
        elements = sum(value.size for value in samples.make(plan, shape).values())
        if elements * weight > _HALF_MOST:
            done[shape] = "not run: too slow on a CPU at this size"
            continue
        path = folder / f"{shape}.npz"
        inputs = samples.read(path, "input")
        try:
            outputs = torch_model.call(half, inputs, shape)
        except StepError as error:
            done[shape] = f"not run: {error}"
            continue
        samples.save(path, inputs, {"fp32": samples.read(path, "fp32"), "half": outputs})
        done[shape] = "run"
    return done
