"""The floating point types a graph may be lowered to, and their limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from engine.recipe import FloatType as Precision
from engine.recipe import QuantType

DTYPES: Mapping[Precision, ir.DataType] = {
    "fp32": ir.DataType.FLOAT,
    "fp16": ir.DataType.FLOAT16,
    "bf16": ir.DataType.BFLOAT16,
}
PRECISIONS: Mapping[ir.DataType, Precision] = {dtype: name for name, dtype in DTYPES.items()}
QUANTISED: Mapping[QuantType, ir.DataType] = {
    "int8": ir.DataType.INT8,
    "fp8": ir.DataType.FLOAT8E4M3FN,
    "int4": ir.DataType.INT4,
}
FAMILY = frozenset(PRECISIONS)  # the types that lowering may exchange; FLOAT64 and FP8 are left alone
LOW = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


@dataclass(frozen=True)
class Limits:
    """Range of a type: largest finite value, smallest normal one, and where rounding leaves the range.

    A finite FP32 value with magnitude >= ``to_inf`` becomes infinite, a nonzero one <= ``to_zero``
    becomes zero (round to nearest, ties to even).
    """

    largest: float
    smallest_normal: float
    to_inf: float
    to_zero: float


__all__ = [
    "DTYPES", "FAMILY", "LIMITS", "LOW", "PRECISIONS", "QUANTISED", "Limits", "Precision", "QuantType", "is_float",
    "is_weight",
]  # fmt: skip

LIMITS: Mapping[Precision, Limits] = {
    "fp32": Limits(float(np.finfo(np.float32).max), 2.0**-126, float("inf"), 0.0),
    "fp16": Limits(65504.0, 2.0**-14, 65520.0, 2.0**-25),
    "bf16": Limits(2.0**128 - 2.0**120, 2.0**-126, 2.0**128 - 2.0**119, 2.0**-134),
}


def is_float(value: ir.Value | None) -> bool:
    """Whether ``value`` is a tensor in one of the exchangeable types."""
    return value is not None and isinstance(value.type, ir.TensorType) and value.dtype in FAMILY


def is_weight(value: ir.Value) -> bool:
    """Whether ``value`` is a constant held by the graph (an initializer)."""
    return value.const_value is not None and value.is_initializer()
