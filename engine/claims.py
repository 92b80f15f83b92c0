"""One thing that a recipe asks, and how it came out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["pass", "fail", "not run", "waived"]


@dataclass(frozen=True)
class Claim:
    """One thing the recipe asks. ``evidence`` says how it is known: compared, rehearsed, built, measured."""

    name: str
    status: Status
    limit: str
    value: float | None = None
    where: str = ""
    evidence: str = ""
    why: str = ""
