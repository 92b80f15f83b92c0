"""The range of every activation that may be quantised, from the recipe's calibration data."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import StepError
from engine.plan import PlannedCalibration
from engine.steps.context import Context, Done

if TYPE_CHECKING:
    import onnx_ir as ir

RANGES = "ranges.json"
_SEEN = 5


def run(context: Context) -> Done:
    """Write ``onnx/ranges.json``: the largest magnitude of each input of a node that can be quantised, by tensor.

    Independent of which nodes the recipe quantises, so that another override needs no new calibration.
    """
    precision = context.plan.precision
    calibration = precision.calibration
    asked = {precision.base, *(item.type for item in precision.overrides)}
    asked |= set(precision.search.base if precision.search else ())
    if calibration is None:
        return Done(skipped="nothing is quantised")
    if not asked & {"int8", "fp8"}:
        return Done(skipped="int4 quantises weights alone")
    from engine.graph import files
    from engine.precision.prepare import prepare

    model = files.load(context.graph)
    prepare(model)
    names = _candidates(model)
    if not names:
        return Done(skipped="no node of the main graph can be quantised")
    found, facts, issues = (_read if calibration.cache else _run)(context, calibration, model, names)
    target = context.folder("onnx") / RANGES
    target.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    return Done(facts={"tensors": len(found), **facts}, artifacts={"ranges": target}, issues=tuple(issues))


def _candidates(model: ir.Model) -> list[str]:
    from engine.precision.quantizable import activation_of, why_not

    values = [activation_of(node) for node in model.graph if not why_not(node, "int8")]
    return list(dict.fromkeys(value.name or "" for value in values if not value.is_initializer()))


def _run(
    context: Context, calibration: PlannedCalibration, model: ir.Model, names: Collection[str]
) -> tuple[dict[str, float], dict[str, Any], list[Any]]:
    from engine.quantize import collect, data

    source = data.open_data(context.plan, calibration)
    found = collect.ranges(
        model, names, context.folder("onnx") / "calibrate.onnx", source, calibration,
        lambda index: context.progress(f"batch {index + 1}", index, source.batches),
    )  # fmt: skip
    facts = {
        "method": calibration.method + (f" {calibration.percentile:g}" if calibration.method == "percentile" else ""),
        "batches": source.batches,
        "samples": source.samples,
        "from": list(source.own) or ["the recipe's sample values"],
    }
    return found, facts, list(source.issues)


def _read(
    context: Context, calibration: PlannedCalibration, model: ir.Model, names: Collection[str]
) -> tuple[dict[str, float], dict[str, Any], list[Any]]:
    """Ranges out of a cache; one that knows no tensor of this graph is of another model."""
    from engine.quantize import legacy
    from engine.values import Issue

    path = Path(calibration.cache)
    known = legacy.read(path)
    found = {name: known[name] for name in names if name in known}
    missing = [name for name in names if name not in known]
    if not found:
        raise StepError(
            f"{path.name} has none of the {len(names)} tensors that may be quantised here",
            cause=f"it has {', '.join(list(known)[:_SEEN])}; the graph has {', '.join(list(names)[:_SEEN])}",
            fix="it is of another model or another export; calibrate anew",
            where="precision.calibration.cache", usage=True,
        )  # fmt: skip
    issues = [Issue("calibrate", "numeric", f"{path.name} has no scale for {len(missing)} of {len(names)} tensors",
                    "their nodes stay in the float type", "calibrate anew", ", ".join(missing[:_SEEN]), "open")
              ] if missing else []  # fmt: skip
    return found, {"method": f"cache {path.name}", "batches": 0, "samples": 0, "from": [path.name]}, issues
