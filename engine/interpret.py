"""Execute a plan: groups of steps in child processes, one after the other, until one fails.

The conductor imports neither torch nor onnx; whatever happens in a child ends as a recorded result.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine import breaches, half_sums, host, record
from engine.errors import Failure
from engine.plain import from_plain, to_plain
from engine.plan import Plan
from engine.process import Limits, Outcome, run_child
from engine.record import Record
from engine.reuse import Reuse
from engine.steps import NAMES, STEPS, Step
from engine.steps.context import Context
from engine.store import care
from engine.store.store import Store
from engine.stress import judge as hard
from engine.values import Issue, StepResult

_CAUSES = {
    "timeout": "the model or a tool hangs, or --time-limit is too short for it",
    "signal": "a crash in native code, or the machine ran out of memory",
    "exit": "the model's code ended the process",
    "memory": "the memory limit",
}
Event = Mapping[str, Any]
Observer = Callable[[Event], None]


@dataclass
class _Run:
    plan: Plan
    out: Path
    until: str
    observer: Observer
    time_limit: float | None = None
    results: dict[str, StepResult] = field(default_factory=dict)
    failed_step: str = ""
    failure: Failure | None = None
    interrupted: bool = False
    finished: bool = False
    environment: dict[str, str] = field(default_factory=record.environment)
    date: str = ""
    reuse: Reuse = field(init=False)

    def __post_init__(self) -> None:
        self.reuse = Reuse(self.plan, self.out)

    def record(self) -> Record:
        return Record(
            self.plan, tuple(self.results.values()), self.until, self.failed_step, self.failure,
            self.interrupted, self.finished, self.environment, self.date,
        )  # fmt: skip

    def keep(self, result: StepResult, write: bool = True) -> None:
        if result.step == "rehearse" and result.status == "ok":
            result = replace(result, issues=(*result.issues, *half_sums.issues(self.plan, result)))
        self.results[result.step] = result
        self.observer({"kind": "step", "result": result})
        if write:  # what came out of the store is there again for the next run
            record.write(self.record(), self.out)

    def fail(self, step: str, failure: Failure, log_tail: tuple[str, ...] = ()) -> None:
        self.failed_step, self.failure = step, failure
        issue = Issue(
            step, _klass(failure), failure.symptom, failure.cause, failure.fix,
            failure.evidence or "\n".join(log_tail[-5:]), "open",
        )  # fmt: skip
        self.keep(StepResult(step, "failed", failure.symptom, issues=(issue,), log_tail=log_tail))


def run(
    plan: Plan,
    out: Path,
    until: str,
    observer: Observer,
    time_limit: float | None = None,
    store: Store | None = None,
    fresh: bool = False,
) -> Record:
    """Run the steps up to and including ``until`` in the claimed folder ``out``.

    ``record.json`` in ``out`` is whole after every step. ``time_limit`` is in seconds, for each child process. What
    the ``store`` has is not run again; with ``fresh`` everything is run, and stored.
    """
    state = _Run(plan, out, until, observer, time_limit, date=record.today())
    state.reuse = Reuse(plan, out, store, fresh)
    record.write(state.record(), out)
    try:
        for group, steps in _groups(until):
            rest = _reused(state, steps)
            if group == "here":
                _run_here(state, rest)
            elif rest:
                run_group(state, group, rest)
            if state.failure is not None or (group == "graph" and _parity_broke(state)):
                break
    except KeyboardInterrupt:
        state.interrupted = True
    state.finished = True
    state.reuse.remember(state.results)
    if store is not None and any(not item.reused for item in state.results.values()):
        care.keep_within(store)
    finished = state.record()
    record.write(finished, out)
    return finished


def _reused(state: _Run, steps: list[Step]) -> list[Step]:
    """The steps that are left once the store has given what it has of the first ones."""
    for index, step in enumerate(steps):
        found = state.reuse.find(step.name, state.results)
        if found is None:
            if step.group != "here":
                state.reuse.troubles(step.name)  # the process that runs it comes upon them again, and tells them
            return steps[index:]
        state.keep(found, write=False)
    return []


def _groups(until: str) -> Iterator[tuple[str, list[Step]]]:
    wanted = STEPS[: NAMES.index(until) + 1]
    for group, steps in groupby(wanted, key=lambda step: step.group):
        yield group, list(steps)


def _parity_broke(state: _Run) -> bool:
    """A graph that is already wrong in FP32 is not lowered or built."""
    parity = state.results.get("parity")
    if parity is None:
        return False
    stress = state.results.get("stress")
    issues: list[Issue] = breaches.issues(parity, stress, state.plan, state.date)
    beyond: list[Issue] = []
    if stress:
        beyond += hard.beyond(hard.judge(state.plan, stress, parity))
        beyond += breaches.suspicions(parity, stress, state.plan)
    facts = dict(parity.facts)
    if issues:
        facts["located"] = _located(state, breaches.failing(parity, stress, state.plan))
        issues = breaches.placed(issues, facts["located"])
    state.results["parity"] = replace(parity, facts=facts, issues=(*parity.issues, *issues, *beyond))
    return bool(issues)


def locate(done: Record, out: Path, sample: str, observer: Observer) -> Mapping[str, Any]:
    """Where the graph of a run in ``out`` leaves the reference on a sample, by the limits of the record's plan."""
    return _located(
        _Run(done.plan, out, done.until, observer, None, {item.step: item for item in done.results}), sample
    )


def _located(state: _Run, sample: str) -> Mapping[str, Any]:
    """Where the graph leaves the reference on one failing sample; ``why`` when that could not be told."""
    return {"sample": sample} | _aside(state, "locate", "parity", {"failing": sample})


def diagnose(done: Record, out: Path, observer: Observer) -> Mapping[str, Any]:
    """Which nodes of the run in ``out`` must stay wide (see :mod:`engine.steps.diagnose`); ``why`` when it broke."""
    state = _Run(done.plan, out, done.until, observer, None, {item.step: item for item in done.results})
    return _aside(state, "diagnose", "diagnose", {})


def search(done: Record, out: Path, observer: Observer) -> Mapping[str, Any]:
    """Assignments of types for the run in ``out`` (see :mod:`engine.steps.search`); ``why`` when it broke."""
    state = _Run(done.plan, out, done.until, observer, None, {item.step: item for item in done.results})
    return _aside(state, "search", "search", {})


def _aside(state: _Run, step: str, shown: str, memo: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a step that is not on the route, run in a process of its own; ``why`` where it failed."""
    found: dict[str, Any] = {}

    def on_message(message: dict[str, Any]) -> None:
        if message["kind"] == "step":
            found.update(message["result"]["facts"])
        elif message["kind"] == "failure":
            found["why"] = Failure.from_plain(message["failure"]).symptom
        elif message["kind"] == "progress":
            state.observer(message | {"step": shown})

    outcome = _child(state, step, [step], on_message, memo)
    if outcome.kind != "ok":
        found["why"] = f"the process that looked for it {outcome.describe()}"
    return found


def run_group(state: _Run, group: str, steps: list[Step]) -> None:
    """Run the steps of one group in one child process (see :mod:`engine.host`)."""
    current = [steps[0].name]

    def on_message(message: dict[str, Any]) -> None:
        if message["kind"] == "step":
            result: StepResult = from_plain(StepResult, message["result"])
            state.keep(result)
        elif message["kind"] == "store-shut":
            state.reuse.shut()
        elif message["kind"] == "failure":
            state.fail(message["step"], Failure.from_plain(message["failure"]))
        else:
            current[0] = message.get("step", current[0])
            state.observer(message)

    outcome = _child(state, group, [step.name for step in steps], on_message)
    if outcome.kind != "ok" and state.failure is None:
        failure = Failure(
            f"the process running '{current[0]}' {outcome.describe()}",
            "tooling",
            cause=_CAUSES[outcome.kind],
            fix=f"see {state.out / 'logs' / f'{group}.log'}",
            evidence="\n".join(outcome.log_tail[-5:]),
        )
        state.fail(current[0], failure, outcome.log_tail)


def _child(
    state: _Run,
    group: str,
    steps: list[str],
    on_message: Callable[[dict[str, Any]], None],
    memo: Mapping[str, Any] = MappingProxyType({}),
) -> Outcome:
    """Run steps in a child process of their own, which logs to ``logs/GROUP.log``."""
    request = {
        "plan": to_plain(state.plan),
        "out": str(state.out),
        "steps": steps,
        "earlier": [to_plain(result) for result in state.results.values()],
        "memo": dict(memo),
        **state.reuse.to_request(),
    }
    log = state.out / "logs" / f"{group}.log"
    command = [sys.executable, "-P", "-m", "engine.host"]
    limits = Limits(seconds=state.time_limit)
    return run_child(command, request, log=log, limits=limits, on_message=on_message, env=_environment())


def _environment() -> dict[str, str]:
    # The child must find this very package, also when it is run from a checkout.
    package = str(Path(__file__).resolve().parent.parent)
    others = os.environ.get("PYTHONPATH", "")
    return os.environ | {"PYTHONPATH": package + (os.pathsep + others if others else "")}


def _run_here(state: _Run, steps: list[Step]) -> None:
    for step in steps:
        state.observer({"kind": "step-start", "step": step.name})

        def progress(text: str, done: int, total: int, name: str = step.name) -> None:
            state.observer({"kind": "progress", "step": name, "text": text, "done": done, "total": total})

        context = Context(state.plan, state.out, dict(state.results), progress)
        result, failure = host.reused_or_run(step.name, context, state.reuse)
        if failure is not None:
            state.fail(step.name, failure, tuple(failure.evidence.splitlines()[-20:]))
            return
        if result is not None:
            state.keep(result, write=result.status == "ok")


def _klass(failure: Failure) -> Any:
    return failure.klass if failure.klass in ("op", "shape", "numeric", "export", "tooling") else "tooling"
