"""Runs the draft up to the rehearsal and takes the limits from the errors it measures."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from engine import breaches, intake, interpret, workspace
from engine.accept import comparisons
from engine.comparison import Comparison
from engine.errors import Failure, StepError
from engine.initial import draft
from engine.initial.asked import Asked
from engine.initial.draft import Choices
from engine.initial.findings import Findings
from engine.recipe import Accept, Limits
from engine.record import Record
from engine.wording import sizes_text

MARGIN = 4  # limits are this many times the measured error, rounded up to one digit
_METRICS = ("max_abs", "rel_l2")
# A relative error above these is no rounding error, and no limit may be made from it.
_WORST = {"onnx": 1e-3, "engine": 0.1}
_LEAST = {"onnx": 1e-6, "engine": 1e-4}  # written where less than a margin below it was measured
_PLACEHOLDER = {"onnx": {"max_abs": 1e-5}, "engine": {"max_abs": 1e-2}}
_BASE_WHY = {
    "fp16": "FP16: rehearsed on the CPU with rounding after every op, it stays finite and close.",
    "fp32": "FP32: a lower type was not tried.",
    "bf16": "BF16: rehearsed on the CPU with rounding after every op, it stays finite and close.",
}
_TRACED = (
    "The torchscript exporter records one pass: a Python branch or loop stays as it was in that pass, and the"
    " errors below do not prove other inputs. DECIDE whether the model has any."
)
Say = Callable[[str], None]


def choose(asked: Asked, found: Findings, folder: Path, say: Say) -> Choices:
    """Choices with limits; files go under ``folder``. Raises StepError when the model comes out wrong."""
    choices = _first(asked, found)
    record = _run(asked, found, choices, folder, say)
    if record.failure is not None and record.failed_step == "export" and choices.exporter == "dynamo":
        why = f"The dynamo exporter did not take the model: {record.failure.symptom[:300]}. {_TRACED}"
        choices = replace(choices, exporter="torchscript", exporter_why=why)
        say("the dynamo exporter does not take it, trying torchscript")
        record = _run(asked, found, choices, folder, say)
    _require_run(record)
    shape, trouble = _trouble(record, "parity", "onnx")
    if trouble:
        begins = "; ".join(_places(record, folder, shape, say))
        raise _wrong(
            f"in ONNX, still FP32, {trouble}", begins, "the exporter changed what the model computes"
        )
    trouble = _trouble(record, "rehearse", "engine")[1]
    if trouble and asked.base is None and choices.base != "fp32":
        say(f"rehearsed in {choices.base}, {trouble}; trying fp32")
        choices = replace(choices, base="fp32", base_why=_why_not_half(choices.base, trouble, record))
        record = _run(asked, found, choices, folder, say)
        _require_run(record)
        trouble = _trouble(record, "rehearse", "engine")[1]
    if trouble:
        raise _wrong(f"rehearsed in {choices.base}, {trouble}", _begins(record), "try another --base")
    return _limited(choices, record)


def _first(asked: Asked, found: Findings) -> Choices:
    base = asked.base or "fp16"
    why = _BASE_WHY[base] + (" Asked for by --base." if asked.base else "")
    if asked.onnx:
        return Choices("none", "", base, why)
    if not found.export_problem:
        return Choices(base=base, base_why=why, exporter_why="torch.export takes the model.")
    reason = f"torch.export {found.export_problem}. {_TRACED}"
    return Choices("torchscript", reason, base, why)


def _run(asked: Asked, found: Findings, choices: Choices, folder: Path, say: Say) -> Record:
    folder.mkdir(parents=True, exist_ok=True)
    recipe = folder / "recipe.yaml"
    recipe.write_text(draft.text(asked, found, replace(choices, limits=_PLACEHOLDER), folder, "draft"))
    _, plan = intake.make_plan(recipe)
    endless = Limits(max_abs=sys.float_info.max)
    plan = replace(plan, accept=Accept(endless, endless))  # nothing is judged here, only measured
    out = (folder / "port").resolve()

    def observe(event: interpret.Event) -> None:
        if event["kind"] == "step-start":
            through = "" if choices.exporter == "none" else f"with {choices.exporter}, "
            say(f"measuring {through}{choices.base}: {event['step']}")

    with workspace.claim(out):
        record = interpret.run(plan, out, "rehearse", observe)
    if record.interrupted:
        raise KeyboardInterrupt
    return record


def _require_run(record: Record) -> None:
    failure = record.failure
    if failure is None:
        return
    raise StepError(
        Failure(
            f"the recipe would fail in step '{record.failed_step}': {failure.symptom}",
            failure.klass, failure.cause, failure.fix, evidence=failure.evidence, bug=failure.bug,
        )
    )  # fmt: skip


def _compared(record: Record, step: str) -> Sequence[Comparison]:
    result = record.result(step)
    return comparisons(result) if result is not None else ()


def _trouble(record: Record, step: str, key: str) -> tuple[str, str]:
    """The shape at which a step's comparisons cannot be the start of a limit, and why; empty when they can."""
    found = _compared(record, step)
    if not found:
        return "", "nothing was compared"
    for item in found:
        where = f"{item.output} at {item.shape} ({sizes_text(record.plan.shapes[item.shape])})"
        if item.problem:
            return item.shape, f"{where}: {item.problem}"
        if item.rel_l2 is None or item.max_abs is None or not math.isfinite(item.max_abs):
            return item.shape, f"{where} has no finite error"
        if item.rel_l2 > _WORST[key]:
            return item.shape, (
                f"{where} is off by {item.rel_l2:.2g} of its norm,"
                f" more than the {_WORST[key]:g} that rounding can explain"
            )
    return "", ""


def _places(record: Record, folder: Path, shape: str, say: Say) -> list[str]:
    """Where the graph leaves the model, looked for on the sample at ``shape``."""
    if not shape:
        return []
    say(f"looking for the place on the sample {shape}")
    limits = Limits(rel_l2=_WORST["onnx"])
    judged = replace(record, plan=replace(record.plan, accept=Accept(limits, limits)))
    out = (folder / "port").resolve()
    return breaches.places(interpret.locate(judged, out, f"samples/{shape}.npz", lambda event: None))


def _wrong(symptom: str, cause: str, fix: str) -> StepError:
    return StepError(f"no limits were made: {symptom}", klass="numeric", cause=cause, fix=fix)


def _begins(record: Record) -> str:
    """The first place at which the rehearsal saw numbers leave the range of their type; empty for none."""
    result = record.result("rehearse")
    issues = result.issues if result else ()
    return next((issue.symptom for issue in issues if issue.disposition == "open"), "")


def _why_not_half(base: str, trouble: str, record: Record) -> str:
    begins = _begins(record)
    first = f" {begins}." if begins else ""
    return f"FP32: rehearsed in {base}, {trouble}.{first} DECIDE: {base} with overrides may do."


def _limited(choices: Choices, record: Record) -> Choices:
    limits: dict[str, dict[str, float]] = {}
    why: dict[str, str] = {}
    plan = record.plan
    shapes = "; ".join(f"{name} {sizes_text(plan.shapes[name])}".strip() for name in plan.parity_shapes)
    started = choices.exporter == "none"
    first = "the rewritten graph against the file" if started else "ONNX Runtime in FP32 against PyTorch"
    against = "the file" if started else "PyTorch in FP32"
    for key, step, told in (
        ("onnx", "parity", first[0].upper() + first[1:]),
        ("engine", "rehearse", f"{choices.base} rehearsed on the CPU against {against}"),
    ):
        found = _compared(record, step)
        worst = {metric: max(getattr(item, metric) for item in found) for metric in _METRICS}
        limits[key] = {metric: limit(value, _LEAST[key]) for metric, value in worst.items()}
        figures = ", ".join(f"{metric} {value:.2g}" for metric, value in worst.items())
        why[key] = (
            f"{told}: {figures} at the worst of these shapes: {shapes}. The limits are {MARGIN} times that,"
            f" rounded up, and at least {_LEAST[key]:g}."
        )
    return replace(choices, limits=limits, limits_why=why)


def limit(value: float, least: float) -> float:
    """``value`` times the margin, rounded up to one significant digit, and at least ``least``."""
    wanted = max(value * MARGIN, least)
    exponent = math.floor(math.log10(wanted))
    digits = math.ceil(wanted / 10**exponent - 1e-9)
    return float(f"{digits}e{exponent}")
