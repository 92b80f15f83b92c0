"""Why a step of a recipe would run again: what its result follows from, then and now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from engine import keys
from engine.keys import Unknown
from engine.needs import NEEDS, READS, steps_of
from engine.plan import Plan
from engine.reuse import Reuse
from engine.steps import STEPS
from engine.store.store import Store
from engine.values import StepResult

State = Literal["reused", "runs", "follows", "always"]
_SHOWN = 60  # characters of a value


@dataclass(frozen=True)
class Change:
    field: str
    then: str
    now: str


@dataclass(frozen=True)
class Line:
    """``follows``: whether the step runs depends on what an earlier one comes to, which has to run first."""

    step: str
    state: State
    why: str
    changes: tuple[Change, ...] = ()


def explain(plan: Plan, store: Store) -> list[Line]:
    """One line for each step, in their order. Runs nothing."""
    last = store.remembered(plan.recipe_file)
    reuse = Reuse(plan, store.folder, store)
    earlier: dict[str, StepResult] = {}
    found: list[Line] = []
    for step in STEPS:
        if step.name not in NEEDS:
            found.append(Line(step.name, "always", "costs nothing, or is of the moment"))
            continue
        waits = [name for name in steps_of(NEEDS[step.name]) if name not in earlier]
        if waits:
            names = ", ".join(item.name for item in STEPS if item.name in waits)
            found.append(Line(step.name, "follows", f"runs unless {names} comes to the same as before"))
            continue
        line, result = _line(step.name, reuse, earlier, last)
        found.append(line)
        if result is not None:
            earlier[step.name] = result
    return found


def _line(
    step: str, reuse: Reuse, earlier: dict[str, StepResult], last: dict[str, Any]
) -> tuple[Line, StepResult | None]:
    store = reuse.store
    assert store is not None
    try:
        found, whole = reuse.fields(step, earlier)
    except Unknown as error:
        return Line(step, "runs", str(error)), None
    result = store.find(keys.key(whole)) if whole is not None else None
    if result is not None:
        return Line(step, "reused", f"of {result.ended}"), result
    then = last.get("steps", {}).get(step)
    if store.troubles:
        return Line(step, "runs", store.troubles.pop()), None
    if then is None:
        return Line(step, "runs", "no run of this recipe stored it"), None
    if whole is None:
        then = {name: value for name, value in then.items() if name != READS}
    changes = tuple(_changes("", then, whole or found))
    if not changes:
        return Line(step, "runs", "nothing changed; its result is no longer in the store"), None
    count = f"{len(changes)} change" + ("s" if len(changes) > 1 else "")
    return Line(step, "runs", f"{count} since {last['at']}", changes), None


def _changes(name: str, then: Any, now: Any) -> Iterator[Change]:
    if isinstance(then, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*then, *now]):
            yield from _changes(f"{name}.{key}" if name else key, then.get(key), now.get(key))
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for index, (one, other) in enumerate(zip(then, now, strict=True)):
            yield from _changes(f"{name}[{index}]", one, other)
    elif then != now:
        yield Change(_named(name), _shown(then), _shown(now))


def _named(name: str) -> str:
    """As a user knows it: the recipe's own key where it is one."""
    if name == "code":
        return "Portwright's own code"
    for prefix, word in (("plan.", ""), ("packages.", "version of "), ("reads.packages.", "version of "),
                         ("reads.files.", "content of "), ("files.", "content of "), ("case_files.", "content of ")):
        if name.startswith(prefix):  # fmt: skip
            return word + name.removeprefix(prefix)
    return name


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    text = str(value)
    if len(text) == 64 and set(text) <= set("0123456789abcdef"):
        return f"sha256 {text[:12]}..."
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
