"""Figures in a lock: how they are rounded, and when two of them count as equal.

CPU kernels differ from machine to machine in the last bits, so figures of errors are equal within
:data:`FACTOR`; whether each is within its limit, and everything else in a lock, must be equal as it stands.
"""

from __future__ import annotations

from decimal import Decimal

from engine.comparison import AT_LEAST
from engine.stress import judge as hard

FACTOR = 2.0  # two figures of an error are equal when neither is more than this many times the other
FLOOR = 1e-7  # errors below are equal to each other: FP32 numbers near 1 lie that far apart
NEAREST = 1e-9  # the same for the distance of a cosine from 1, which goes with the square of the error
MULTIPLE = 0.1  # and for errors given as a multiple of what is allowed
_ERRORS = (
    hard.NAME,
    "accept.rounding",
    "accept.onnx.",
    "accept.engine (rehearsed).",
    "accept.engine (measured).",
)


def is_error(claim: str) -> bool:
    """True for claims whose figure is an error of the outputs; the others count or weigh something."""
    return claim.startswith(_ERRORS)


def rounded(claim: str, value: float) -> float:
    """Two significant digits of an error; of a similarity, whose best is 1, of its distance from 1."""
    if not is_error(claim):
        return round(value, 2)
    if _metric(claim) not in AT_LEAST:
        return float(f"{value:.1e}")
    distance = 1 - value
    return 1.0 if distance < NEAREST else float(1 - Decimal(f"{distance:.1e}"))


def same(claim: str, one: float | None, other: float | None) -> bool:
    """Whether two rounded figures of ``claim`` count as equal from one machine to another."""
    if one == other:
        return True
    if one is None or other is None or not is_error(claim):
        return False
    metric = _metric(claim)
    floor, factor = (NEAREST, FACTOR**2) if metric == "cosine" else (FLOOR, FACTOR)
    floor = MULTIPLE if claim == hard.NAME else floor
    if metric in AT_LEAST:
        one, other = 1 - one, 1 - other
    small, large = sorted((max(one, floor), max(other, floor)))
    return large <= factor * small * (1 + 1e-9)  # the figures are decimal, their quotient is not


def _metric(claim: str) -> str:
    return claim.rpartition(".")[2]
