"""Constant matrices of discrete Fourier transforms; complex numbers are pairs of real and imaginary part."""

from __future__ import annotations

import numpy as np

from engine.rules.constants import Array


def matrix(taken: int, length: int, parts: int, inverse: bool, onesided: bool) -> Array:
    """[taken, parts, outputs, parts of an output] of a transform of ``length`` points in float64.

    ``taken`` input points are there, the rest counts as zero. Inverse and one-sided together give a real
    signal from half of its spectrum.
    """
    if inverse and onesided:
        return _real_signal(taken, length, parts)
    count = length // 2 + 1 if onesided else length
    turn = turns(taken, count, length, 1 if inverse else -1) / (length if inverse else 1)
    weights = np.empty((taken, parts, count, 2))
    weights[:, 0, :, 0], weights[:, 0, :, 1] = turn.real, turn.imag
    if parts == 2:
        weights[:, 1, :, 0], weights[:, 1, :, 1] = -turn.imag, turn.real
    return weights


def _real_signal(taken: int, length: int, parts: int) -> Array:
    """Each point of the half stands for itself and its mirror image, but for the first and the middle one."""
    turn = turns(taken, length, length, 1) / length
    index = np.arange(taken)
    alone = (index == 0) | (2 * index == length)
    turn *= np.where(alone, 1, 2)[:, None]
    weights = np.empty((taken, parts, length, 1))
    weights[:, 0, :, 0] = turn.real
    if parts == 2:
        weights[:, 1, :, 0] = np.where(alone[:, None], 0, -turn.imag)
    return weights


def turns(rows: int, columns: int, length: int, sign: int) -> Array:
    """[rows, columns] of powers of the root of unity, clockwise where ``sign`` is -1."""
    # the product is reduced modulo the length first, so that large ones lose no digits
    steps = np.outer(np.arange(rows), np.arange(columns)) % length
    found: Array = np.exp(sign * 2j * np.pi * steps / length)
    return found
