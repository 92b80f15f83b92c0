"""One thing that a recipe asks, and how it came out."""

from __future__ import annotations

import re
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

    @property
    def use(self) -> float | None:
        """How much of what the limit allows the value takes: 1 is the limit itself. None without figures."""
        found = re.search(r"(<=|>=) *([0-9.e+-]+)$", self.limit)
        if self.value is None or found is None:
            return None
        limit = float(found[2])
        if found[1] == "<=":
            return self.value / limit if limit else float(self.value > 0)
        return (1 - self.value) / (1 - limit) if limit < 1 else 1 + limit - self.value
