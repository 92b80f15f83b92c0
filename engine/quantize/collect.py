"""The range of each activation over the calibration data, by the method that the recipe names.

``entropy`` and ``percentile`` are ONNX Runtime's own collectors; the graph is run here, with the activations as
outputs, so that weights stay by reference and one batch at a time is in memory.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from engine import runtime
from engine.errors import StepError
from engine.graph import files
from engine.plan import PlannedCalibration
from engine.samples import Array

if TYPE_CHECKING:
    from onnxruntime.quantization.calibrate import HistogramCollector

_BINS = {"entropy": (128, 128), "percentile": (2048, 128)}  # ONNX Runtime's defaults: bins, quantised bins


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
    tops: dict[str, float] = {}
    collector = None if calibration.method == "max" else _collector(calibration)
    for index, feeds in enumerate(batches):
        progress(index)
        seen = {**feeds, **runtime.run(opened, feeds)}
        found = {name: np.asarray(seen[name], np.float32) for name in names}
        for name, values in found.items():
            if not np.isfinite(values).all():
                raise StepError(
                    f"tensor {name} is not finite in FP32 on calibration batch {index}",
                    klass="numeric", fix="give calibration values that the model is meant for",
                    where="precision.calibration",
                )  # fmt: skip
            tops[name] = max(tops.get(name, 0.0), float(np.abs(values).max(initial=0.0)))
        if collector is not None:
            with contextlib.redirect_stdout(io.StringIO()):
                collector.collect(found)
    if collector is None:
        return tops
    with contextlib.redirect_stdout(io.StringIO()):  # it tells what it does on stdout, which is the caller's
        limits = collector.compute_collection_result()
    return {name: min(tops[name], _limit(limits[name])) if tops[name] else 0.0 for name in names}


def _made(model: ir.Model) -> list[ir.Value]:
    return [value for node in model.graph for value in node.outputs]


def _collector(calibration: PlannedCalibration) -> HistogramCollector:
    from onnxruntime.quantization.calibrate import HistogramCollector

    bins, quantised = _BINS[calibration.method]
    return HistogramCollector(calibration.method, True, bins, quantised, calibration.percentile, "same")


def _limit(found: Any) -> float:
    low, high = (float(np.asarray(end)) for end in (found.range_value if hasattr(found, "range_value") else found[:2]))
    return max(abs(low), abs(high))
