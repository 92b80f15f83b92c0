"""Values to try a rewrite with: kinds that reach the corners of a type, and ordinary ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.rules.constants import Array, is_whole, limits_of

Kind = str | Mapping[str, Any]


def make(kind: Kind, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """An array of ``kind`` (see the rule schema's ``values``), the same for the same ``rng`` state."""
    count = int(np.prod(shape, dtype=np.int64))
    if isinstance(kind, str):
        flat = _MAKERS[kind](dtype, shape, count, rng)
    elif "integers" in kind:
        low, high = kind["integers"]
        flat = rng.integers(low, high, size=count, endpoint=True)
    elif "uniform" in kind:
        low, high = kind["uniform"]
        flat = rng.uniform(low, high, size=count)
    else:
        return np.broadcast_to(np.asarray(kind["constant"]).astype(dtype), shape).copy()
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(flat).astype(dtype).reshape(shape)


def default_kinds(dtype: np.dtype[Any]) -> tuple[Kind, ...]:
    """Kinds for an input about which a rule says nothing."""
    if dtype == np.bool_:
        return ("booleans", "masked_rows", "ones")
    return ({"integers": [0, 3]}, "edges") if is_whole(dtype) else ("normal", "edges")


def is_constant(kind: Kind) -> bool:
    return not isinstance(kind, str) and "constant" in kind


def show(kind: Kind) -> str:
    return kind if isinstance(kind, str) else ", ".join(f"{key} {value}" for key, value in kind.items())


def _normal(dtype: np.dtype[Any], shape: tuple[int, ...], count: int, rng: np.random.Generator) -> Array:
    return rng.standard_normal(count, dtype=np.float32 if dtype.itemsize <= 4 else np.float64)


def _edges(dtype: np.dtype[Any], shape: tuple[int, ...], count: int, rng: np.random.Generator) -> Array:
    """Every corner at least once where there is room; otherwise a random choice of them."""
    if dtype.kind == "b":
        corners: list[Any] = [False, True]
    elif is_whole(dtype):
        ends = limits_of(dtype)
        corners = [0, 1, min(2, ends.max), ends.min, ends.max]
    else:
        real = limits_of(dtype)
        corners = [0.0, -0.0, 1.0, -1.0, 0.5, -3.0, 20.0, -20.0, 1e4, -1e4, np.inf, -np.inf, np.nan]
        corners += [s * v for s in (1, -1) for v in (real.max, real.tiny, real.smallest_subnormal, real.eps)]
    with np.errstate(over="ignore"):
        chosen = np.array(corners, dtype=dtype)
    mixed = np.concatenate([chosen, rng.choice(chosen, size=max(count - chosen.size, 0))])
    return rng.permutation(mixed)[:count]


def _huge(dtype: np.dtype[Any], shape: tuple[int, ...], count: int, rng: np.random.Generator) -> Array:
    """Finite numbers up to the ends of the type; the first rows hold nothing but one end each."""
    limits = limits_of(dtype)
    corners = np.array([limits.min, limits.max, 0, 1], dtype=dtype)
    array = (
        rng.choice(corners, size=count).reshape(-1, shape[-1] if shape else 1) if count else np.zeros((0, 1))
    )
    array[:1] = limits.min
    array[1:2] = limits.max
    return array.reshape(-1)


def _probabilities(
    dtype: np.dtype[Any], shape: tuple[int, ...], count: int, rng: np.random.Generator
) -> Array:
    """Rows that sum to one, the first one with all its weight on one element."""
    width = shape[-1] if shape else 1
    rows = rng.exponential(size=(count // width if width else 0, width))
    rows = rows / np.maximum(rows.sum(axis=-1, keepdims=True), 1e-30)
    rows[:1] = np.eye(1, width)
    return np.asarray(rows.reshape(-1))


def _booleans(dtype: np.dtype[Any], shape: tuple[int, ...], count: int, rng: np.random.Generator) -> Array:
    return rng.integers(0, 2, size=count)


def _masked_rows(dtype: np.dtype[Any], shape: tuple[int, ...], count: int, rng: np.random.Generator) -> Array:
    """0 and 1, the first row all 0 (fully masked), the second all 1."""
    width = shape[-1] if shape else 1
    rows = rng.integers(0, 2, size=(count // width if width else 0, width))
    rows[:1], rows[1:2] = 0, 1
    return rows.reshape(-1)


def _zeros(dtype: np.dtype[Any], shape: tuple[int, ...], count: int, rng: np.random.Generator) -> Array:
    return np.zeros(count)


def _ones(dtype: np.dtype[Any], shape: tuple[int, ...], count: int, rng: np.random.Generator) -> Array:
    return np.ones(count)


_MAKERS = {
    "normal": _normal, "edges": _edges, "huge": _huge, "probabilities": _probabilities,
    "booleans": _booleans, "masked_rows": _masked_rows, "zeros": _zeros, "ones": _ones,
}  # fmt: skip
