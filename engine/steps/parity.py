"""ONNX Runtime against PyTorch, both FP32, on the graph that goes on to lowering."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine import samples
from engine.compare import compare
from engine.comparison import Comparison
from engine.errors import StepError
from engine.plain import to_plain
from engine.steps.context import Context, Done

if TYPE_CHECKING:
    import onnxruntime


def run(context: Context) -> Done:
    """Compare every output at every parity shape and hard input; limits are applied later, by the verdict."""
    from engine import runtime

    shapes, hard = context.plan.parity_shapes, context.earlier["stress"].artifacts
    found: list[Comparison] = []
    opened = runtime.session(context.graph)
    for index, shape in enumerate(shapes):
        context.progress(f"shape {shape}", index, len(shapes) + len(hard))
        found += compare_at(opened, context.samples(shape), shape)
    stressed: list[Comparison] = []
    for index, case in enumerate(hard):
        context.progress(case, len(shapes) + index, len(shapes) + len(hard))
        stressed += compare_at(opened, context.artifact("stress", case), case, nan_is_equal=True)
    return Done(
        facts={"runtime": "onnxruntime", "providers": list(opened.get_providers()), "optimised": False},
        measurements={"comparisons": to_plain(found), "stress": to_plain(stressed)},
    )


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
