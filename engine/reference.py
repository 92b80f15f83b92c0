"""What gives the reference outputs of a port: the PyTorch model, or the ONNX file that the port starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.errors import StepError
from engine.plan import Plan
from engine.samples import Array
from engine.values import Issue

Call = Callable[[Mapping[str, Array], str], dict[str, Array]]


@dataclass(frozen=True)
class Reference:
    """What gives the reference outputs: ``call(inputs, shape)``; ``port`` is the PyTorch model behind it.

    ``files`` are digests of files that only reading the model could tell.
    """

    call: Call
    facts: Mapping[str, Any]
    port: Any = None
    issues: list[Issue] = field(default_factory=list)
    files: Mapping[str, str] = field(default_factory=dict)
    optional: tuple[str, ...] = ()


def load(plan: Plan) -> Reference:
    """Load the model. Raises StepError for what is wrong with it."""
    return _onnx_file(plan) if plan.model.source == "onnx" else _pytorch(plan)


def _pytorch(plan: Plan) -> Reference:
    from engine import torch_model
    from engine.sources import torch_sources

    model = torch_sources.load(plan)
    torch_model.check_signature(model, plan)
    _require_fp32(model, f"model.{plan.model.source}")
    issues = list(_set_eval(model))
    port = torch_model.Port(model, tuple(plan.inputs), plan.outputs).eval()
    parameters = list(model.parameters())
    facts = {
        "module": f"{type(model).__module__}.{type(model).__qualname__}",
        "parameters": sum(parameter.numel() for parameter in parameters),
        "parameter_types": sorted({str(parameter.dtype).removeprefix("torch.") for parameter in parameters}),
    }
    optional = tuple(torch_model.optional_inputs(model, plan))
    return Reference(
        lambda inputs, shape: torch_model.call(port, inputs, shape), facts, port, issues, optional=optional
    )


def _require_fp32(model: Any, where: str) -> None:
    """The reference of every comparison is FP32; other parameters would be rounded or narrowed on the way."""
    import torch

    for name, parameter in model.named_parameters():
        if parameter.dtype in (torch.float16, torch.bfloat16, torch.float64):
            kind = str(parameter.dtype).removeprefix("torch.")
            raise StepError(
                f"the model's parameters are {kind} ({name})",
                klass="numeric",
                fix="return the model in float32 (model.float()); the recipe's precision makes it narrower",
                where=where,
                usage=True,
            )


def _onnx_file(plan: Plan) -> Reference:
    from engine.sources import onnx_file

    reference = onnx_file.Reference(plan)
    return Reference(reference.call, reference.facts(), files=reference.files())


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
