"""ONNX Runtime against the reference, both FP32, on the graph that goes on to lowering."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import samples
from engine.compare import compare
from engine.comparison import Comparison
from engine.errors import StepError
from engine.plain import to_plain
from engine.steps.context import Context, Done
from engine.stress import judge as hard

if TYPE_CHECKING:
    import onnxruntime

_OFF = 1e-3  # rel_l2 beyond which no constant is looked at: the graph is wrong in a plainer way
_LARGEST = 2**29  # bytes of weight files; FP64 doubles them, and each constant takes two runs
_FEW = 4  # cases in FP64 without accept.rounding; with it, all of the small ones
_ENOUGH = 32  # rows of an output from which constants are told


def run(context: Context) -> Done:
    """Compare every output at every parity shape and hard input; limits are applied later, by the verdict."""
    from engine import runtime
    from engine.graph import files
    from engine.stress import content

    shapes, cases = context.plan.parity_shapes, context.earlier["stress"].artifacts
    found: list[Comparison] = []
    opened = runtime.session(context.graph)
    for index, shape in enumerate(shapes):
        context.progress(f"shape {shape}", index, len(shapes) + len(cases))
        found += compare_at(opened, context.samples(shape), shape)
    stressed: list[Comparison] = []
    steps = content.steps(files.load(context.graph))
    for index, case in enumerate(cases):
        context.progress(case, len(shapes) + index, len(shapes) + len(cases))
        stressed += compare_at(opened, context.artifact("stress", case), case, nan_is_equal=True, steps=bool(steps))
    context.progress("in FP64", len(shapes) + len(cases), len(shapes) + len(cases))
    looked, exact, told = _in_fp64(context, found)
    providers = list(opened.get_providers())
    return Done(
        facts={"runtime": "onnxruntime", "providers": providers, "optimised": False, "exact": looked,
               "lookups": _lookups(context)},
        measurements={
            "comparisons": to_plain(found), "stress": to_plain(stressed), "exact": exact, "constants": to_plain(told)
        },
        issues=tuple(hard.flipped(stressed, steps)),
    )  # fmt: skip


def _lookups(context: Context) -> list[dict[str, Any]]:
    """How many rows of each table any of the samples compared here reads; ``why`` where that cannot be told."""
    from engine.stress.lookups import Lookups

    seen = [context.samples(shape) for shape in context.plan.parity_shapes]
    seen += [context.artifact("stress", case) for case in context.earlier["stress"].artifacts]
    lookups = Lookups(context.graph)
    try:
        for sample in seen if lookups else ():
            lookups.see(samples.read(sample, "input"))
    except StepError as error:
        return [table | {"why": error.failure.symptom} for table in lookups.told()]
    return lookups.told()


def _in_fp64(
    context: Context, found: Sequence[Comparison]
) -> tuple[str, list[dict[str, Any]], Sequence[Any]]:
    """Run, or why not; each float output's error over all hard inputs in FP64; estimates of the constants."""
    from engine import exact, sensitivity

    for item in context.plan.stress.leave_out:
        if item.case == "fp64":
            return f"not run: left out: {item.because}", [], ()
    if sum(file.stat().st_size for file in context.graph.parent.glob("*.weights")) > _LARGEST:
        return "not run: too many weights", [], ()
    if any(item.problem or item.rel_l2 is None or not item.rel_l2 <= _OFF for item in found):
        return "not run: the outputs are off by far more", [], ()
    given: list[sensitivity.Sample] = []
    # The evaluator is slow: not at the largest shapes.
    made = [
        case for case in hard.made(context.earlier["stress"]) if case["within"] and case["kind"] != "corner"
    ]
    try:
        graph = exact.Exact(context.graph)
        strict = context.plan.accept.rounding is not None
        for case in made if strict else made[:: max(1, len(made) // _FEW)][:_FEW]:
            path = context.artifact("stress", case["name"])
            wanted, feeds = samples.read(path, "fp64"), samples.read(path, "input")
            if wanted and all(np.isfinite(value).all() for value in wanted.values()):
                given.append(sensitivity.Sample(feeds, samples.read(path, "fp32"), wanted, graph.run(feeds)))
        if not given:
            noise = context.earlier["stress"].facts["noise"]
            return noise if noise != "run" else "not run: no outputs in FP64 are finite", [], ()
        count = np.cumsum([min(_rows(value) for value in sample.exact.values()) for sample in given])
        enough = given[: int(np.searchsorted(count, _ENOUGH)) + 1]
        told = sensitivity.tell(context.graph, enough) if strict else ()
        return "run", sensitivity.errors(given), told
    except StepError as error:
        return f"not run: {error.failure.symptom}", [], ()


def _rows(value: samples.Array) -> int:
    return value.size // value.shape[-1] if value.ndim > 1 and value.size else value.size


def compare_at(
    opened: onnxruntime.InferenceSession, sample: Path, shape: str, nan_is_equal: bool = False, steps: bool = False
) -> tuple[Comparison, ...]:
    """Run one shape; a run that fails is a problem of every output, not a lost comparison."""
    from engine import runtime

    expected = samples.read(sample, "fp32")
    try:
        got = runtime.run(opened, samples.read(sample, "input"))
    except StepError as error:
        return tuple(Comparison(name, shape, error.failure.symptom) for name in expected)
    return compare(expected, got, shape, samples.read(sample, "fp64"), nan_is_equal, steps)
