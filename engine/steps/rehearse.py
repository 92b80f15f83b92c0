"""Run the lowered graph on the CPU with every low-precision tensor really rounded."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine import samples
from engine.compare import compare
from engine.comparison import Comparison
from engine.errors import StepError
from engine.plain import to_plain
from engine.steps.context import Context, Done
from engine.values import Issue

if TYPE_CHECKING:
    from engine.precision.rehearsal import Culprit, Probe
    from engine.precision.sums import Sum

MODE = "rounding after every op"
_MOST_MODULES = 10


def run(context: Context) -> Done:
    """Compare the shadow of the lowered graph with the reference in FP32 at every parity shape.

    Instrumented runs then name the nodes where values leave the range of their type, at every shape, the modules that
    add most error, at one, and how the sums would bear FP16; :mod:`engine.half_sums` judges these.
    """
    from engine.graph import files
    from engine.precision import blocked, rehearsal

    shapes = context.plan.parity_shapes
    lowered = files.load(context.graph)
    path = context.folder("onnx") / "rehearse.onnx"
    blocked.write(lowered, path)
    opened = rehearsal.open_shadow(path)
    found: list[Comparison] = []
    half: list[Comparison] = []
    steps = 2 * len(shapes) + 1
    for index, shape in enumerate(shapes):
        context.progress(f"shape {shape}", index, steps)
        sample = context.samples(shape)
        expected, exact = samples.read(sample, "fp32"), samples.read(sample, "fp64")
        try:
            found += compare(expected, rehearsal.run_open(opened, samples.read(sample, "input")), shape, exact)
        except StepError as error:
            found += [Comparison(name, shape, error.failure.symptom) for name in expected]
        pytorch = samples.read(sample, "half")
        if pytorch:
            half += compare(expected, pytorch, shape)
    probes: dict[str, Probe] = {}
    missed: dict[str, str] = {}
    for index, shape in enumerate(shapes, start=len(shapes)):
        context.progress(f"ranges at {shape}", index, steps)
        try:
            probes[shape] = _probe(context, lowered, shape)
        except StepError as error:
            missed[shape] = error.failure.symptom
    context.progress("error by module", steps - 1, steps)
    ranges = _merged(probes)
    return Done(
        facts={
            "mode": MODE,
            "probed": {shape: len(probe.seen) for shape, probe in probes.items()} | missed,
            "ranges": [{"node": item.node, "op": item.op, "module": item.module, "kind": item.kind, "shapes": at}
                       for item, at, _ in ranges],
        },
        measurements={
            "comparisons": to_plain(found), "half": to_plain(half), "growth": _growth(context, lowered, shapes),
            "sums": [_sum(item, shape) for shape, probe in probes.items() for item in probe.sums],
        },
        artifacts={"shadow": path},
        issues=tuple(_issues(ranges)),
    )  # fmt: skip


def _probe(context: Context, lowered: Any, shape: str) -> Probe:
    from engine.precision import rehearsal

    path = context.folder("onnx") / "probe.onnx"
    try:
        return rehearsal.probe(lowered, path, samples.read(context.samples(shape), "input"))
    finally:
        path.unlink(missing_ok=True)


def _growth(context: Context, lowered: Any, shapes: Sequence[str]) -> dict[str, Any]:
    """The modules that add most error at one shape, or ``why`` that was not run."""
    from engine.graph import files
    from engine.precision import growth

    shape = "odd" if "odd" in shapes else shapes[0]
    path = context.folder("onnx") / "growth.onnx"
    wrote = [step for step, item in context.earlier.items() if step != "lower" and "graph" in item.artifacts]
    original = files.load(context.artifact(wrote[-1], "graph"))
    try:
        feeds = samples.read(context.samples(shape), "input")
        found = growth.measure(lowered, original, path, feeds, _MOST_MODULES)
    except StepError as error:
        return {"shape": shape, "why": f"not run: {error.failure.symptom}", "modules": []}
    modules = [
        {"module": item.module, "value": item.value,
         "before": _finite(item.before), "after": _finite(item.after)}
        for item in found
    ]  # fmt: skip
    return {"shape": shape, "why": "", "modules": modules}


def _finite(error: float) -> float | None:
    return error if math.isfinite(error) else None  # JSON has no infinity


def _sum(item: Sum, shape: str) -> dict[str, Any]:
    found = to_plain(item) | {"overflows": item.overflows, "error": item.error, "shape": shape}
    largest = sys.float_info.max  # JSON has no infinity
    return {key: min(value, largest) if isinstance(value, float) else value for key, value in found.items()}


def _merged(probes: Mapping[str, Probe]) -> list[tuple[Culprit, list[str], int]]:
    """Each culprit once, with its shapes and the most nodes that are affected at one of them."""
    found: dict[tuple[str, str], tuple[Culprit, list[str], int]] = {}
    for shape, probe in probes.items():
        for item in probe.culprits:
            first, at, affected = found.get((item.value, item.kind), (item, [], 0))
            found[item.value, item.kind] = first, [*at, shape], max(affected, len(probe.affected))
    return list(found.values())


def _issues(ranges: Iterable[tuple[Culprit, list[str], int]]) -> list[Issue]:
    return [
        Issue(
            "rehearse", "numeric",
            f"{item.kind} begins at {item.node} ({item.op})" + (f" in {item.module}" if item.module else ""),
            cause=f"its values reach {item.low:.3g} .. {item.high:.3g}",
            fix=_hint(item),
            evidence=f"tensor {item.value} at shape {', '.join(at)}; {affected} nodes affected",
            disposition="open",
        )
        for item, at, affected in ranges
    ]  # fmt: skip


def _hint(item: Culprit) -> str:
    """The layer's module where it has one: a single node is seldom the whole cure."""
    if item.module:
        return f'try: {{module: "{item.module}", type: fp32, because: {item.kind}}}'
    if item.op == "Cast":
        return f"a wider type for what feeds {item.value}"
    return f"try: {{node: {item.node}, type: fp32, because: {item.kind}}}, and the nodes around it"
