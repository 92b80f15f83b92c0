"""The export step's own checks on a graph with a fault: every weight bit for bit, numbers, types, dimensions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engine import samples, torch_model
from engine.errors import StepError
from engine.exporters import checks, dynamo, torchscript
from engine.exporters.exported import Exported
from engine.graph import boundary, files
from engine.sources import torch_sources
from tests.mutants.bench import Bench, silent


class Account:
    """The exported model once more, to hold planted graphs against it as the export step would have."""

    def __init__(self, bench: Bench) -> None:
        plan = bench.plan
        self.bench = bench
        self.port = torch_model.Port(torch_sources.load(plan), tuple(plan.inputs), plan.outputs).eval()
        inputs = samples.read(bench.out / "samples" / "export.npz", "input")
        arguments = tuple(torch.from_numpy(inputs[name].copy()) for name in plan.inputs)
        if plan.exporter == "dynamo":
            self.made: Exported = dynamo.export(self.port, plan, arguments, silent)
        else:
            raw = bench.out / "onnx" / ".again.onnx"
            self.made = torchscript.export(self.port, plan, arguments, silent, raw)
        boundary.name_axes(self.made.model, plan)
        self.usual = set(self._issues(bench.graph))

    def complaint(self, path: Path) -> str:
        """What the checks say of the graph at ``path`` that they do not say of the healthy one; empty for nothing."""
        try:
            new = [text for text in self._issues(path) if text not in self.usual]
        except StepError as error:
            return error.failure.symptom
        return new[0] if new else ""

    def _issues(self, path: Path) -> list[str]:
        observed: Any = self.bench.results["source"].facts["outputs"]
        made = replace(self.made, model=files.load(path))
        found = checks.check(made, self.port, self.bench.plan, observed)
        return [f"{issue.symptom} {issue.evidence}" for issue in found.issues if issue.disposition == "open"]
