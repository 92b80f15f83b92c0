"""Every recipe on the old and on the new toolchain, several at once; and the lock files of the new one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from engine import accept, formatting, intake, recipe_patch, toolchain
from engine.errors import PortwrightError, RecipeError
from engine.lock import file as lock_file
from engine.lock import make
from engine.toolchain import DISTRIBUTION
from engine.upgrade import compare
from engine.upgrade.compare import Row
from engine.upgrade.replay import How, Side, on_toolchain

Say = Callable[[str], None]


@dataclass(frozen=True)
class Task:
    """``before`` is empty where the lock is to tell it."""

    recipe: Path
    name: str
    before: str
    after: str
    out: Path


def tasks(recipes: Sequence[Path], before: str, after: str, out: Path) -> list[Task]:
    """One for each recipe, or folder that holds one. RecipeError for a bad SPEC, and where two have one name."""
    files = [path / "recipe.yaml" if path.is_dir() else path for path in recipes]
    for spec in filter(None, (before, after)):
        toolchain.require_form(spec)
    if not files:
        raise RecipeError("no recipe to upgrade", hint="portwright upgrade recipes/* --to SPEC")
    names = [_name(file) for file in files]
    for name in names:
        if names.count(name) > 1:
            raise RecipeError(f"two recipes would be upgraded as '{name}'", hint="upgrade them one after the other")
    return [Task(file, name, before, after, out / name) for file, name in zip(files, names, strict=True)]


def _name(file: Path) -> str:
    folder = file.absolute().parent.name
    return folder if file.name == "recipe.yaml" else f"{folder}-{file.stem}"


def run(todo: Sequence[Task], jobs: int, how: How, say: Say) -> list[Row]:
    """A row for each task, in their order, whatever becomes of the others."""
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        return list(pool.map(lambda task: _row(task, how, say), todo))


_SAYING = threading.Lock()


def _row(task: Task, how: How, say: Say) -> Row:
    sides: list[Side] = []
    try:
        _, plan = intake.make_plan(task.recipe)
        for spec, folder in ((task.before or locked(task.recipe), "from"), (task.after, "to")):
            task.out.mkdir(parents=True, exist_ok=True)
            side = on_toolchain(plan, spec, task.out / folder, how)
            sides.append(side)
            with _SAYING:
                say(f"{task.name}: {spec}: {side.said}")
    except (PortwrightError, OSError) as error:
        why = _why(error)
        with _SAYING:
            say(f"{task.name}: {why}")
        sides = [Side(task.before or "the locked one", why=why), Side(task.after, why=why)]
    return compare.compare(task.name, *sides)


def _why(error: PortwrightError | OSError) -> str:
    """The first problem, with its hint, on one line."""
    if isinstance(error, RecipeError):
        first = error.problems[0]
        return str(first).splitlines()[0] + (f"; {first.hint}" if first.hint else "")
    return str(error).splitlines()[0]


def locked(recipe: Path) -> str:
    """The toolchain that the recipe's lock was made with, as a SPEC. RecipeError where there is none."""
    file = lock_file.beside(recipe)
    if not file.is_file():
        raise RecipeError(f"{file}: there is no lock that tells the old toolchain", hint="give --from SPEC")
    engine = lock_file.read(file).engine
    if engine is None:
        raise RecipeError(f"{file}: the lock is of a run without an engine", hint="give --from SPEC")
    module, _, version = engine.toolchain.partition(" ")
    return f"{DISTRIBUTION[module]}=={version}"


def write(todo: Sequence[Task], rows: Sequence[Row]) -> list[str]:
    """Write the lock of every recipe as the new toolchain has it, and the version where a recipe names one.

    Nothing is written unless all are accepted. Returns a line on each file.
    """
    if not all(row.good for row in rows):
        bad = ", ".join(row.recipe for row in rows if not row.good)
        return [f"no lock was written: not accepted on the new toolchain: {bad}"]
    return [line for task, row in zip(todo, rows, strict=True) for line in _written(task, row)]


def _written(task: Task, row: Row) -> list[str]:
    done, told = row.after.record, []
    assert done is not None
    loaded, plan = intake.make_plan(task.recipe)
    here, there = toolchain.resolve(plan.build.toolchain), toolchain.resolve(task.after)
    if (here.module, here.version) != (there.module, there.version):
        home = loaded.document.place(("build", "toolchain"))
        if "==" not in plan.build.toolchain or Path(home.file).absolute() != task.recipe.absolute():
            said = f"build.toolchain is {plan.build.toolchain}, which is {here.version} here"
            return [f"{home}: no lock was written: {said}; write {task.after} there"]
        text = recipe_patch.with_toolchain(task.recipe.read_bytes().decode(), task.after, str(task.recipe))
        formatting.write(task.recipe, text)
        told.append(f"{task.recipe}: build.toolchain is {task.after}")
        _, plan = intake.make_plan(task.recipe)
    done = replace(done, plan=plan)
    target = lock_file.beside(task.recipe)
    lock_file.write(lock_file.render(make.make(done, accept.judge(done)), task.recipe), target)
    return [*told, f"{target}: written"]


def default_jobs() -> int:
    """A build keeps a core busy, and its memory: half of the cores."""
    return max(1, (os.cpu_count() or 2) // 2)
