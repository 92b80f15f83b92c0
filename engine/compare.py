"""Compare named arrays. A comparison is good only when everything that should be there is, and is finite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from engine.comparison import Comparison

Array = npt.NDArray[np.generic]


def compare(
    expected: Mapping[str, Array],
    got: Mapping[str, Array],
    shape: str = "",
    exact: Mapping[str, Array] | None = None,
    nan_is_equal: bool = False,
) -> tuple[Comparison, ...]:
    """Compare every output; outputs missing from ``got`` and outputs nobody asked for are problems.

    ``exact`` is the reference in FP64, where there is one: it tells how much of the reference is rounding. A NaN
    is a problem, unless ``nan_is_equal`` and the reference has one in its place.
    """
    results = []
    for name, reference in expected.items():
        if name not in got:
            results.append(Comparison(name, shape, f"missing; there are: {', '.join(sorted(got)) or 'none'}"))
        else:
            found = _one(name, shape, reference, got[name], nan_is_equal)
            results.append(replace(found, noise=noise(reference, (exact or {}).get(name))))
    for name in got:
        if name not in expected:
            results.append(Comparison(name, shape, "an output that nobody asked for"))
    return tuple(results)


def noise(single: Array, double: Array | None) -> float | None:
    """Largest absolute difference between a reference in FP32 and in FP64, where both are finite; None without one."""
    if double is None or double.shape != single.shape:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(single.astype(np.float64) - double.astype(np.float64))
    finite = difference[np.isfinite(difference)]
    return float(finite.max()) if finite.size else 0.0


def _one(name: str, shape: str, reference: Array, got: Array, nan_is_equal: bool) -> Comparison:
    if reference.shape != got.shape:
        return Comparison(name, shape, f"shape {list(got.shape)}, expected {list(reference.shape)}")
    if reference.size == 0:
        return Comparison(name, shape, "empty: nothing to compare")
    if (reference.dtype.kind == "f") != (got.dtype.kind == "f"):
        return Comparison(name, shape, f"type {got.dtype}, expected {reference.dtype}")
    wanted, actual = reference.astype(np.float64), got.astype(np.float64)
    same = (actual == wanted) | (np.isnan(actual) & np.isnan(wanted) & nan_is_equal)
    bad = ~(np.isfinite(actual) & np.isfinite(wanted)) & ~same
    if bad.any():
        what = "not finite where the reference is, or the reverse"
        return Comparison(name, shape, f"{int(bad.sum()):,} of {bad.size:,} values {what}")
    finite = np.isfinite(wanted)
    wanted, actual = np.where(finite, wanted, 0.0), np.where(finite, actual, 0.0)
    return Comparison(
        name,
        shape,
        elements=reference.size,
        max_abs=float(np.abs(wanted - actual).max()),
        mean_abs=float(np.abs(wanted - actual).mean()),
        rel_l2=_ratio(float(np.linalg.norm(wanted - actual)), float(np.linalg.norm(wanted))),
        cosine=_cosine(wanted, actual),
        argmax=_argmax(wanted, actual),
        scale=float(np.abs(wanted).max()),
    )


def _ratio(part: float, whole: float) -> float:
    if whole == 0.0:
        return 0.0 if part == 0.0 else float(np.finfo(np.float64).max)
    return part / whole


def _cosine(wanted: Array, actual: Array) -> float:
    first, second = wanted.ravel(), actual.ravel()
    norms = float(np.linalg.norm(first)) * float(np.linalg.norm(second))
    if norms == 0.0:
        return 1.0 if not first.any() and not second.any() else 0.0
    return min(1.0, float(np.dot(first, second)) / norms)


def _argmax(wanted: Array, actual: Array) -> float:
    if wanted.ndim == 0:
        return 1.0
    return float((wanted.argmax(-1) == actual.argmax(-1)).mean())
