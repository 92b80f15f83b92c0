"""Weights are converted exactly as numpy does it, and pass through memory in pieces."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from engine.precision.weights import convert
from engine.samples import Array
from tests.conftest import ROOT


def hard_numbers() -> Array:
    """Every finite FP16 number, the middle to its neighbour, and the FP32 numbers beside both."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = (halves[:-1] + halves[1:]) / 2
    exact = np.concatenate([halves, middles, [np.float32(65519.996)]])
    near = np.concatenate([exact, np.nextafter(exact, np.float32(0)), np.nextafter(exact, np.float32(1e9))])
    both = np.concatenate([near, -near])
    return both[np.abs(both) < 65520]


def same(one: Array, other: Array) -> bool:
    return np.array_equal(one.view(np.uint16), other.view(np.uint16)) and one.shape == other.shape


def test_every_rounding_to_fp16_is_numpys() -> None:
    numbers = hard_numbers()
    small = np.abs(numbers) < 2.0**-14
    assert small.mean() < 1 / 8  # or numpy itself is asked
    assert same(convert(numbers, "fp16"), numbers.astype(np.float16))
    subnormal = np.concatenate([numbers[small], np.ones(8 * small.sum(), np.float32)])
    assert same(convert(subnormal, "fp16"), subnormal.astype(np.float16))


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan, 65520.0, -1e30])
def test_numbers_out_of_range_round_as_numpy_does(odd: float) -> None:
    numbers = np.array([1.0, odd, -2.5, 0.1], np.float32)
    with np.errstate(over="ignore"):
        assert same(convert(numbers, "fp16"), numbers.astype(np.float16))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (4, 6)])
def test_any_shape_and_layout_converts(shape: tuple[int, ...]) -> None:
    numbers = np.linspace(-3, 5, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    assert same(convert(numbers.T, "fp16"), numbers.T.astype(np.float16))


LOWER = """
import json, re, sys
from pathlib import Path
from engine import runtime
from engine.graph import files
from engine.precision import lower, rehearsal, selectors, shadow, verify

import numpy as np
import onnxruntime

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10

folder = Path(sys.argv[1])
before = peak()
model = files.load(folder / "wide.onnx")
lower.lower(model, selectors.resolve(model, "fp16", ()))
files.save(model, folder / "low.onnx", "low.weights")
verify.check_file(folder / "low.onnx")
lowering = peak() - before
files.save(shadow.build_shadow(files.load(folder / "low.onnx")), folder / "shadow.onnx")
rehearsal.run_shadow(folder / "shadow.onnx", {"x0": np.zeros((1, int(sys.argv[2])), np.float32)})
print(json.dumps([lowering, peak() - before]))
"""
SIDE, COUNT = 2048, 16  # 256 MiB of weights


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the kernel's peak of memory is read in /proc"
)
def test_a_large_graph_is_lowered_and_rehearsed_a_piece_of_its_weights_at_a_time(tmp_path: Path) -> None:
    nodes, tensors = [], []
    for index in range(COUNT):
        tensor = TensorProto(name=f"w{index}", dims=(SIDE, SIDE), data_type=TensorProto.FLOAT)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {
            "location": "wide.weights",
            "offset": 4 * SIDE**2 * index,
            "length": 4 * SIDE**2,
        }.items():
            tensor.external_data.add(key=key, value=str(value))
        tensors.append(tensor)
        nodes.append(
            helper.make_node("MatMul", [f"x{index}", f"w{index}"], [f"x{index + 1}"], name=f"n{index}")
        )
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, SIDE]) for name in ("x0", f"x{COUNT}")]
    graph = helper.make_graph(nodes, "wide", ends[:1], ends[1:], tensors)
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "wide.onnx")
    with (tmp_path / "wide.weights").open("wb") as file:
        file.truncate(4 * SIDE**2 * COUNT)
    done = subprocess.run(
        [sys.executable, "-c", LOWER, str(tmp_path), str(SIDE)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    lowering, rehearsal = json.loads(done.stdout)
    whole = 4 * SIDE**2 * COUNT
    assert lowering < whole / 8
    assert rehearsal < whole / 2 + whole / 4  # the narrow weights are mapped, and a few are wide at a time
    assert (tmp_path / "low.weights").stat().st_size == whole / 2
