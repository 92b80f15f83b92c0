"""``init`` on one page: asked -> explored (in a child) -> measured (in children) -> checked -> written."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import intake
from engine.errors import Failure, RecipeError, StepError
from engine.initial import draft, measure
from engine.initial.asked import Asked
from engine.initial.findings import Findings
from engine.paths import data_dir
from engine.plain import from_plain, to_plain
from engine.process import Limits, run_child

FILE = "recipe.yaml"
SCHEMA = "recipe.schema.json"
EXPLORE_SECONDS = 1800.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class Written:
    """What came of it: the recipe, and the lines in it that ask for a decision."""

    recipe: Path
    decisions: tuple[str, ...]


def run(asked: Asked, folder: Path, force: bool, say: Say) -> Written:
    """Explore, measure and write ``recipe.yaml`` into ``folder``.

    Raises RecipeError for what the user can mend, StepError for what the model does.
    """
    target = folder / FILE
    if target.is_dir():
        raise RecipeError(
            f"{target}: is a folder, so no recipe can be written there", hint="give another -o DIR"
        )
    if target.exists() and not force:
        raise RecipeError(
            f"{target}: is there already", hint="give --force to overwrite it, or another -o DIR"
        )
    _require_writable(folder)
    with tempfile.TemporaryDirectory(prefix="portwright-init-") as scratch:
        found = explore(asked, Path(scratch), say)
        choices = measure.choose(asked, found, Path(scratch).resolve() / "draft", say)
    folder.mkdir(parents=True, exist_ok=True)
    text = draft.text(asked, found, choices, folder.resolve(), _schema_for(folder, force))
    _write(target, text)
    return Written(target, tuple(draft.decisions(text)))


def _require_writable(folder: Path) -> None:
    """Minutes of work are not to be lost to a folder that takes no file. Makes nothing that stays."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(place))
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise RecipeError(
            f"{folder}: cannot be written to: {error.strerror}", hint="give another -o DIR"
        ) from None


def explore(asked: Asked, scratch: Path, say: Say) -> Findings:
    """Run the exploration in a child process: whatever the model does to it ends as an error here."""

    def on_message(message: dict[str, Any]) -> None:
        if message["kind"] == "progress":
            say(message["text"])

    command = [sys.executable, "-P", "-m", "engine.initial.child"]
    outcome = run_child(
        command,
        {"asked": to_plain(asked)},
        log=scratch / "init.log",
        limits=Limits(seconds=EXPLORE_SECONDS),
        on_message=on_message,
        env=_environment(),
    )
    if outcome.kind != "ok":
        tail = "\n".join(f"        {line}" for line in outcome.log_tail[-5:])
        raise StepError(f"the process that ran the model {outcome.describe()}", cause=tail)
    if "failure" in outcome.result:
        raise StepError(Failure.from_plain(outcome.result["failure"]))
    found: Findings = from_plain(Findings, outcome.result["findings"])
    return found


def _environment() -> dict[str, str]:
    # The child must find this very package, also when it is run from a checkout.
    package = str(Path(__file__).resolve().parents[2])
    others = os.environ.get("PYTHONPATH", "")
    return os.environ | {"PYTHONPATH": package + (os.pathsep + others if others else "")}


def _schema_for(folder: Path, force: bool) -> str:
    """What the first line points editors at: the shipped schema in the same checkout, else a copy beside."""
    shipped = data_dir("schemas").resolve() / SCHEMA
    checkout = shipped.parent.parent
    if checkout in folder.resolve().parents:
        return draft.relative(str(shipped), folder.resolve())
    beside = folder / SCHEMA
    if force or not beside.exists():
        shutil.copyfile(shipped, beside)
    return SCHEMA


def _write(target: Path, text: str) -> None:
    """Write whole or not at all, and only what passes ``check``: otherwise the fault is ours."""
    part = target.with_name(f".{target.name}.part")
    part.write_text(text, encoding="utf-8")
    try:
        intake.check(part)
        os.replace(part, target)
    except RecipeError as error:
        failure = Failure(f"init wrote a recipe that does not pass check:\n{error}", bug=True)
        raise StepError(failure) from error
    finally:
        part.unlink(missing_ok=True)
