"""What the hard inputs cost: parity on MiniLM-L6 with them against the plain parity at four shapes.

    python benchmarks/parity.py [--rounds 3]

Both are run alternately in one process, on the shipped recipe's own shapes. Plain: PyTorch's reference outputs and
ONNX Runtime's at the four shapes, compared. With hard inputs: the same, and the steps' own work on every hard
input: making it, PyTorch in FP32 and in FP64, ONNX Runtime, and the estimates of the constants. Imports, loading the
model and the export are apart. The ratio is printed last.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine import host, intake, samples, torch_model
from engine.sources import torch_sources
from engine.steps.context import Context
from engine.values import StepResult

RECIPE = Path(__file__).resolve().parent.parent / "recipes" / "minilm-l6"


def _silent(text: str, done: int, total: int) -> None:
    pass


def step(name: str, context: Context) -> StepResult:
    result, failure = host.run_step(name, context)
    if result is None:
        raise SystemExit(f"{name} failed: {failure.symptom if failure else ''}")
    context.earlier[name] = result
    return result


def references(port: torch_model.Port, context: Context) -> None:
    """PyTorch's outputs at the four shapes, as the source step writes them."""
    for shape in context.plan.parity_shapes:
        inputs = samples.make(context.plan, shape)
        outputs = torch_model.call(port, inputs, shape)
        samples.save(context.samples(shape), inputs, {"fp32": outputs})


def measured(context: Context, port: torch_model.Port, hard: bool) -> float:
    """Seconds of one parity, with the hard inputs or without any."""
    earlier = {name: item for name, item in context.earlier.items() if name not in ("stress", "parity")}
    memo: Mapping[str, Any] = {
        "port": port,
        "call": lambda inputs, shape: torch_model.call(port, inputs, shape),
    }
    mine = Context(context.plan, context.out, earlier, _silent, dict(memo))
    start = time.perf_counter()
    references(port, mine)
    if hard:
        step("stress", mine)
    else:
        mine.earlier["stress"] = StepResult("stress", "ok", facts={"cases": [], "noise": "not run"})
    step("parity", mine)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    _, plan = intake.make_plan(RECIPE)
    plan = replace(
        plan, precision=replace(plan.precision, base="fp32")
    )  # references in half belong to the rehearsal
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder).resolve()
        port = torch_model.Port(torch_sources.load(plan), tuple(plan.inputs), plan.outputs).eval()
        context = Context(plan, out, {}, _silent)
        context.folder("samples")
        inputs = samples.make(plan, "export")
        samples.save(context.samples("export"), inputs, {"fp32": torch_model.call(port, inputs, "export")})
        context.memo["port"] = port
        step("export", context)
        times: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(rounds):
            for hard in (False, True):
                times[hard].append(measured(context, port, hard))
                print(
                    f"{'with hard inputs' if hard else 'four shapes':<16} {times[hard][-1]:6.1f} s",
                    flush=True,
                )
        shutil.rmtree(out / "onnx")
    ratio = statistics.median(hard / plain for plain, hard in zip(times[False], times[True], strict=True))
    print(f"parity with hard inputs / plain parity = {ratio:.2f} x")


if __name__ == "__main__":
    main()
