"""Comparing tensors bit by bit without a second copy of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
MOST_AXES = 5  # permutations of more are not tried
_CHUNK = 1 << 22


def orders(tensor: Array, constant: Array) -> Iterator[tuple[int, ...]]:
    """Permutations of the axes of ``tensor`` that give the shape of ``constant``; the identity first."""
    if tensor.ndim != constant.ndim or tensor.ndim > MOST_AXES:
        return
    for order in permutations(range(tensor.ndim)):
        if tuple(tensor.shape[axis] for axis in order) == constant.shape:
            yield order


def same_bits(first: Array, second: Array) -> bool:
    """Equal types and bits in C order, whatever the shapes; compared in pieces."""
    if first.dtype != second.dtype or first.size != second.size:
        return False
    if (
        first.ndim > 1
        and first.shape == second.shape
        and not (first.flags.c_contiguous and second.flags.c_contiguous)
    ):
        rows = max(1, _CHUNK // max(1, first[0].size))
        return all(
            flat(first[at : at + rows]).tobytes() == flat(second[at : at + rows]).tobytes()
            for at in range(0, len(first), rows)
        )
    one, two = flat(first), flat(second)
    return all(
        one[at : at + _CHUNK].tobytes() == two[at : at + _CHUNK].tobytes()
        for at in range(0, one.size, _CHUNK)
    )


def flat(array: Array) -> Array:
    """The elements in C order; a copy only where they do not lie so."""
    return np.ascontiguousarray(array).reshape(-1)
