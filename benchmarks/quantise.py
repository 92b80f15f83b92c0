"""Portwright's INT8 against ONNX Runtime's and ModelOpt's quantisers, each run a process of its own.

    python benchmarks/quantise.py [--rounds 1] [--only digits,minilm] [--modelopt PYTHON]

Two models with real weights: the digits net on real digits (256 for calibration, 512 others for the error) and
MiniLM-L6 on the samples of its recipe. All get the same calibration data, method max. Everything that is not
quantised stays FP32, so that the error is that of quantisation alone: the relative L2 against the FP32 model, all
graphs run by ONNX Runtime without optimisation. "in INT8" counts Conv, Gemm and MatMul nodes in layers of
TensorRT-RTX's fused plan that read INT8, out of those of the model; "named" the nodes of the model that still have
their name. ONNX Runtime is shown with its defaults, and with what TensorRT needs (no INT32 bias, symmetric, one scale
a channel, products only).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import lowering_peers
import numpy as np
import onnx
from lowering import Run, measure

from engine import fused_plan, runtime, toolchain
from engine.errors import StepError
from engine.process import Limits

HERE = Path(__file__).resolve().parent
RECIPES = HERE.parent / "recipes"
OUT = HERE.parent / "build" / "quantise"
PRODUCTS = {"Conv", "Gemm", "MatMul"}
TOOLS = ("portwright", "onnxruntime defaults", "onnxruntime for TensorRT", "modelopt")


@dataclass
class Row:
    tool: str
    runs: list[Run] = field(default_factory=list)
    fault: str = ""
    pairs: int = 0
    error: str = "-"
    plan: str = "-"
    named: str = "-"


def prepare(name: str) -> tuple[Path, Path, Path]:
    """The FP32 graph that a run of the recipe makes, and files of calibration data and of inputs to judge by."""
    recipe = {"digits": "digits-resnet", "minilm": "minilm-l6"}[name]
    folder = OUT / name
    command = [
        sys.executable,
        "-m",
        "engine.cli",
        "run", "--no-store",
        str(RECIPES / recipe),
        "--out",
        str(folder),
        "--until",
        "parity",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(HERE.parent)}
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"the run of {recipe} failed:\n{done.stderr[-2000:]}")
    newest = next(
        path for path in ("rewrite", "simplify", "export") if (folder / "onnx" / f"{path}.onnx").is_file()
    )
    model = folder / "onnx" / f"{newest}.onnx"
    for path, inputs in zip(("calibrate", "judge"), _inputs(name, folder), strict=True):
        np.savez(folder / f"{path}.npz", **inputs)  # type: ignore[arg-type]
    return model, folder / "calibrate.npz", folder / "judge.npz"


def _inputs(name: str, folder: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    if name == "digits":
        from sklearn.datasets import load_digits

        images = (load_digits().images / 16).astype(np.float32)[:, None]
        return {"image": images[:256]}, {"image": images[256:768]}
    shapes = [np.load(folder / "samples" / f"{shape}.npz") for shape in ("opt", "odd")]
    first, second = (
        {key.partition("/")[2]: item[key] for key in item.files if key.startswith("input/")}
        for item in shapes
    )
    return first, second


def judge(row: Row, model: Path, data: Path, result: Path) -> None:
    """Error, nodes in INT8 of the fused plan, and names that are left."""
    feeds = dict(np.load(data))
    wanted = runtime.run(runtime.session(model), feeds)
    try:
        found = runtime.run(runtime.session(result), feeds)
        errors = [np.linalg.norm(found[key] - value) / np.linalg.norm(value) for key, value in wanted.items()]
        row.error = f"{max(errors):.2e}"
    except (StepError, KeyError, ValueError) as error:  # another tool's file may be anything
        row.error = str(error)[:60]
    graph, before = (
        onnx.load(result, load_external_data=False).graph,
        onnx.load(model, load_external_data=False).graph,
    )
    row.pairs = sum(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in graph.node)
    names = {node.name for node in before.node}
    row.named = f"{len(names & {node.name for node in graph.node})} of {len(names)}"
    row.plan = _plan(result, graph, sum(node.op_type in PRODUCTS for node in before.node))


def _plan(result: Path, graph: onnx.GraphProto, products: int) -> str:
    log = result.with_suffix(".verbose")
    profile = {item.name: _profile(item) for item in graph.input}
    request = {"onnx": str(result), "engine": str(result.with_suffix(".engine")), "profiles": [profile],
               "target": "sm89", "verbose_log": str(log), "flags": []}  # fmt: skip
    done = toolchain.build(
        toolchain.resolve("current"), request, log=result.with_suffix(".log"), limits=Limits(300, None)
    )
    if not done.answered:
        return f"TensorRT: {done.describe()}"
    if not done.result["ok"]:
        return f"refused: {done.result['errors'][0]['text'][:70]}"
    layers = fused_plan.read_plan(log).layers
    ours = {node.name for node in graph.node if node.op_type in PRODUCTS}
    read = {name for layer in layers for name in layer.nodes if any(t.dtype == "int8" for t in layer.inputs)}
    return f"{len(ours & read)} of {products}"


def _profile(item: onnx.ValueInfoProto) -> dict[str, list[int]]:
    dims = [dim.dim_value or None for dim in item.type.tensor_type.shape.dim]
    return {which: [size or free for size in dims] for which, free in (("min", 2), ("opt", 8), ("max", 16))}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="digits,minilm")
    parser.add_argument("--modelopt", help="a Python with modelopt[onnx]; otherwise one is made (2 GB)")
    given = parser.parse_args()
    modelopt = given.modelopt or lowering_peers.python_of("modelopt-autocast")
    for name in given.only.split(","):
        model, calibration, data = prepare(name)
        rows = [Row(tool) for tool in TOOLS]
        for turn in range(given.rounds):
            for row in rows:
                python = modelopt if row.tool == "modelopt" else sys.executable
                if python.startswith(lowering_peers.REFUSED):
                    row.fault = python
                    continue
                target = OUT / name / row.tool.replace(" ", "-") / "result.onnx"
                target.parent.mkdir(exist_ok=True)
                command = [
                    python,
                    str(HERE / "quantise_convert.py"),
                    row.tool,
                    str(model),
                    str(calibration),
                    str(target),
                ]
                row.runs.append(measure(command, target.with_suffix(".txt"), 12 * 1024, 600))
                row.fault = row.runs[-1].fault
                if not row.fault and turn == 0:
                    judge(row, model, data, target)
        print(
            f"\n{name:<26} {'wall s':>7} {'RSS MiB':>8} {'Q/DQ':>5} {'error':>9} {'in INT8':>10} {'named':>11}"
        )
        for row in rows:
            if row.fault:
                print(f"{row.tool:<26} {row.fault}")
                continue
            wall, resident = (
                float(np.median([getattr(run, key) for run in row.runs])) for key in ("wall", "resident")
            )
            counts = f"{row.pairs:5} {row.error:>9} {row.plan:>10} {row.named:>11}"
            print(f"{row.tool:<26} {wall:7.1f} {resident:8.0f} {counts}")


if __name__ == "__main__":
    main()
