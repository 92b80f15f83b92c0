"""The values that a quantised type has, and scales that the float type around it can hold.

Symmetric throughout: TensorRT takes no zero point but 0. The scale is rounded to the float type first and the values
are divided by the rounded one, as TensorRT does.
Source: TensorRT documentation, "Quantized types: schemes".
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from engine.precision.formats import DTYPES, QUANTISED, Precision, QuantType
from engine.samples import Array

LARGEST: Mapping[QuantType, float] = {"int8": 127.0, "fp8": 448.0, "int4": 7.0}
_LEAST: Mapping[QuantType, float] = {"int8": -128.0, "fp8": -448.0, "int4": -8.0}
_MOST_OFF = 0.02  # of a scale that the float type cannot hold better: it would be close to zero or infinite


def scale_for(largest: Array, kind: QuantType, floats: Precision) -> Array:
    """Scales in FP32, exact in ``floats``, for the largest magnitudes (any shape); 1 where that is 0."""
    wanted = _wanted(largest, kind)
    with np.errstate(over="ignore", under="ignore"):
        scales: Array = wanted.astype(DTYPES[floats].numpy()).astype(np.float32)
    return scales


def _wanted(largest: Array, kind: QuantType) -> npt.NDArray[np.float64]:
    tops = largest.astype(np.float64)
    return np.where(tops > 0, tops / LARGEST[kind], 1.0)


def misfit(largest: Array, kind: QuantType, floats: Precision) -> str:
    """Why ``floats`` cannot hold the scales; empty where it can."""
    wanted = _wanted(largest, kind)
    off = np.abs(scale_for(largest, kind, floats).astype(np.float64) - wanted) / wanted
    worst = int(np.argmax(np.where(np.isfinite(off), off, np.inf)))
    if np.isfinite(off).all() and off.max(initial=0.0) <= _MOST_OFF:
        return ""
    return f"its scale {np.ravel(wanted)[worst]:.2g} does not fit into {floats.upper()}"


def quantise(values: Array, scales: Array, kind: QuantType) -> Array:
    """``values`` (FP32) over broadcast ``scales``, rounded to even, cut at the ends; in the quantised type."""
    ratio = values.astype(np.float32, copy=False) / scales.astype(np.float32, copy=False)
    cut = np.clip(ratio, _LEAST[kind], LARGEST[kind])
    found: Array = (cut if kind == "fp8" else np.rint(cut)).astype(QUANTISED[kind].numpy())
    return found
