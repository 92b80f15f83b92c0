"""What is explored: something to call with tensors by name, and what is known of it beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from engine.digests import digest_file
from engine.initial import onnx_subject, signature
from engine.initial.asked import Asked
from engine.initial.signature import Signature
from engine.plan import PlannedModel
from engine.sources import torch_sources


@dataclass(frozen=True)
class Subject:
    """``exported`` when the recipe's run will export it, so that an exporter decides on its axes too."""

    model: torch.nn.Module
    name: str
    parameters: int
    taken: Signature
    exported: bool


def load(asked: Asked) -> Subject:
    """The model asked for. Raises StepError where it cannot be loaded or called."""
    if asked.onnx:
        file = onnx_subject.read(asked)
        about = f"ONNX file of opset {file.opset}"
        return Subject(file.model, about, file.parameters, file.taken, exported=False)
    planned = PlannedModel(
        asked.file, asked.function, digest_file(Path(asked.file)), asked.weights_file, None
    )
    model = torch_sources.load_python(planned).eval()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Subject(
        model, type(model).__name__, parameters, signature.read(model, asked.inputs), exported=True
    )
