"""Healthy exports: every model at every opset by every exporter that takes it, none of which may raise an alarm."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine import host
from engine.steps.context import Context
from tests.mutants import bench, models
from tests.mutants.bench import Bench

OPSETS = (17, 18, 19, 20, 21)
WANTED = 50


@dataclass(frozen=True)
class Export:
    """``alarms`` is what the verdict holds against it, ``why`` the reason that there is no such export."""

    name: str
    alarms: tuple[str, ...] = ()
    why: str = ""


def main(chosen: Sequence[models.Model], folder: Path, wanted: int = WANTED) -> int:
    """Limits from the first export of a model are used for all of its others. 0 when none raises an alarm."""
    found: list[Export] = []
    for model in chosen:
        made = bench.stand(model, folder)
        for export in exports(model, made):
            found.append(export)
            text = (
                f"no such export: {export.why[:150]}"
                if export.why
                else "; ".join(export.alarms) or "no alarm"
            )
            print(f"  {export.name}: {text}", flush=True)
    there = [item for item in found if not item.why]
    alarms = [item for item in there if item.alarms]
    print(f"false alarms / healthy exports = {len(alarms)} / {len(there)}")
    return 0 if not alarms and len(there) >= wanted else 1


def exports(
    model: models.Model, made: Bench, opsets: Sequence[int] = OPSETS, exporters: Sequence[str] = ()
) -> Iterator[Export]:
    """The steps of the product from export to parity on the samples and references of ``made``."""
    from engine import torch_model
    from engine.sources import torch_sources

    port = torch_model.Port(torch_sources.load(made.plan), tuple(made.plan.inputs), made.plan.outputs).eval()
    for exporter in exporters or model.exporters:
        for opset in opsets:
            name = f"{model.name}, {exporter}, opset {opset}"
            out = made.out.parent / f"{exporter}-{opset}"
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(made.out / "samples", out / "samples")
            memo = {"port": port, "call": lambda inputs, shape: torch_model.call(port, inputs, shape)}
            plan = replace(made.plan, exporter=exporter, opset=opset)
            context = Context(plan, out, {"source": made.results["source"]}, bench.silent, memo)
            yield _one(name, context)
            shutil.rmtree(out)


def _one(name: str, context: Context) -> Export:
    for step in ("export", "check", "stress", "simplify", "parity"):
        result, failure = host.run_step(step, context)
        if failure is not None and step == "export":
            return Export(name, why=failure.symptom)
        if result is None:
            return Export(name, (f"{step} failed: {failure.symptom if failure else ''}",))
        context.earlier[step] = result
    return Export(name, tuple(bench.complaints(Bench(name, context.plan, context.out, context.earlier, {}))))
