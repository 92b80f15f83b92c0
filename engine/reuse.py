"""Results of steps out of the store, and into it: the only place where keys, the store and a run's folder meet.

A step that runs the customer's Python is found in two turns: the key of what the recipe names tells which files and
packages that Python read the last time, and the key with these, as they are now, tells the result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine import keys
from engine.keys import Fields, Unknown
from engine.needs import NEEDS, READS
from engine.plan import Plan
from engine.store.store import Store
from engine.values import Issue, StepResult


@dataclass
class Reuse:
    """One run's view of the store; without one, every step runs. ``fresh`` takes nothing out of it."""

    plan: Plan
    out: Path
    store: Store | None = None
    fresh: bool = False
    asked: dict[str, Fields] = field(default_factory=dict)  # by step, before it ran
    told: int = 0

    @classmethod
    def of_request(cls, plan: Plan, out: Path, request: Mapping[str, Any]) -> Reuse:
        """In a child process: as :meth:`to_request` wrote it."""
        folder = request.get("store")
        store = Store(Path(folder), shut=request["shut"]) if folder else None
        return cls(plan, out, store, bool(request.get("fresh")))

    def to_request(self) -> dict[str, Any]:
        return {"store": str(self.store.folder) if self.store else None, "shut": bool(self.store and self.store.shut),
                "fresh": self.fresh}  # fmt: skip

    def find(self, step: str, earlier: Mapping[str, StepResult]) -> StepResult | None:
        """The stored result of a step, with its files in the run's folder; None where the step has to run."""
        if self.store is None or step not in NEEDS:
            return None
        try:
            found, whole = self.fields(step, earlier)
        except Unknown:
            return None
        self.asked[step] = found
        result = self.store.find(keys.key(whole)) if whole is not None and not self.fresh else None
        if result is None or not self.store.place(result, self.out):
            return None
        return replace(result, reused=True)

    @contextmanager
    def watching(self, step: str) -> Iterator[dict[str, Any]]:
        """While the step runs; the dict holds afterwards what the customer's Python read, where it runs any."""
        read: dict[str, Any] = {}
        if self.store is None or step not in NEEDS or READS not in NEEDS[step].more:
            yield read
            return
        from engine.watched import Watch

        with Watch(Path(self.plan.folder), (self.out, self.store.folder)) as watch:
            yield read
        read |= watch.found(self.store.seen.digest)

    def keep(self, result: StepResult, earlier: Mapping[str, StepResult]) -> None:
        """Put what a step came to into the store, unless something it follows from changed while it ran."""
        store, before = self.store, self.asked.pop(result.step, None)
        if store is None or store.shut or before is None or result.status == "failed":
            return
        try:
            now = self._fields(result.step, earlier)
        except Unknown:
            return
        whole = dict(now)
        if READS in NEEDS[result.step].more:
            read = result.facts[keys.READ]
            names = {kind: sorted(read[kind]) for kind in ("files", "packages")}
            whole[READS] = keys.read_now(names, self.plan, store.seen.digest)
            if whole[READS] != read:
                now = {}
        if now != before:
            store.troubles.append(f"{result.step} was not stored: a file that it reads was changed while it ran")
            return
        if READS in whole:
            store.hint(keys.key(now), names)
        store.put(keys.key(whole), result, self.out, self.plan.name)

    def shut(self) -> None:
        """A write failed in a child process: no other is tried."""
        if self.store is not None:
            self.store.shut = True

    def troubles(self, step: str) -> tuple[Issue, ...]:
        """What went wrong with the store since the last call, as issues of ``step``."""
        store = self.store
        if store is None:
            return ()
        new, self.told = store.troubles[self.told :], len(store.troubles)
        return tuple(
            Issue(step, "tooling", text, fix="the step was run", disposition="fixed") for text in dict.fromkeys(new)
        )

    def _fields(self, step: str, earlier: Mapping[str, StepResult]) -> Fields:
        assert self.store is not None
        return keys.fields(step, self.plan, earlier, self.store.seen.digest)

    def fields(self, step: str, earlier: Mapping[str, StepResult]) -> tuple[Fields, Fields | None]:
        """What a result follows from by name; and with what the customer's Python reads, None where that is not known.

        Raises Unknown.
        """
        found = self._fields(step, earlier)
        return found, self._with_reads(step, found)

    def _with_reads(self, step: str, found: Fields) -> Fields | None:
        assert self.store is not None
        if READS not in NEEDS[step].more:
            return found
        names = self.store.hinted(keys.key(found))
        if names is None:
            return None
        return {**found, READS: keys.read_now(names, self.plan, self.store.seen.digest)}

    def remember(self, results: Mapping[str, StepResult]) -> None:
        """Leave for ``portwright why`` what each result of this run followed from."""
        if self.store is None or self.store.shut:
            return
        followed: dict[str, Fields] = {}
        for step in results:
            if step not in NEEDS:
                continue
            try:
                found, whole = self.fields(step, results)
            except Unknown:
                continue
            followed[step] = whole or found
        self.store.remember(self.plan.recipe_file, {"at": stamp(), "steps": followed})


def stamp() -> str:
    """Now, in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
