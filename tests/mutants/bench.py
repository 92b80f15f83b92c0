"""One model on the bench: run up to parity by the product, limits as `portwright init` takes them, faults judged."""

from __future__ import annotations

import os
import re
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from engine import accept, breaches, digests, divergence, interpret, record, route, runtime, samples
from engine.errors import StepError
from engine.graph import files
from engine.initial import measure
from engine.plan import Plan
from engine.recipe import Accept, Limits
from engine.steps import parity
from engine.steps.context import Context
from engine.stress import constants, rounding
from engine.stress import judge as hard
from engine.values import Artifact, StepResult
from tests.mutants import faults, models
from tests.mutants.faults import Fault, Subject

SAME = "the same numbers"
LOOSE = (6e4, 0.9)  # the widest limits that a recipe may have, until the errors are measured
EQUAL = 1.2e-7  # of the output's largest value: an outcome this close is the same number in FP32


@dataclass(frozen=True)
class Outcome:
    """``by`` are the broken claims, ``usual`` tells whether one of them is about the ordinary shapes."""

    model: str
    fault: Fault
    index: int
    state: str  # caught, survived, same (not one number changed), load
    by: tuple[str, ...] = ()
    where: str = ""
    usual: bool = False
    sample: str = ""
    constant: str = ""  # named by the claim about constants, when no other claim fails
    account: str = ""  # what the export step's checks say, when the comparison lets it pass

    @property
    def counts(self) -> bool:
        return self.state in ("caught", "survived")

    @property
    def only_hard(self) -> bool:
        return self.state == "caught" and not self.usual and not self.constant


@dataclass
class Bench:
    """A model after its run: the plan with its limits, the results, and the folder."""

    name: str
    plan: Plan
    out: Path
    results: dict[str, StepResult]
    sizes: Mapping[str, Any]

    @property
    def graph(self) -> Path:
        return Context(self.plan, self.out, self.results, silent).graph


def silent(text: str, done: int, total: int) -> None:
    pass


def run(
    model: models.Model, folder: Path, opset: int = 18, exporter: str = "", plan_limits: Limits | None = None
) -> Bench:
    """The product's own route up to parity; raises SystemExit where it does not end well."""
    path = models.write(model, folder, opset, exporter, LOOSE)
    outcome = route.run(path, None, "parity", (), lambda event: None)
    done = outcome.record
    if done.failure is not None:
        raise SystemExit(f"{model.name}: {outcome.message or done.failure.symptom}")
    results = {item.step: item for item in done.results}
    bench = Bench(model.name, done.plan, (folder / "port").resolve(), results, {})
    return _limited(bench, plan_limits or limits(bench))


def again(bench: Bench) -> None:
    """The parity step once more, on the graph as it is."""
    results = {name: item for name, item in bench.results.items() if name != "parity"}
    done = parity.run(Context(bench.plan, bench.out, results, silent))
    bench.results["parity"] = StepResult("parity", "ok", facts=done.facts, measurements=done.measurements)


def reuse(model: models.Model, folder: Path) -> Bench:
    """A bench from the run that an earlier one left in ``folder``."""
    done = record.read(folder / "port")
    results = {item.step: item for item in done.results}
    bench = Bench(model.name, done.plan, (folder / "port").resolve(), results, {})
    again(bench)
    return _limited(bench, limits(bench))


def stand(model: models.Model, folder: Path) -> Bench:
    """The bench for a model; a run that lies in ``folder`` is taken as it is."""
    place = folder / model.name
    if (place / "port" / "record.json").exists():
        print(f"{model.name}: the run in {place} is taken as it is", flush=True)
        made = reuse(model, place)
    else:
        made = run(model, place)
    chosen = made.plan.accept.onnx
    print(f"{model.name}: {model.about}; max_abs {chosen.max_abs:g}, rel_l2 {chosen.rel_l2:g}", flush=True)
    return made


def limits(bench: Bench) -> Limits:
    """What `portwright init` would write: the margin on the worst error of the healthy graph, rounded up."""
    found = accept.comparisons(bench.results["parity"])
    worst = {key: max(getattr(item, key) for item in found) for key in ("max_abs", "rel_l2")}
    return Limits(**{key: measure.limit(value, measure._LEAST["onnx"]) for key, value in worst.items()})


def _limited(bench: Bench, chosen: Limits) -> Bench:
    strict = Accept(chosen, bench.plan.accept.engine, rounding=rounding.MOST)
    bench.plan = replace(bench.plan, accept=strict)
    bench.sizes = _whole(bench)
    return bench


def complaints(bench: Bench) -> list[str]:
    """What the verdict holds against the graph as it is, open issues of parity among it."""
    stress, result = bench.results["stress"], bench.results["parity"]
    today = record.today()
    found = [f"{item.symptom}: {item.cause}" for item in breaches.issues(result, stress, bench.plan, today)]
    found += [f"{item.symptom}: {item.cause}" for item in hard.beyond(hard.judge(bench.plan, stress, result))]
    return found


def _whole(bench: Bench) -> Mapping[str, Any]:
    """What those of the graph's small int64 tensors hold at the export shape that hold other numbers elsewhere."""
    model = files.load(bench.graph)
    names = [value.name for node in model.graph for value in node.outputs
             if value.name and value.dtype == ir.DataType.INT64]  # fmt: skip
    one, other = (
        divergence.tap(bench.graph, samples.read(bench.out / "samples" / f"{shape}.npz", "input"), names)
        for shape in ("export", "max")
    )
    return {name: value for name, value in one.items()
            if value.dtype == np.int64 and value.size <= 64 and not np.array_equal(value, other[name])}  # fmt: skip


def subject(bench: Bench, seed: int) -> Subject:
    rng = np.random.default_rng([seed, zlib.crc32(bench.name.encode())])
    return Subject(files.load(bench.graph), bench.sizes, rng)


def choose(bench: Bench, seed: int) -> Iterator[tuple[str, int]]:
    """Kinds in turn, each time another place, until every place of every kind was named."""
    rng = np.random.default_rng([seed, zlib.crc32(bench.name.encode()), 1])
    order: dict[str, list[int]] = {}
    for kind, places in faults.KINDS.items():
        count = sum(1 for _ in places(subject(bench, seed)))
        order[kind] = [int(index) for index in rng.permutation(count)]
    while any(order.values()):
        for kind, left in order.items():
            if left:
                yield kind, left.pop()


def plant(bench: Bench, seed: int, kind: str, index: int) -> tuple[Fault, Path]:
    """The graph with one fault in it, beside the healthy one."""
    of = subject(bench, seed)
    fault = list(faults.KINDS[kind](of))[index]
    fault.plant()
    path = bench.graph.with_name("planted.onnx")
    files.save(of.model, path)
    return fault, path


@contextmanager
def hushed() -> Iterator[None]:
    """Keep what ONNX Runtime writes about graphs that fail, as many do here, off the terminal."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def judge(bench: Bench, fault: Fault, index: int, path: Path) -> Outcome:
    """The product's own parity step and verdict on the graph with the fault."""
    stress = bench.results["stress"]
    results = planted(bench, path)
    try:
        with hushed():
            runtime.session(path)
    except StepError as error:
        return Outcome(bench.name, fault, index, "load", (error.failure.symptom,))
    context = Context(bench.plan, bench.out, results, silent)
    with hushed():
        done = parity.run(context)
    result = StepResult("parity", "ok", facts=done.facts, measurements=done.measurements)
    today = record.today()
    broken = breaches.issues(result, stress, bench.plan, today)
    if not broken:
        return Outcome(bench.name, fault, index, "survived")
    claims = accept.judge_limits(
        "accept.onnx", bench.plan.accept.onnx, accept.comparisons(result), "", bench.plan
    )
    constant = constants.claim(result, "")
    alone = constant.status == "fail" and len(broken) == 1

    usual = any(claim.status == "fail" for claim in claims)
    return Outcome(
        bench.name, fault, index, "caught", tuple(item.symptom for item in broken), broken[0].cause, usual,
        breaches.failing(result, stress, bench.plan), constant.where if alone else "",
    )  # fmt: skip


def planted(bench: Bench, path: Path) -> dict[str, StepResult]:
    """The results with the newest graph replaced by the one at ``path``."""
    results = dict(bench.results)
    results.pop("parity", None)
    step = next(name for name in reversed(list(results)) if "graph" in results[name].artifacts)
    artifact = Artifact(
        path.relative_to(bench.out).as_posix(), digests.digest_file(path), path.stat().st_size
    )
    results[step] = replace(results[step], artifacts={**results[step].artifacts, "graph": artifact})
    return results


def explain(bench: Bench, path: Path) -> tuple[str, str]:
    """Why a fault survived, found by running both graphs on 20 random inputs at 3 sizes; "" for no reason."""
    healthy, wrong = runtime.session(bench.graph), runtime.session(path)
    largest, relative, scaled = 0.0, 0.0, 0.0
    for seed in range(20):
        plan = replace(bench.plan, seed=1000 + seed)
        for shape in ("min", "opt", "max"):
            feeds = samples.make(plan, shape)
            one, two = runtime.run(healthy, feeds), runtime.run(wrong, feeds)
            for name, value in one.items():
                if value.shape != two[name].shape:
                    return "", f"shape of {name} at {shape}"
                first, second = value.astype(np.float64), two[name].astype(np.float64)
                difference = np.abs(first - second)
                if not np.isfinite(difference).all():
                    return "", f"{name} is not finite at {shape}"
                largest = max(largest, float(difference.max()))
                scaled = max(scaled, float(difference.max() / max(np.abs(first).max(), 1e-30)))
                norm = float(np.linalg.norm(first))
                relative = max(relative, float(np.linalg.norm(difference)) / norm if norm else 0.0)
    limits = bench.plan.accept.onnx
    figures = f"largest change {largest:.2g} of {limits.max_abs:g} allowed, rel_l2 {relative:.2g} of {limits.rel_l2:g}"
    if largest == 0.0:
        return SAME, figures
    if scaled <= EQUAL:
        return "numerically equivalent", figures
    assert limits.max_abs is not None
    assert limits.rel_l2 is not None
    if largest <= limits.max_abs and relative <= limits.rel_l2:
        return "below the threshold", figures
    return "", figures


class Reference:
    """PyTorch's own tensors for a bench, its traced program made once."""

    def __init__(self, bench: Bench) -> None:
        from engine import torch_model
        from engine.sources import torch_sources
        from engine.steps import locate

        self.bench, plan = bench, bench.plan
        self.port = torch_model.Port(torch_sources.load(plan), tuple(plan.inputs), plan.outputs).eval()
        context = Context(plan, bench.out, bench.results, silent)
        dynamo = bench.results["export"].facts["exporter"] == "dynamo"
        self.program = locate._program(context, self.port) if dynamo else None

    def named(self, outcome: Outcome, path: Path) -> str:
        """The node at which the product says that the planted graph leaves PyTorch; "" for none."""
        from engine import torch_values
        from engine.graph import provenance

        if outcome.constant:
            value = files.load(path).graph.initializers.get(outcome.constant)
            return next((use.node.name or "" for use in value.uses()), "") if value is not None else ""
        feeds = samples.read(self.bench.out / outcome.sample, "input")
        if self.program is not None:
            tensors, _ = torch_values.of_program(self.program, feeds, self.port.inputs)
        else:
            results, tensors = torch_values.of_modules(self.port, feeds), {}
            last = {}
            for node in files.load(path).graph:
                module = node.metadata_props.get(provenance.MODULE, "")
                if module in results and node.outputs[0].name:
                    last[module] = node.outputs[0].name
            tensors = {name: results[module] for module, name in last.items()}
        try:
            with hushed():
                tapped = divergence.tap(path, feeds, tensors)
        except StepError as error:  # the report then has the runtime's own words, and those name the node
            told = re.search(r"Name:'([^']+)'", error.failure.symptom)
            return told[1] if told else ""
        found = divergence.first(path, tensors, tapped)
        return found.node if found is not None else ""


def distance(path: Path, one: str, others: tuple[str, ...]) -> int | None:
    """Steps along edges between a node and the nearest of others; None when they are not joined."""
    model = files.load(path)
    nodes = {node.name: node for node in model.graph}
    level, seen, steps = {one}, {one}, 0
    while level:
        if level & set(others):
            return steps
        step: set[str] = set()
        for name in level:
            node = nodes.get(name)
            if node is None:
                continue
            step |= {value.producer().name for value in node.inputs if value is not None and value.producer()}
            step |= {use.node.name for value in node.outputs for use in value.uses()}
        level = step - seen
        seen |= step
        steps += 1
    return None


__all__ = ["Bench", "Outcome", "Reference", "choose", "complaints", "interpret", "judge", "plant", "run"]
