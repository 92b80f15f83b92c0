"""Rehearse once more, rounding only where the fused layers of the engine that was built begin and end."""

from __future__ import annotations

import json

from engine import samples
from engine.compare import compare
from engine.comparison import Comparison
from engine.errors import StepError
from engine.fused_plan import FusedPlan
from engine.plain import from_plain, to_plain
from engine.steps.context import Context, Done

MODE = "rounding where the plan of this engine rounds"


def run(context: Context) -> Done:
    """Compare with the reference in FP32 at every parity shape. What the plan does not show is rounded, and counted."""
    from engine.graph import files
    from engine.precision import blocked, rehearsal
    from engine.precision.inside import inside

    if context.earlier["build"].status != "ok":
        return Done(skipped="no engine was built")
    read: FusedPlan = from_plain(FusedPlan, json.loads(context.artifact("build", "plan").read_text("utf-8")))
    if not read.layers:
        return Done(skipped="the build printed no fused plan")
    if read.unknown_lines:
        return Done(skipped=f"{read.unknown_lines} lines of the fused plan could not be read")
    shapes = context.plan.parity_shapes
    lowered = files.load(context.graph)
    found = inside(lowered, read.layers)
    facts = {"mode": MODE, "inside": len(found.values), "border": found.border, "hidden": found.hidden}
    if not found.values:
        none = f"none of {found.border + found.hidden} low-precision values is inside one fused layer"
        return Done(skipped=f"{none}: the first rehearsal rounds the same ones")
    path = context.folder("onnx") / "fused.onnx"
    blocked.write(lowered, path, found.values)
    opened = rehearsal.open_shadow(path)
    compared: list[Comparison] = []
    for index, shape in enumerate(shapes):
        context.progress(f"shape {shape}", index, len(shapes))
        sample = context.samples(shape)
        expected, exact = samples.read(sample, "fp32"), samples.read(sample, "fp64")
        try:
            got = rehearsal.run_open(opened, samples.read(sample, "input"))
            compared += compare(expected, got, shape, exact)
        except StepError as error:
            compared += [Comparison(name, shape, error.failure.symptom) for name in expected]
    return Done(facts=facts, measurements={"comparisons": to_plain(compared)}, artifacts={"shadow": path})
