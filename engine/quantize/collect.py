"""The range of each activation over the calibration data, by the method that the recipe names.

``entropy`` and ``percentile`` are ONNX Runtime's own collectors; the graph is run here, with the activations as
outputs, so that weights stay by reference and one batch at a time is in memory.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from engine import runtime
from engine.errors import StepError
from engine.graph import files
from engine.plan import PlannedCalibration
from engine.samples import Array

_BINS, _QUANTISED_BINS = 2048, 128  # those of TensorRT's own entropy calibrator


def ranges(
    model: ir.Model,
    names: Collection[str],
    path: Path,
    batches: Iterable[Mapping[str, Array]],
    calibration: PlannedCalibration,
    progress: Callable[[int], None],
) -> dict[str, float]:
    """Largest magnitude to represent, by tensor name. Writes the graph with ``names`` as outputs to ``path``, which
    must lie beside its weights. Raises StepError for a tensor that is not finite on the data.
    """
    watched = model.clone()
    known = {value.name: value for value in (*watched.graph.inputs, *_made(watched))}
    have = {value.name for value in watched.graph.outputs}
    watched.graph.outputs.extend(known[name] for name in names if name not in have and not known[name].is_graph_input())
    files.save(watched, path)
    opened = runtime.session(path)

    def seen() -> Iterator[tuple[int, dict[str, Array]]]:
        for index, feeds in enumerate(batches):
            progress(index)
            values = {**feeds, **runtime.run(opened, feeds)}
            yield index, {name: np.asarray(values[name], np.float32) for name in names}

    tops = dict.fromkeys(names, 0.0)
    for index, found in seen():
        for name, values in found.items():
            _require_finite(values, name, index)
            tops[name] = max(tops[name], float(np.abs(values).max(initial=0.0)))
    if calibration.method != "max":
        tops = _cut(tops, seen(), calibration)
    return {name: _up(top) for name, top in tops.items()}


def _require_finite(values: Array, name: str, index: int) -> None:
    if not np.isfinite(values).all():
        raise StepError(
            f"tensor {name} is not finite in FP32 on calibration batch {index}",
            klass="numeric", fix="give calibration values that the model is meant for",
            where="precision.calibration",
        )  # fmt: skip


def _cut(
    tops: Mapping[str, float], seen: Iterable[tuple[int, dict[str, Array]]], calibration: PlannedCalibration
) -> dict[str, float]:
    """Ranges without outliers. The bins of a collector begin with the whole range: where they grow with the data,
    they come to tens of thousands and its search to minutes.
    """
    from onnxruntime.quantization.calibrate import HistogramCollector

    collector = HistogramCollector(
        calibration.method, True, _BINS, _QUANTISED_BINS, calibration.percentile, "same"
    )
    low = 0.0 if calibration.method == "percentile" else -1.0
    live = {name: top for name, top in tops.items() if top > 0}
    with contextlib.redirect_stdout(io.StringIO()):  # it tells what it does on stdout, which is the caller's
        collector.collect({name: np.array([low * top, top], np.float32) for name, top in live.items()})
        for _, found in seen:
            collector.collect({name: found[name] for name in live})
        limits = collector.compute_collection_result()
    return {name: min(top, _limit(limits[name])) if top > 0 else 0.0 for name, top in tops.items()}


def _made(model: ir.Model) -> list[ir.Value]:
    return [value for node in model.graph for value in node.outputs]


def _limit(found: Any) -> float:
    low, high = (float(np.asarray(end)) for end in found[:2])
    return max(abs(low), abs(high))


def _up(top: float) -> float:
    """Rounded up to four digits: other CPU kernels differ in the last bits, and the graph is to be the same."""
    if top == 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(top)) - 3)
    return float(f"{math.ceil(top / unit) * unit:.4g}")
