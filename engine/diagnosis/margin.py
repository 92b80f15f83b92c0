"""How far a comparison is from its limits, as one number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from engine.comparison import AT_LEAST, Comparison
from engine.recipe import Limits


@dataclass(frozen=True)
class Margin:
    """``ratio`` is error over limit for the worst limit (1 and less passes); ``what`` names that limit's metric.

    For a metric with a smallest value, such as a cosine, both are counted from 1.
    """

    ratio: float
    what: str
    value: float | None
    where: str

    @property
    def good(self) -> bool:
        return self.ratio <= 1.0


def worst(limits: Limits, found: Sequence[Comparison]) -> Margin:
    """The worst of all limits over all comparisons. Nothing compared, or not finite, is an infinite ratio."""
    if not found:
        return Margin(math.inf, "nothing was compared", None, "")
    margins = [_one(limits, item) for item in found]
    return max(margins, key=lambda margin: margin.ratio)


def _one(limits: Limits, item: Comparison) -> Margin:
    where = f"{item.output} at {item.shape}" if item.shape else item.output
    if item.problem:
        return Margin(math.inf, item.problem, None, where)
    margins = [Margin(0.0, "no limit", None, where)]
    for field in fields(limits):
        limit, value = getattr(limits, field.name), getattr(item, field.name)
        if limit is None:
            continue
        if value is None or not math.isfinite(value):
            return Margin(math.inf, field.name, value, where)
        ratio = _ratio(1 - value, 1 - limit) if field.name in AT_LEAST else _ratio(value, limit)
        margins.append(Margin(ratio, field.name, value, where))
    return max(margins, key=lambda margin: margin.ratio)


def _ratio(value: float, limit: float) -> float:
    if value <= limit:
        return value / limit if limit > 0 else 1.0 if value == limit else 0.0
    return value / limit if limit > 0 else math.inf
