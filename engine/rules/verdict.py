"""What a proof found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Proof:
    """``why`` is empty exactly when ``equal``. ``numbers`` were compared in ``cases`` trials.

    ``max_abs`` is the largest absolute difference seen between finite numbers; ``skipped`` the shapes that
    were too large to try.
    """

    equal: bool
    why: str = ""
    cases: int = 0
    numbers: int = 0
    max_abs: float = 0.0
    runtimes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
