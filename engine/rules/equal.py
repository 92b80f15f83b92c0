"""Whether two sets of outputs are the same within a tolerance, and by how much they are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.rules.constants import Array, is_whole, limits_of
from engine.rules.language import Tolerance


@dataclass(frozen=True)
class Comparison:
    """``why`` is empty when all agree. ``numbers`` were compared; ``max_abs`` is over finite ones."""

    why: str = ""
    numbers: int = 0
    max_abs: float = 0.0


def compare(before: Mapping[str, Array], after: Mapping[str, Array], limit: Tolerance) -> Comparison:
    """Names, types, shapes, places of NaN and infinity must be the same, the rest within ``limit``."""
    if set(before) != set(after):
        return Comparison(f"outputs {sorted(before)} became {sorted(after)}")
    numbers, worst = 0, 0.0
    for name, first in before.items():
        second = after[name]
        if first.dtype != second.dtype or first.shape != second.shape:
            was, now = f"{first.dtype}{list(first.shape)}", f"{second.dtype}{list(second.shape)}"
            return Comparison(f"{name} was {was} and became {now}")
        why, difference = _difference(first, second, limit)
        if why:
            return Comparison(f"{name}{why}", numbers + first.size, difference)
        numbers, worst = numbers + first.size, max(worst, difference)
    return Comparison("", numbers, worst)


def _difference(first: Array, second: Array, limit: Tolerance) -> tuple[str, float]:
    if first.dtype in (np.int8, np.uint8) and limit.max_abs >= 1:
        return _steps(first, second, int(limit.max_abs))
    if is_whole(first.dtype) or first.dtype.kind not in "fVc":
        return _exact(first, second)
    if first.itemsize in (2, 4, 8) and _same_bits(first, second):
        return "", 0.0
    one, two = first.astype(np.float64), second.astype(np.float64)
    finite = np.isfinite(one) & np.isfinite(two)
    agree = (np.isnan(one) & np.isnan(two)) | (one == two) | finite
    with np.errstate(invalid="ignore"):
        off = np.where(finite, np.abs(one - two), 0.0)
        size = np.where(finite, np.abs(one), 0.0)
        spacing = limit.max_eps * _eps(first.dtype)
        excess = off - (limit.max_abs + limit.max_rel * size + spacing * np.maximum(size, 1.0))
    bad = ~agree | (excess > 0)
    worst = float(off.max()) if off.size else 0.0
    return (_at(bad, first, second), worst) if bad.any() else ("", worst)


def _eps(dtype: np.dtype[Any]) -> float:
    return 0.0 if dtype.kind == "c" or is_whole(dtype) else float(limits_of(dtype).eps)


def _same_bits(first: Array, second: Array) -> bool:
    """The usual case, and far cheaper than what follows; NaN included."""
    bits = f"u{first.itemsize}"
    same = np.ascontiguousarray(first).view(bits) == np.ascontiguousarray(second).view(bits)
    return bool(np.all(same))


def _exact(first: Array, second: Array) -> tuple[str, float]:
    bad = first != second
    return (_at(bad, first, second), float(bad.sum())) if bad.any() else ("", 0.0)


def _steps(first: Array, second: Array, limit: int) -> tuple[str, float]:
    """Quantised numbers, which may round to neighbours. Other integers are indices or counts, and exact."""
    off = np.abs(first.astype(np.int16) - second.astype(np.int16))
    bad = off > limit
    worst = float(off.max()) if off.size else 0.0
    return (_at(bad, first, second), worst) if bad.any() else ("", worst)


def _at(bad: Array, first: Array, second: Array) -> str:
    index = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
    spot = "".join(f"[{i}]" for i in index)
    return f"{spot} was {first[index]} and became {second[index]} ({int(bad.sum())} of {bad.size} differ)"
