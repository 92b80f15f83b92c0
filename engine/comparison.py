"""The result of comparing one output with its reference; no arithmetic here, so that judging needs no numpy."""

from __future__ import annotations

from dataclasses import dataclass

AT_LEAST = frozenset({"cosine", "argmax"})  # metrics whose limit is a smallest value


@dataclass(frozen=True)
class Comparison:
    """One output at one shape against its reference.

    ``problem`` is empty when the arrays could be compared; otherwise it says why not, and every
    metric is None. ``max_abs`` and ``mean_abs`` are in the output's unit, ``rel_l2`` is the norm of
    the difference over that of the reference, ``cosine`` the similarity of the flattened arrays,
    ``argmax`` the share of rows of the last axis whose largest entry is the same one. ``scale`` is the
    largest magnitude of the reference, ``noise`` how far it is from itself in FP64 (None: not run). At ``flips`` of
    the elements a step function goes one way in FP32 and another in FP64: they are compared with whichever of the two
    is nearer, and are no noise.
    """

    output: str
    shape: str
    problem: str = ""
    elements: int = 0
    max_abs: float | None = None
    mean_abs: float | None = None
    rel_l2: float | None = None
    cosine: float | None = None
    argmax: float | None = None
    scale: float | None = None
    noise: float | None = None
    flips: int = 0
