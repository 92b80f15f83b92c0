"""Is a graph file sound? Every check of a file in one order, the cheap and exact ones first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

from engine.errors import StepError
from engine.graph import declared, defaults, external, names, versions, weights
from engine.graph.faults import Fault
from engine.values import Issue

TAKEN = "the file that the recipe starts from"  # the cause, where there is no better one


@dataclass(frozen=True)
class Sound:
    """A file without faults: how many weights lie outside it, and what is odd about it."""

    external: int
    issues: tuple[Issue, ...]


def require(path: Path, *, taken: bool, original: bool = False, step: str = "check") -> Sound:
    """Raise StepError at the first fault of the file at ``path``.

    ``taken``: the recipe starts from an ONNX file, and its words go to ``model.onnx``. ``original``: it is the
    customer's own file, in which weights may be listed among the inputs (they are taken out on the way).
    """
    count = external.check(path)
    model = external.read(path)
    written = defaults.write_out_proto(model)
    for fault in _structure(model, original):
        raise _error(path, fault, taken)
    inferred = declared.infer(model)
    for fault in declared.faults(model, inferred):
        raise _error(path, fault, taken)
    try:
        onnx.checker.check_model(str(path), full_check=not written)
        if written:  # the other half of the full check, on the graph with its defaults
            onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        fault = Fault(str(error).strip().splitlines()[0])
        raise _error(path, fault, taken, str(error)[:2000]) from error
    issues = [
        *external.misaligned(path, step),
        *names.unused(model, step),
        *versions.foreign(model, step),
        *declared.inside(inferred, step),
    ]
    return Sound(count, tuple(issues))


def _structure(model: onnx.ModelProto, original: bool) -> Iterator[Fault]:
    yield from names.faults(model, inputs_may_be_weights=original)
    yield from versions.faults(model)
    yield from weights.faults(model)
    yield from declared.boundary(model)


def _error(path: Path, fault: Fault, taken: bool, evidence: str = "") -> StepError:
    wrote = TAKEN if taken else "the exporter wrote an invalid graph"
    return StepError(
        f"{path.name} is not valid ONNX: {fault.symptom}",
        klass=fault.klass,
        cause=fault.cause or wrote,
        fix=fault.fix or ("mend the file" if taken else "try the other exporter, or another opset"),
        where="model.onnx" if taken else "export.exporter",
        evidence=evidence or str(path),
    )
