"""Compare named arrays. A comparison is good only when everything that should be there is, and is finite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from engine.comparison import Comparison

Array = npt.NDArray[np.generic]
_UNIT = 2.0**-24  # of the largest number: less than FP32 can be off
_FLIP = 100.0  # a flip is that many times as far off as whatever is none
_HIGH = 1e-2  # least height of a step, as a part of the largest number, where the numbers are not whole


def compare(
    expected: Mapping[str, Array],
    got: Mapping[str, Array],
    shape: str = "",
    exact: Mapping[str, Array] | None = None,
    nan_is_equal: bool = False,
    steps: bool = False,
) -> tuple[Comparison, ...]:
    """Compare every output; outputs missing from ``got`` and outputs nobody asked for are problems.

    ``exact`` is the reference in FP64, where there is one: it tells how much of the reference is rounding. A NaN
    is a problem, unless ``nan_is_equal`` and the reference has one in its place. With ``steps`` the model holds step
    functions, and FP32 and FP64 may be on two sides of an edge.
    """
    results = []
    for name, reference in expected.items():
        if name not in got:
            results.append(Comparison(name, shape, f"missing; there are: {', '.join(sorted(got)) or 'none'}"))
        else:
            double = (exact or {}).get(name)
            flipped = flips(reference, double) if steps else np.zeros(reference.shape, bool)
            nearer = _nearer(reference, double, got[name], flipped)
            found = _one(name, shape, nearer, got[name], nan_is_equal)
            rounding = noise(reference, double, flipped)
            results.append(replace(found, noise=rounding, flips=int(flipped.sum())))
    for name in got:
        if name not in expected:
            results.append(Comparison(name, shape, "an output that nobody asked for"))
    return tuple(results)


def noise(single: Array, double: Array | None, flipped: npt.NDArray[np.bool_]) -> float | None:
    """Largest absolute difference between a reference in FP32 and in FP64, where both are finite; None without one."""
    if double is None or double.shape != single.shape:
        return None
    difference = _apart(single, double)[~flipped]
    finite = difference[np.isfinite(difference)]
    return float(finite.max()) if finite.size else 0.0


def flips(single: Array, double: Array | None) -> npt.NDArray[np.bool_]:
    """Where FP32 and FP64 differ by a step and not by rounding.

    Whole numbers differ by nothing else, as long as FP32 has all of them. Elsewhere such elements are much farther
    apart than all others, and by whole numbers or a good part of the largest number: a number that is badly
    conditioned may be farther off than the others as well.
    """
    none = np.zeros(single.shape, bool)
    if double is None or double.shape != single.shape:
        return none
    apart = _apart(single, double)
    finite = np.isfinite(apart)
    if not finite.any():
        return none
    largest = float(np.abs(double[finite].astype(np.float64)).max())
    one = np.where(finite, single.astype(np.float64), 0.0)
    two = np.where(finite, double.astype(np.float64), 0.0)
    whole = (np.rint(one) == one) & (np.rint(two) == two)
    if whole.all() and largest < 1 / _UNIT:
        return np.asarray(finite & (apart > 0), dtype=bool)
    ranked = np.sort(np.maximum(apart[finite], max(_UNIT * largest, float(np.finfo(np.float32).tiny))))
    gaps = ranked[1:] / ranked[:-1]
    if not gaps.size or gaps.max() < _FLIP:
        return none
    high = whole | (apart >= _HIGH * largest)
    return np.asarray(finite & (apart > ranked[gaps.argmax()]) & high, dtype=bool)


def _apart(single: Array, double: Array) -> npt.NDArray[np.float64]:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.abs(single.astype(np.float64) - double.astype(np.float64))


def _nearer(single: Array, double: Array | None, got: Array, flipped: npt.NDArray[np.bool_]) -> Array:
    """The reference, in FP64 where it flips and that is nearer."""
    if double is None or got.shape != single.shape or not flipped.any():
        return single
    nearer = flipped & (_apart(got, double) < _apart(got, single))
    found: Array = np.where(nearer, double, single).astype(np.result_type(single, double))
    return found


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
