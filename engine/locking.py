"""The lock of a run: read before it when the run is held against it, written after it when it is not.

The lock lies beside the recipe. With ``--out`` a run writes into that folder and leaves the one beside the recipe
alone; ``--locked`` always reads the one beside the recipe and writes none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from engine import accept
from engine.diff import locks
from engine.diff.change import Difference
from engine.errors import RecipeError
from engine.lock import file as lock_file
from engine.lock import make
from engine.lock.model import Lock
from engine.plan import Plan
from engine.recipe import LoadedRecipe
from engine.record import Record
from engine.steps import NAMES

State = Literal["written", "unchanged", "left alone", "none", "same", "differs", "not compared"]


@dataclass(frozen=True)
class Locked:
    """What became of the lock. ``differences`` is there for ``differs``; ``why`` for a run without a lock."""

    state: State
    file: Path
    why: str = ""
    differences: Difference | None = None

    @property
    def text(self) -> str:
        """One line for people; empty when there is nothing to say."""
        texts: dict[State, str] = {
            "written": "written",
            "unchanged": "unchanged",
            "left alone": f"left as it was ({self.why})",
            "same": "the run came to what it says",
            "differs": "the run came to something else",
            "not compared": f"not compared ({self.why})",
            "none": "",
        }
        return f"lock: {self.file}: {texts[self.state]}" if texts[self.state] else ""


def require_place(loaded: LoadedRecipe, out: Path | None) -> None:
    """Refuse, before any work, what lies where the lock belongs and is no file."""
    recipe = Path(loaded.document.file)
    file = lock_file.beside(recipe if out is None else out / recipe.name)
    if file.exists() and not file.is_file():
        kind = "a folder" if file.is_dir() else "no regular file"
        raise RecipeError(f"{file}: is {kind}, where the lock of the recipe belongs", hint="move it away")


def before(loaded: LoadedRecipe, plan: Plan, until: str) -> Lock:
    """The lock that a run is to be held against. RecipeError when there is none, or it is of another recipe."""
    recipe = Path(loaded.document.file)
    file = lock_file.beside(recipe)
    if until != NAMES[-1]:
        raise RecipeError(
            f"--locked needs the whole run, and it was to stop after {until}", "leave out --until"
        )
    if not file.is_file():
        hint = f"write it first: portwright run {recipe}"
        raise RecipeError(f"{file}: there is no lock to hold the run against", hint)
    lock, document = lock_file.load(file)
    if lock.recipe.digest != plan.digest:
        what = (
            "recipe.digest: the recipe changed since the lock was written: its meaning now has the digest"
            f" {plan.digest[:12]}..., the lock {lock.recipe.digest[:12]}..."
        )
        hint = (
            "portwright diff REV:RECIPE RECIPE says what changed;"
            f" write the lock anew with portwright run {recipe}"
        )
        raise RecipeError([document.problem(("recipe", "digest"), what, hint)])
    return lock


def after(record: Record, loaded: LoadedRecipe, out: Path | None, wanted: Lock | None) -> Locked:
    """Compare a run with the lock ``wanted``; without one write its lock, unless there says the same already."""
    recipe = Path(loaded.document.file)
    file = lock_file.beside(recipe if wanted is not None or out is None else out / recipe.name)
    if not make.whole(record):
        state: State = "not compared" if wanted is not None else "left alone" if file.exists() else "none"
        return Locked(state, file, _stopped(record))
    lock = make.make(record, accept.judge(record))
    if wanted is not None:
        found = tuple(locks.changes(wanted, lock, tolerant=True))
        difference = Difference(str(file), "this run", found, kind="locks")
        return Locked("differs" if found else "same", file, differences=difference if found else None)
    if _says(file, lock):
        return Locked("unchanged", file)
    lock_file.write(lock_file.render(lock, recipe), file)
    return Locked("written", file)


def _says(file: Path, lock: Lock) -> bool:
    """Whether the lock that is there says the same; figures of another machine do not dirty it."""
    try:
        return not any(locks.changes(lock_file.read(file), lock, tolerant=True))
    except RecipeError:
        return False  # of another format, damaged, or with a conflict in it: written anew


def _stopped(record: Record) -> str:
    if record.interrupted:
        return "the run was interrupted"
    if record.failed_step:
        return f"{record.failed_step} failed"
    return f"the run stopped after {record.until}"


def plain(locked: Locked) -> dict[str, Any]:
    """For the JSON outcome."""
    from engine.diff import words

    changes = words.plain(locked.differences)["changes"] if locked.differences else []
    return {"file": str(locked.file), "state": locked.state, "why": locked.why, "changes": changes}
