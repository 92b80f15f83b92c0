"""What a step is given and what it gives back."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import needs
from engine.digests import digest_file
from engine.errors import StepError
from engine.plan import Plan
from engine.values import Artifact, Issue, StepResult

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

    ``earlier`` holds the results of the steps before; ``progress(text, done, total)`` moves the bar. Files that
    another process wrote are compared with their recorded digests when they are first asked for.
    """

    plan: Plan
    out: Path
    earlier: dict[str, StepResult]
    progress: Progress
    memo: dict[str, Any] = field(default_factory=dict)
    unseen: dict[str, tuple[str, Artifact]] = field(init=False)  # path -> the step that wrote it, digest

    def __post_init__(self) -> None:
        self.unseen = {
            artifact.path: (step, artifact)
            for step, result in self.earlier.items()
            for artifact in result.artifacts.values()
        }

    def for_step(self, step: str) -> Context:
        """The same run with nothing but what the step's result is said to follow from; see :mod:`engine.needs`."""
        part = copy.copy(self)
        part.plan, part.earlier = needs.narrowed(self.plan, step), needs.seen(self.earlier, step)
        return part

    def artifact(self, step: str, name: str) -> Path:
        path = self.earlier[step].artifacts[name].path
        self._require_unchanged(path)
        return self.out / path

    @property
    def ranges(self) -> dict[str, float]:
        """The largest magnitude of each calibrated activation by tensor name; empty where nothing was calibrated."""
        result = self.earlier.get("calibrate")
        if result is None or "ranges" not in result.artifacts:
            return {}
        found: dict[str, float] = json.loads(self.artifact("calibrate", "ranges").read_text(encoding="utf-8"))
        return found

    def before(self, step: str) -> Path:
        """The newest ONNX graph that was written before ``step``."""
        newest = ""
        for name, result in self.earlier.items():
            if name == step:
                break
            newest = name if "graph" in result.artifacts else newest
        if not newest:
            raise StepError(f"no graph was written before the {step} step", klass="tooling")
        return self.artifact(newest, "graph")

    @property
    def graph(self) -> Path:
        """The newest ONNX graph of the run."""
        for result in reversed(self.earlier.values()):
            if "graph" in result.artifacts:
                path = result.artifacts["graph"].path
                self._require_unchanged(path)
                self._require_unchanged_weights(path)
                return self.out / path
        raise LookupError("no step has written a graph yet")

    def folder(self, name: str) -> Path:
        """A subfolder of the output folder, made when it is not there."""
        path = self.out / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def samples(self, shape: str) -> Path:
        """File of sample inputs and reference outputs at ``shape`` (see :mod:`engine.samples`)."""
        self._require_unchanged(f"samples/{shape}.npz")
        return self.out / "samples" / f"{shape}.npz"

    def _require_unchanged_weights(self, graph: str) -> None:
        """A weight file counts as the graph's when the graph's bytes have its name: no ONNX library is needed."""
        folder = (self.out / graph).parent
        beside = [path for path in self.unseen if (self.out / path).parent == folder and path != graph]
        if beside:
            text = (self.out / graph).read_bytes()
            for path in beside:
                if Path(path).name.encode() in text:
                    self._require_unchanged(path)

    def _require_unchanged(self, path: str) -> None:
        step, wrote = self.unseen.pop(path, ("", None))
        if wrote is None:
            return
        file = self.out / path
        found = digest_file(file) if file.is_file() else "gone"
        if found != wrote.digest:
            raise StepError(
                f"{path} is not the file that the {step} step wrote",
                klass="tooling",
                cause="the file is gone" if found == "gone" else f"sha256 was {wrote.digest} and is {found}",
                fix="run again, with nothing else writing into the run's folder and room on the disk",
                evidence=str(file),
            )
