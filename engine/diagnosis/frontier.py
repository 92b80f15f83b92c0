"""Assignments of types by cost and error: what a base gives, and what it takes to bring it within the limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine.diagnosis import find as floats
from engine.diagnosis import lines, quantised
from engine.diagnosis.cost import Cost, Sizes
from engine.diagnosis.find import Found
from engine.diagnosis.margin import Margin
from engine.diagnosis.trials import Sample, Trials
from engine.graph import files
from engine.precision.prepare import prepare
from engine.recipe import QUANTS, FloatType, NodeType, Override


class Spent(Exception):
    """The budget of rehearsals is used up."""


@dataclass(frozen=True)
class Point:
    """One assignment: a base with overrides, what it costs, and how far it is from the limits."""

    base: NodeType
    floats: FloatType
    overrides: tuple[Override, ...]
    cost: Cost
    margin: Margin


class Search:
    """Points of several bases under one budget; see :meth:`base`."""

    def __init__(self, sizes: Sizes, taken: Sequence[Sample], budget: int, told: Callable[[int], None]) -> None:
        self._sizes, self._taken, self._budget, self._told = sizes, taken, budget, told
        self.points: list[Point] = []
        self.notes: list[str] = []
        self.count = 0

    @property
    def best(self) -> Point | None:
        good = [point for point in self.points if point.margin.good]
        return min(good, key=lambda point: point.cost.whole, default=None)

    def base(self, trials: Trials) -> None:
        """Try one base as it is, then with the fewest exceptions that bring it within the limits."""
        trials.told = self._count
        try:
            whole = trials.margin((), [])
            for sample in self._taken:
                whole = max(whole, trials.margin((), [sample]), key=lambda margin: margin.ratio)
            best = self.best
            self._add(trials, (), whole)
            if whole.good:
                return
            if best is not None and self.points[-1].cost.whole >= best.cost.whole:
                self.notes.append(f"{trials.base}: no exceptions tried, it costs more than what holds already")
                return
            found = (quantised if trials.base in QUANTS else floats).find(trials, self._taken)
            named = self._lines(trials, found)
            if named:
                self._add(trials, named, trials.of([*trials.overrides, *named], self._taken))
            else:
                self.notes.append(f"{trials.base}: {_WHY.get(found.verdict, found.verdict)}")
        except Spent:
            self.notes.append(f"{trials.base}: broken off, the budget of {self._budget} rehearsals is used up")

    def _count(self, _: int) -> None:
        if self.count >= self._budget:
            raise Spent
        self._told(self.count)
        self.count += 1

    def _cost(self, trials: Trials, added: Sequence[Override]) -> Cost:
        report, done, lowered = trials.lowered([*trials.overrides, *added])
        return self._sizes.cost(lowered, report, done)

    def _add(self, trials: Trials, added: tuple[Override, ...], margin: Margin) -> None:
        told = tuple(replace(line, because=f"search: {_figures(margin)}") for line in added)
        self.points.append(Point(trials.base, trials.floats, told, self._cost(trials, added), margin))

    def _lines(self, trials: Trials, found: Found) -> tuple[Override, ...]:
        if found.verdict not in ("found", "kinds"):
            return ()
        model = files.load(trials.graph)
        prepare(model)
        report, done, _ = trials.lowered(trials.overrides)
        return lines.lines(model, found, report, done)[0]


_WHY = {
    "spread": "the error is spread over the graph; no few exceptions are enough",
    "not precision": "outside the limits in FP32 as well",
    "overrides": "the recipe's own overrides keep it outside the limits",
}


def _figures(margin: Margin) -> str:
    return f"{margin.what} {margin.value:.3g}" if margin.value is not None else margin.what
