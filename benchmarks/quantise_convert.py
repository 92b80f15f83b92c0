"""One conversion to INT8, as a process of its own: ``python quantise_convert.py TOOL IN CALIBRATION OUT``.

Runs in the tool's own environment, so that nothing of Portwright is imported unless it is the tool.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


def portwright(source: Path, data: dict[str, Any], target: Path) -> None:
    """What the steps ``calibrate`` and ``lower`` do."""
    from engine.graph import files
    from engine.plan import PlannedCalibration
    from engine.precision import lower, selectors, verify
    from engine.precision.quantizable import activation_of, why_not
    from engine.quantize import collect, insert
    from engine.quantize.verify import require

    model = files.load(source)
    assignment = selectors.resolve(model, "int8", (), "fp32")
    names = list(dict.fromkeys(activation_of(node).name or "" for node in model.graph if not why_not(node, "int8")))
    beside = source.with_name("bench-calibrate.onnx")
    ranges = collect.ranges(model, names, beside, [data], PlannedCalibration(), lambda _: None)
    assignment, done = insert.quantise(model, assignment, ranges)
    lower.lower(model, assignment)
    require(model, done)
    files.save(model, target, target.with_suffix(".weights").name)
    verify.check_file(target)


def defaults(source: Path, data: dict[str, Any], target: Path) -> None:
    from onnxruntime.quantization import quantize_static

    quantize_static(str(source), str(target), _reader(data))


def for_tensorrt(source: Path, data: dict[str, Any], target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_static

    quantize_static(
        str(source), str(target), _reader(data), op_types_to_quantize=["Conv", "Gemm", "MatMul"], per_channel=True,
        activation_type=QuantType.QInt8, weight_type=QuantType.QInt8,
        extra_options={"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False},
    )  # fmt: skip


def modelopt(source: Path, data: dict[str, Any], target: Path) -> None:
    from modelopt.onnx.quantization import quantize

    quantize(str(source), quantize_mode="int8", calibration_data=data, calibration_method="max",
             output_path=str(target), high_precision_dtype="fp32", calibration_eps=["cpu"],
             log_level="ERROR")  # fmt: skip


def _reader(data: dict[str, Any]) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._rest: Iterator[dict[str, Any]] = iter([data])

        def get_next(self) -> Any:
            return next(self._rest, None)

    return Reader()


TOOLS = {
    "portwright": portwright, "onnxruntime defaults": defaults, "onnxruntime for TensorRT": for_tensorrt,
    "modelopt": modelopt,
}  # fmt: skip

if __name__ == "__main__":
    TOOLS[sys.argv[1]](Path(sys.argv[2]), dict(np.load(sys.argv[3])), Path(sys.argv[4]))
