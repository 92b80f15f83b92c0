"""What a converted model is worth, whoever converted it: ``python lowering_judge.py FP32 FP16``; JSON last."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import onnx_ir as ir
from onnx_ir.passes.common import TopologicalSortPass

from engine import runtime
from engine.errors import StepError
from engine.graph import files
from engine.precision import rehearsal, shadow
from engine.precision.formats import is_float
from engine.precision.prepare import nodes, prepare
from engine.samples import Array


def casts(model: ir.Model) -> int:
    return sum(node.op_type == "Cast" for node in nodes(model))


def checker(path: Path) -> str:
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return _short(str(error))
    return ""


def loads(path: Path) -> str:
    try:
        runtime.session(path, prepack=False)
    except StepError as error:
        return _short(error.failure.evidence)
    return ""


def _short(text: str) -> str:
    plain = re.sub(
        r"^(\[\w+\][ :]*|\d+ : |[A-Z_]+ : |Load model from \S+ failed: ?|Inference error\(s\): )+", "", text
    )
    return " ".join(plain.split())[:90]


def errors(model: Path, result: Path) -> tuple[float, float]:
    """Root of the mean square and the largest absolute difference over all outputs; negative where nothing runs."""
    with np.load(model.with_name("feeds.npz")) as stored:
        feeds = {name: stored[name] for name in stored.files}
    expected = _reference(model, feeds)
    lowered = files.load(result)
    _strip_types(lowered)
    TopologicalSortPass()(lowered)  # a result that is not sorted is not valid, but its numbers can be judged
    path = result.with_name("judged.onnx")
    try:
        prepare(lowered)
        files.save(shadow.build_shadow(lowered), path)
        got = rehearsal.run_shadow(path, feeds)
    except StepError:
        return -1.0, -1.0
    gaps = [(got[name].astype(np.float64) - wide).ravel() for name, wide in expected.items()]
    every = np.concatenate(gaps)
    return float(np.sqrt(np.mean(every**2))), float(np.abs(every).max())


def _reference(model: Path, feeds: dict[str, Array]) -> dict[str, Array]:
    kept = model.with_name("expected.npz")
    if not kept.exists():
        np.savez(kept, **runtime.run(runtime.session(model, prepack=False), feeds))
    with np.load(kept) as stored:
        return {name: stored[name] for name in stored.files}


def _strip_types(model: ir.Model) -> None:
    """Forget the types that a converter wrote for what its nodes make: some write the old ones; they are inferred."""
    kept = set(model.graph.outputs)
    for node in nodes(model):
        for value in node.outputs:
            if value not in kept and is_float(value):
                value.type = None


def main(model: Path, result: Path) -> None:
    verdict: dict[str, object] = {
        "casts": casts(files.load(result)) - casts(files.load(model)),
        "checker": checker(result),
        "loads": loads(result),
    }
    verdict["error"], verdict["largest"] = errors(model, result)
    print(json.dumps(verdict))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
