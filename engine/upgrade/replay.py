"""One recipe run on one toolchain, whatever becomes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from engine import accept, interpret, record, report, toolchain, workspace
from engine.accept import Verdict
from engine.errors import RecipeError
from engine.interpret import Observer
from engine.lock import make
from engine.lock.model import Lock
from engine.plain import to_plain
from engine.plan import Plan
from engine.record import Record
from engine.steps import NAMES
from engine.store.store import Store


@dataclass(frozen=True)
class Side:
    """What a recipe came to on the toolchain ``spec``; without a record ``why`` says what kept it from running."""

    spec: str
    record: Record | None = None
    verdict: Verdict | None = None
    folder: str = ""
    why: str = ""

    @property
    def accepted(self) -> bool:
        return self.verdict is not None and self.verdict.accepted

    @property
    def said(self) -> str:
        """One line: the verdict, with what failed, or why there is none."""
        if self.record is None or self.verdict is None:
            return self.why
        failure = self.record.failure
        return f"{self.verdict.headline}: {failure.symptom}" if failure else self.verdict.headline

    @property
    def lock(self) -> Lock | None:
        """What `portwright run` would lock; None where the run did not come to its end."""
        if self.record is None or not make.whole(self.record):
            return None
        return make.make(self.record, accept.judge(self.record))


@dataclass(frozen=True)
class How:
    """``seconds`` is a limit for each process of a run, the build included; None leaves the recipe's own."""

    observer: Observer
    store: Store | None = None
    seconds: float | None = None


def on_toolchain(plan: Plan, spec: str, folder: Path, how: How) -> Side:
    """Run ``plan`` on the toolchain ``spec``. What no toolchain has a part in comes out of the store."""
    try:
        toolchain.resolve(spec)
    except RecipeError as error:
        return Side(spec, why=error.problems[0].what)
    build = replace(plan.build, toolchain=spec)
    if how.seconds is not None:
        build = replace(build, time_limit_s=min(build.time_limit_s, max(1, int(how.seconds))))
    return run(replace(plan, build=build), folder, how)


def run(plan: Plan, folder: Path, how: How) -> Side:
    """Run ``plan`` in ``folder``, with a report there. RecipeError when the folder cannot be used."""
    with workspace.claim(folder, aside=how.store is not None):
        done = interpret.run(plan, folder.resolve(), NAMES[-1], how.observer, how.seconds, how.store)
        verdict = accept.judge(done)
        record.write(done, folder, {"verdict": to_plain(verdict)})
        report.write(done, verdict, folder, folder / "PORT_REPORT.md", how.store)
    if done.interrupted:
        raise KeyboardInterrupt
    return Side(plan.build.toolchain, done, verdict, str(folder))
