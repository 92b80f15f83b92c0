"""Interpolation along one axis as the ONNX standard defines it for Resize: positions, and a matrix of weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.rules.constants import Array


@dataclass(frozen=True)
class Axis:
    """One resized axis: its sizes, the scale that the positions follow, and the crop (start, end) if any."""

    index: int
    size: int
    result: int
    scale: float
    crop: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class Interpolation:
    """The attributes of Resize that say how to interpolate."""

    mode: str
    positions: str
    nearest: str
    cubic: float
    antialias: bool
    exclude_outside: bool


def positions(axis: Axis, how: Interpolation) -> Array:
    """Where each output element lies among the input's elements."""
    y, n, exact = np.arange(axis.result, dtype=np.float64), axis.size, axis.scale * axis.size
    if how.positions == "align_corners":
        return y * (n - 1) / (exact - 1) if exact != 1 else 0 * y
    if how.positions == "asymmetric":
        return y / axis.scale
    if how.positions == "tf_crop_and_resize":
        start, end = axis.crop
        if exact == 1:
            return 0 * y + (start + end) * (n - 1) / 2
        return start * (n - 1) + y * (end - start) * (n - 1) / (exact - 1)
    if how.positions == "pytorch_half_pixel" and exact == 1:
        return 0 * y - 0.5
    offset = n / 2 * (1 - axis.result / exact) if how.positions == "half_pixel_symmetric" else 0.0
    return offset + (y + 0.5) / axis.scale - 0.5


def outside(axis: Axis, how: Interpolation) -> Array:
    """Which output elements lie beside the input and take the extrapolation value."""
    x = positions(axis, how)
    found: Array = (x < 0) | (x > axis.size - 1)
    return found if how.positions == "tf_crop_and_resize" else np.zeros(axis.result, dtype=bool)


def picked(axis: Axis, how: Interpolation) -> Array:
    """The input element that each output element is, in mode nearest."""
    x = positions(axis, how)
    rounds = {
        "round_prefer_floor": lambda: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda: np.floor(x + 0.5),
        "floor": lambda: np.floor(x),
        "ceil": lambda: np.ceil(x),
    }
    return np.clip(rounds[how.nearest](), 0, axis.size - 1).astype(np.int64)


def matrix(axis: Axis, how: Interpolation) -> Array:
    """[result, size]: each output element as a sum of input elements, in mode linear or cubic."""
    x = positions(axis, how)
    narrow = min(axis.scale, 1.0) if how.antialias else 1.0
    reach = 1 if how.mode == "linear" else 2
    half = -int(np.floor(-reach / narrow))
    first = np.ceil(x).astype(np.int64) - half  # the window prefers the element on the left
    index = first[:, None] + np.arange(2 * half)
    distance = np.abs(index - x[:, None]) * narrow
    weights = np.clip(1 - distance, 0, 1) if how.mode == "linear" else _cubic(distance, how.cubic)
    if how.antialias:
        weights /= weights.sum(1, keepdims=True)
    if how.exclude_outside:
        weights = np.where((index < 0) | (index >= axis.size), 0, weights)
        weights /= weights.sum(1, keepdims=True)
    found = np.zeros((axis.result, axis.size))
    rows = np.broadcast_to(np.arange(axis.result)[:, None], index.shape)
    np.add.at(found, (rows, np.clip(index, 0, axis.size - 1)), weights)
    return found


def _cubic(distance: Array, a: float) -> Array:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
