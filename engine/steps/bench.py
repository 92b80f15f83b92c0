"""Latency of PyTorch eager and ONNX Runtime on this machine's CPU, interleaved on the same inputs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from engine import samples
from engine.steps.context import Context, Done


def run(context: Context) -> Done:
    """Time both runtimes round by round at the ``opt`` shape, so that both see the same machine."""
    plan = context.plan
    if plan.bench.rounds == 0:
        return Done(skipped="not asked for: bench.rounds is 0")
    shape = "opt" if "opt" in plan.shapes else "export"
    context.progress("loading both runtimes", 0, plan.bench.rounds)
    contestants = {"onnxruntime": _onnxruntime(context, shape)}
    if plan.model.source != "onnx":
        contestants = {"pytorch-eager": _eager(context, shape)} | contestants
    for _ in range(plan.bench.warmup):
        for call in contestants.values():
            call()
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for index in range(plan.bench.rounds):
        context.progress("timing", index, plan.bench.rounds)
        for name, call in contestants.items():
            start = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - start) * 1e3)
    figures = {name: _figures(series) for name, series in times.items()}
    return Done(
        facts={"device": "cpu", "shape": shape, "sizes": dict(plan.shapes[shape]), "type": "fp32"},
        measurements={
            "milliseconds": figures,
            "rounds": plan.bench.rounds,
            "threads": _threads(),
        },
    )


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def _eager(context: Context, shape: str) -> Callable[[], Any]:
    import torch

    from engine import torch_model
    from engine.sources import torch_sources

    plan = context.plan
    port = torch_model.Port(torch_sources.load(plan), tuple(plan.inputs), plan.outputs).eval()
    feeds = samples.read(context.samples(shape), "input")
    tensors = [torch.from_numpy(feeds[name]) for name in plan.inputs]

    def call() -> Any:
        with torch.inference_mode():
            return port(*tensors)

    return call


def _onnxruntime(context: Context, shape: str) -> Callable[[], Any]:
    from engine import runtime

    path = context.out / _fp32_graph(context)
    opened = runtime.session(path, optimise=True)
    feeds = samples.read(context.samples(shape), "input")
    return lambda: runtime.run(opened, feeds)


def _fp32_graph(context: Context) -> str:
    """The newest graph before lowering."""
    for step in ("rewrite", "simplify", "export"):
        result = context.earlier.get(step)
        if result and "graph" in result.artifacts:
            return result.artifacts["graph"].path
    raise LookupError("no FP32 graph")


def _figures(series: list[float]) -> dict[str, float]:
    p50, p99 = (float(np.percentile(series, q)) for q in (50, 99))
    return {"p50": round(p50, 3), "p99": round(p99, 3), "min": round(min(series), 3)}
