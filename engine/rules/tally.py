"""Comparisons of one proof, gathered trial by trial."""

from __future__ import annotations

from collections.abc import Mapping

from engine.rules.constants import Array
from engine.rules.equal import Comparison, compare
from engine.rules.evaluate import CannotRunError, Runs
from engine.rules.language import Tolerance
from engine.rules.verdict import Proof


class Tally:
    """Collects comparisons into a Proof."""

    def __init__(self, limit: Tolerance) -> None:
        self.limit, self.cases, self.numbers, self.worst = limit, 0, 0, 0.0
        self.why, self.runtimes, self.skipped = "", set[str](), list[str]()

    def add(self, before: Runs, after: Runs, feeds: Mapping[str, Array], label: str) -> bool:
        """Run both; False when the original itself does not run on these inputs."""
        try:
            expected = before(feeds)
        except CannotRunError:
            return False
        self.runtimes |= {before.runtime, after.runtime}
        self.cases += 1
        try:
            found = compare(expected, after(feeds), self.limit)
        except CannotRunError as error:
            found = Comparison(f"the replacement does not run: {error}")
        self.numbers += found.numbers
        self.worst = max(self.worst, found.max_abs)
        if found.why and not self.why:
            self.why = f"{found.why}, with {label}"
        return True

    def proof(self, nothing: str = "no inputs were found on which the matched part runs") -> Proof:
        why = self.why or (nothing if self.numbers == 0 else "")
        runtimes, skipped = tuple(sorted(self.runtimes)), tuple(dict.fromkeys(self.skipped))
        return Proof(not why, why, self.cases, self.numbers, self.worst, runtimes, skipped)
