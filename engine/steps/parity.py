"""ONNX Runtime against PyTorch, both FP32, on the graph that goes on to lowering."""

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
_LARGEST = 2**29  # bytes of weight files; each constant takes two runs
_ENOUGH = 2000  # output elements from which constants are told


def run(context: Context) -> Done:
    """Compare every output at every parity shape and hard input; limits are applied later, by the verdict."""
    from engine import runtime

    shapes, cases = context.plan.parity_shapes, context.earlier["stress"].artifacts
    found: list[Comparison] = []
    opened = runtime.session(context.graph)
    for index, shape in enumerate(shapes):
        context.progress(f"shape {shape}", index, len(shapes) + len(cases))
        found += compare_at(opened, context.samples(shape), shape)
    stressed: list[Comparison] = []
    for index, case in enumerate(cases):
        context.progress(case, len(shapes) + index, len(shapes) + len(cases))
        stressed += compare_at(opened, context.artifact("stress", case), case, nan_is_equal=True)
    context.progress("constants", len(shapes) + len(cases), len(shapes) + len(cases))
    looked, told = _constants(context, found)
    return Done(
        facts={
            "runtime": "onnxruntime",
            "providers": list(opened.get_providers()),
            "optimised": False,
            **looked,
        },
        measurements={
            "comparisons": to_plain(found),
            "stress": to_plain(stressed),
            "constants": to_plain(told),
        },
    )


def _constants(context: Context, found: Sequence[Comparison]) -> tuple[dict[str, Any], Sequence[Any]]:
    """Estimates of how far constants are off; facts ``constants`` (run or why not) and the cases it is told from."""
    from engine import sensitivity

    if sum(file.stat().st_size for file in context.graph.parent.glob("*.weights")) > _LARGEST:
        return {"constants": "not run: too many weights to try each"}, ()
    if any(item.problem or item.rel_l2 is None or not item.rel_l2 <= _OFF for item in found):
        return {"constants": "not run: the outputs are off by more than a constant would tell"}, ()
    chosen: dict[str, sensitivity.Sample] = {}
    elements = 0
    made = [case for case in hard.made(context.earlier["stress"]) if case["within"]]
    for case in sorted(made, key=lambda case: bool(case["kind"] == "corner")):  # the largest shapes last
        if elements >= _ENOUGH:
            break
        path = context.artifact("stress", case["name"])
        exact = samples.read(path, "fp64")
        if exact and all(np.isfinite(value).all() for value in exact.values()):
            sample = sensitivity.Sample(samples.read(path, "input"), samples.read(path, "fp32"), exact)
            chosen[case["name"]] = sample
            elements += sum(value.size for value in exact.values() if value.dtype.kind == "f")
    if not chosen:
        return {"constants": "not run: there is no reference in FP64"}, ()
    try:
        told = sensitivity.tell(context.graph, tuple(chosen.values()))
    except StepError as error:
        return {"constants": f"not run: {error.failure.symptom}"}, ()
    return {"constants": "run", "constants_from": list(chosen)}, told


def compare_at(
    opened: onnxruntime.InferenceSession, sample: Path, shape: str, nan_is_equal: bool = False
) -> tuple[Comparison, ...]:
    """Run one shape; a run that fails is a problem of every output, not a lost comparison."""
    from engine import runtime

    expected = samples.read(sample, "fp32")
    try:
        got = runtime.run(opened, samples.read(sample, "input"))
    except StepError as error:
        return tuple(Comparison(name, shape, error.failure.symptom) for name in expected)
    return compare(expected, got, shape, samples.read(sample, "fp64"), nan_is_equal)
