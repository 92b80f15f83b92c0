"""Lower a graph with some nodes wide, rehearse it, and say how far it is from the limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx_ir as ir

from engine import samples
from engine.compare import compare
from engine.comparison import Comparison
from engine.diagnosis.margin import Margin, worst
from engine.errors import StepError
from engine.graph import files
from engine.precision import blocked, lower, rehearsal, selectors
from engine.precision.report import Boundary, LoweringReport
from engine.quantize import insert
from engine.quantize.insert import Quantised
from engine.recipe import FloatType, Limits, NodeType, Override
from engine.samples import Array

Told = Callable[[int], None]  # called with the number of rehearsals before each


@dataclass(frozen=True)
class Sample:
    """Inputs and FP32 reference outputs at one shape, by name."""

    shape: str
    inputs: Mapping[str, Array]
    expected: Mapping[str, Array]


def read(folder: Path, shape: str) -> Sample:
    """The sample of a run at ``shape``."""
    file = folder / f"{shape}.npz"
    return Sample(shape, samples.read(file, "input"), samples.read(file, "fp32"))


@dataclass
class Trials:
    """Rehearsals of one graph under one base type and ``floats`` beside it; ``count`` is how many were run.

    ``graph`` is the file before lowering. Files are written beside it and removed, because weights are kept by
    reference. Wide nodes come on top of the ``overrides``, which stay as they are.
    """

    graph: Path
    base: NodeType
    floats: FloatType
    io: Boundary
    overrides: tuple[Override, ...]
    limits: Limits
    ranges: Mapping[str, float] = field(default_factory=dict)
    told: Told = lambda count: None
    wider: FloatType = "fp32"
    count: int = 0
    _seen: dict[tuple[frozenset[str], str], Margin] = field(default_factory=dict)

    def margin(self, wide: Iterable[str], taken: Sequence[Sample]) -> Margin:
        """The worst margin over the samples with the nodes called ``wide`` in the type ``wider``; stops at the first
        that fails.
        """
        names = frozenset(wide)
        result = Margin(0.0, "", None, "")
        for sample in taken:
            key = names, sample.shape
            if key not in self._seen:
                extra = [
                    Override(self.wider, "diagnosis", node=selectors.exactly(name)) for name in sorted(names)
                ]
                self._seen[key] = self.of([*self.overrides, *extra], [sample])
            result = max(result, self._seen[key], key=lambda margin: margin.ratio)
            if not result.good:
                break
        return result

    def of(
        self, overrides: Sequence[Override], taken: Sequence[Sample], base: NodeType | None = None
    ) -> Margin:
        """The worst margin over the samples of a graph lowered by ``overrides``."""
        path = self.graph.with_name(".diagnosis.onnx")
        weights = ".diagnosis.weights"
        try:
            _, _, lowered = self.lowered(overrides, base)
            files.save(lowered, path, weights)
            blocked.write(files.load(path), path)
            return worst(self.limits, [item for sample in taken for item in self._compare(path, sample)])
        finally:
            path.unlink(missing_ok=True)
            path.with_name(weights).unlink(missing_ok=True)

    def lowered(
        self, overrides: Sequence[Override], base: NodeType | None = None
    ) -> tuple[LoweringReport, Quantised, ir.Model]:
        model = files.load(self.graph)
        assignment = selectors.resolve(model, base or self.base, overrides, self.floats)
        assignment, quantised = insert.quantise(model, assignment, self.ranges)
        return lower.lower(model, assignment, io=self.io), quantised, model

    def again(self, overrides: tuple[Override, ...], base: NodeType, wider: FloatType) -> Trials:
        """The same with other overrides, base and wider type. The two count on their own."""
        return replace(self, overrides=overrides, base=base, wider=wider, count=0, _seen={})

    def _compare(self, path: Path, sample: Sample) -> Sequence[Comparison]:
        self.told(self.count)
        self.count += 1
        try:
            return compare(sample.expected, rehearsal.run_shadow(path, sample.inputs), sample.shape)
        except StepError as error:
            return [Comparison(name, sample.shape, error.failure.symptom) for name in sample.expected]
