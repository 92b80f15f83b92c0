"""How far each constant of a graph is off, told from its outputs alone.

A factor of 1.000001 on one weight hides in the rounding of FP32. In FP64 it does not, but there the constants that an
exporter folded show as well, rounded to FP32 each. So each constant is scaled a little, and the error against the exact
reference is projected on what that changes: one that is off by more than rounding has a direction of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from engine import runtime
from engine.errors import StepError
from engine.graph import files
from engine.samples import Array

MOST = 400  # constants; each takes a run
_STEP = np.float32(2.0**-7)  # of a constant; large against rounding, small enough to be linear in
_FLOOR = 1e-8  # of an output's size: no FP32 result is known better
_VAST = 1e30  # constants beyond it stand for infinity


@dataclass(frozen=True)
class Told:
    """``off`` is the relative error of a constant, ``sigma`` the standard error of that estimate.

    ``moves`` is what a relative change of one of it makes of the outputs, as a part of their norm; ``share`` the
    part of the whole error's square that the constant would explain.
    """

    name: str
    off: float
    sigma: float
    moves: float
    share: float


@dataclass(frozen=True)
class Sample:
    """Inputs, the reference's outputs in FP32 and FP64, and the graph's own in FP64."""

    feeds: Mapping[str, Array]
    single: Mapping[str, Array]
    exact: Mapping[str, Array]
    got: Mapping[str, Array]


def errors(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Of each float output over all samples, the Euclidean norms of the graph's error, of PyTorch's rounding error
    and of the output itself, all in FP64."""
    found = []
    for name, exact in samples[0].exact.items():
        if exact.dtype.kind != "f":
            continue
        squares = np.zeros(3)
        for sample in samples:
            wanted = sample.exact[name].astype(np.float64)
            for index, other in enumerate((sample.got[name], sample.single[name], np.zeros_like(wanted))):
                squares[index] += float(np.sum(np.square(other.astype(np.float64) - wanted)))
        # A record holds no NaN: an output that is not finite is off by more than anything.
        error, noise, size = (float(root) if np.isfinite(root) else _VAST for root in np.sqrt(squares))
        found.append({"output": name, "error": error, "noise": noise, "size": size})
    return found


def tell(path: Path, samples: Sequence[Sample]) -> tuple[Told, ...]:
    """An estimate for each FP32 constant of the graph at ``path`` that moves an output, in the graph's order."""
    scales = [_scales(sample) for sample in samples]
    error = np.concatenate([_flat(sample.got, scale, sample.exact)
                            for sample, scale in zip(samples, scales, strict=True)])  # fmt: skip
    rows = np.concatenate(list(_rows(samples, scales)))
    model = files.load(path)
    held = dict(_constants(model))
    model.graph.inputs.extend(model.graph.initializers[name] for name in held)
    draft = path.with_name(f".{path.stem}-open.onnx")
    try:
        files.save(model, draft)
        loose = runtime.session(draft)
    finally:
        draft.unlink(missing_ok=True)

    def moved(changed: Mapping[str, Any]) -> Any:
        return np.concatenate([_flat(runtime.run(loose, {**sample.feeds, **changed}), scale)
                               for sample, scale in zip(samples, scales, strict=True)])  # fmt: skip

    still, found = moved({}), []
    size = float(np.linalg.norm(still))
    for name, values in held.items():
        try:
            change = (moved({name: values * (1 + _STEP)}) - still) / float(_STEP)
        except StepError:
            continue  # it decides a size
        if estimate := _project(error, change, rows):
            moves = float(np.linalg.norm(change))
            whole = float(error @ error)
            share = (estimate[0] * moves) ** 2 / whole if whole else 0.0
            found.append(Told(name, *estimate, moves / size, share))
    return tuple(found)


def _project(error: Any, change: Any, rows: Any) -> tuple[float, float] | None:
    """The multiple of ``change`` that is nearest to ``error``, and its standard error.

    Errors within a row go together (a norm spreads them), so that the rows count where they tell less than the
    elements do.
    """
    if change.shape != error.shape or not (np.isfinite(change).all() and np.isfinite(error).all()):
        return None
    square = float(change @ change)
    if not square > 0.0 or error.size < 2:
        return None
    off = float(error @ change) / square
    left = error - off * change
    by_row = np.bincount(rows, left * change)
    single, joint = float(left @ left) / (error.size - 1) * square, float(by_row @ by_row)
    return off, float(np.sqrt(max(single, joint))) / square


def _rows(samples: Sequence[Sample], scales: Sequence[Mapping[str, float]]) -> Iterator[Any]:
    """The number of the row along the last axis that each element of the flattened outputs is in."""
    start = 0
    for sample, scale in zip(samples, scales, strict=True):
        for name in scale:
            shape = sample.exact[name].shape
            width = shape[-1] if len(shape) > 1 else 1
            count = sample.exact[name].size // width
            yield np.repeat(np.arange(start, start + count), width)
            start += count


def _scales(sample: Sample) -> dict[str, float]:
    """One over the usual rounding error of each float output, so that outputs of any unit count alike."""
    found = {}
    for name, exact in sample.exact.items():
        if exact.dtype.kind != "f" or not exact.size or not np.isfinite(exact).all():
            continue
        size = float(np.sqrt(np.mean(np.square(exact))))
        noise = float(
            np.sqrt(np.mean(np.square(sample.single[name].astype(np.float64) - exact.astype(np.float64))))
        )
        if size > 0.0:
            found[name] = 1.0 / max(noise, _FLOOR * size)
    return found


def _flat(
    outputs: Mapping[str, Array], scales: Mapping[str, float], less: Mapping[str, Array] | None = None
) -> Any:
    parts = []
    for name, scale in scales.items():
        value = outputs[name].astype(np.float64)
        parts.append(((value - less[name].astype(np.float64) if less is not None else value) * scale).ravel())
    return np.concatenate(parts) if parts else np.zeros(0)


def _constants(model: ir.Model) -> Iterator[tuple[str, Any]]:
    """The first FP32 constants of the main graph by name, those of ``Constant`` nodes made initializers."""
    for node in list(model.graph):
        output = node.outputs[0]
        if node.op_type != "Constant" or "value" not in node.attributes or output.is_graph_output():
            continue
        tensor = node.attributes["value"].as_tensor()
        lifted = ir.Value(name=f"{output.name}/lifted", const_value=tensor)
        model.graph.register_initializer(lifted)
        for use in list(output.uses()):
            use.node.replace_input_with(use.idx, lifted)
    inputs, count = {value.name for value in model.graph.inputs}, 0
    for name, value in model.graph.initializers.items():
        tensor_ = value.const_value
        if tensor_ is None or tensor_.dtype != ir.DataType.FLOAT or name in inputs or not list(value.uses()):
            continue
        values = tensor_.numpy()
        largest = float(np.abs(values).max()) if values.size else 0.0
        if not 0.0 < largest < _VAST:
            continue
        value.dtype, value.shape = tensor_.dtype, ir.Shape(values.shape)
        yield name, values
        count += 1
        if count == MOST:
            return
