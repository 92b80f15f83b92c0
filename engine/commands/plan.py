"""``portwright plan``: what a run would do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click

from engine import accept, intake, origin, wording
from engine.errors import Exit
from engine.plain import to_plain
from engine.plan import Plan
from engine.recipe import Accept, Limits, Override
from engine.steps import STEPS, does


def _floats(plan: Plan) -> str:
    return f" beside {plan.precision.floats}" if plan.precision.base != plan.precision.floats else ""


def _calibration(plan: Plan) -> Iterator[tuple[str, str]]:
    found = plan.precision.calibration
    if found is None:
        return
    if found.cache:
        yield "calibration", f"scales of {Path(found.cache).name}"
        return
    own = ", ".join(found.inputs) or "the recipe's sample values"
    yield "calibration", f"{found.method} over {found.batches} batches of {own}"


def _choices(plan: Plan) -> Iterator[dict[str, str]]:
    """One row a choice that decides what a run does and accepts; what is left out or waived is among them."""
    told: list[tuple[str, str]] = [
        ("model", f"{origin.describe(plan)}, compared with {origin.reference(plan.model)}"),
        ("export", f"{plan.exporter}, opset {plan.opset or 'as the file has'}, simplify {plan.simplify}"),
        *((f"rule {item.rule}", "any matches" if item.matches is None else f"{item.matches} matches")
          for item in plan.rewrites),
        ("precision", f"base {plan.precision.base}{_floats(plan)}, inputs and outputs {plan.precision.io}"),
        *_calibration(plan),
        *((f"override {index}", f"{_selected(item)} {item.type}")
          for index, item in enumerate(plan.precision.overrides)),
        *((f"stress adds {item.name}",
           ", ".join(item.inputs) + (f" at {wording.sizes_text(item.sizes)}" if item.sizes else ""))
          for item in plan.stress.add),
        *((f"stress leaves out {item.case}", item.because) for item in plan.stress.leave_out),
        ("build", f"toolchain {plan.build.toolchain}, target {plan.build.target or 'none named'}"),
        ("bench", f"{plan.bench.rounds} rounds, {plan.bench.warmup} to warm up"),
        ("accept.onnx", _limits(plan.accept.onnx)),
        ("accept.engine", _limits(plan.accept.engine)),
        *_more_limits(plan.accept),
        *((f"waived {item.claim}", f"until {item.expires} by {item.owner}: {item.because}") for item in plan.waivers),
    ]  # fmt: skip
    for choice, value in told:
        yield {"choice": choice, "value": " ".join(value.split())}


def _selected(item: Override) -> str:
    kind = next(kind for kind in ("module", "op", "node") if getattr(item, kind))
    return f"{kind} {getattr(item, kind)}" + (f" [{item.nth}]" if item.nth is not None else "")


def _limits(limits: Limits) -> str:
    named = [field.name for field in fields(limits) if getattr(limits, field.name) is not None]
    return ", ".join(f"{name} {accept.limit_text(limits, name)}" for name in named)


def _more_limits(limits: Accept) -> Iterator[tuple[str, str]]:
    for key in ("attention", "layers"):
        if limits.fusion and (bound := getattr(limits.fusion, key)):
            yield f"accept.fusion.{key}", bound
    for key in ("engine_mib", "rounding"):
        if (most := getattr(limits, key)) is not None:
            yield f"accept.{key}", f"<= {most:g}"
    if limits.rehearsal:
        yield "accept.rehearsal", limits.rehearsal


@click.command("plan")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the whole plan as JSON.")
def command(recipe: Path, as_json: bool) -> Exit:
    """Print the steps, shapes and choices that RECIPE resolves to. Runs nothing."""
    _, plan = intake.make_plan(recipe)
    if as_json:
        click.echo(json.dumps(to_plain(plan) | {"digest": plan.digest}, indent=1))
        return Exit.ACCEPTED
    click.echo(f"{plan.name}  plan {plan.digest[:12]}")
    shapes = [{"shape": name, "sizes": wording.sizes_text(sizes)} for name, sizes in plan.shapes.items()]
    click.echo("\n" + wording.table(list(_choices(plan)), ["choice", "value"]))
    click.echo("\n" + wording.table(shapes, ["shape", "sizes"]) + "\n")
    rows = [
        {"step": step.name, "does": does(step, plan.model.source), "proves": step.proves} for step in STEPS
    ]
    click.echo(wording.table(rows, ["step", "does", "proves"]))
    return Exit.ACCEPTED
