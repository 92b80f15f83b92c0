"""What a step is given and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.plan import Plan
from engine.values import Issue, StepResult

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Done:
    """Outcome of a step that did its work. ``artifacts`` are paths inside the output folder.

    ``skipped`` says why the step had nothing to do; its status is then *not run*. ``peak_bytes`` is set by
    a step that did its work in another process.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    measurements: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, Path] = field(default_factory=dict)
    issues: tuple[Issue, ...] = ()
    skipped: str = ""
    peak_bytes: int = 0


@dataclass
class Context:
    """One run as a step sees it. ``memo`` passes live objects between steps of one process.

    ``earlier`` holds the results of the steps before; ``progress(text, done, total)`` moves the bar.
    """

    plan: Plan
    out: Path
    earlier: dict[str, StepResult]
    progress: Progress
    memo: dict[str, Any] = field(default_factory=dict)

    def artifact(self, step: str, name: str) -> Path:
        return self.out / self.earlier[step].artifacts[name].path

    @property
    def graph(self) -> Path:
        """The newest ONNX graph of the run."""
        for result in reversed(self.earlier.values()):
            if "graph" in result.artifacts:
                return self.out / result.artifacts["graph"].path
        raise LookupError("no step has written a graph yet")

    def folder(self, name: str) -> Path:
        """A subfolder of the output folder, made when it is not there."""
        path = self.out / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def samples(self, shape: str) -> Path:
        """File of sample inputs and reference outputs at ``shape`` (see :mod:`engine.samples`)."""
        return self.out / "samples" / f"{shape}.npz"
