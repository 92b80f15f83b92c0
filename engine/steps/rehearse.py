"""Run the lowered graph on the CPU with every low-precision tensor really rounded."""

from __future__ import annotations

from typing import Any

from engine import samples
from engine.compare import compare
from engine.comparison import Comparison
from engine.errors import StepError
from engine.plain import to_plain
from engine.steps.context import Context, Done
from engine.values import Issue


def run(context: Context) -> Done:
    """Compare the shadow of the lowered graph with PyTorch FP32 at every parity shape.

    Where values leave the range of their type, one instrumented run names the nodes where that begins.
    """
    from engine.graph import files
    from engine.precision import rehearsal, shadow

    shapes = context.plan.parity_shapes
    lowered = files.load(context.graph)
    path = context.folder("onnx") / "rehearse.onnx"
    files.save(shadow.build_shadow(lowered), path)
    found: list[Comparison] = []
    half: list[Comparison] = []
    for index, shape in enumerate(shapes):
        context.progress(f"shape {shape}", index, len(shapes) + 1)
        expected = samples.read(context.samples(shape), "fp32")
        inputs = samples.read(context.samples(shape), "input")
        try:
            found += compare(expected, rehearsal.run_shadow(path, inputs), shape)
        except StepError as error:
            found += [Comparison(name, shape, error.failure.symptom) for name in expected]
        pytorch = samples.read(context.samples(shape), "half")
        if pytorch:
            half += compare(expected, pytorch, shape)
    broken = [item.shape for item in found if item.problem]
    context.progress("looking for overflow", len(shapes), len(shapes) + 1)
    facts, issues = _probe(context, lowered, broken[0] if broken else _probe_shape(shapes))
    return Done(
        facts=facts | {"mode": "rounding after every op"},
        measurements={"comparisons": to_plain(found), "half": to_plain(half)},
        artifacts={"shadow": path},
        issues=tuple(issues),
    )


def _hint(item: Any) -> str:
    """The layer's module where it has one: a single node is seldom the whole cure."""
    if item.module:
        return f'try: {{module: "{item.module}", type: fp32, because: {item.kind}}}'
    if item.op == "Cast":
        return f"a wider type for what feeds {item.value}"
    return f"try: {{node: {item.node}, type: fp32, because: {item.kind}}}, and the nodes around it"


def _probe_shape(shapes: tuple[str, ...]) -> str:
    return "odd" if "odd" in shapes else shapes[0]


def _probe(context: Context, lowered: Any, shape: str) -> tuple[dict[str, Any], list[Issue]]:
    """Ranges at one shape; an issue for every node where infinities or NaNs begin."""
    from engine.precision import rehearsal

    path = context.folder("onnx") / "probe.onnx"
    try:
        probe = rehearsal.probe(lowered, path, samples.read(context.samples(shape), "input"))
    finally:
        path.unlink(missing_ok=True)
    facts = {
        "probed_shape": shape,
        "tensors_watched": len(probe.seen),
        "culprits": [item.node for item in probe.culprits],
    }
    issues = [
        Issue(
            "rehearse", "numeric",
            f"{item.kind} begins at {item.node} ({item.op})" + (f" in {item.module}" if item.module else ""),
            cause=f"its values reach {item.low:.3g} .. {item.high:.3g}",
            fix=_hint(item),
            evidence=f"tensor {item.value} at shape {shape}; {len(probe.affected)} nodes affected",
            disposition="open",
        )
        for item in probe.culprits
    ]  # fmt: skip
    return facts, issues
