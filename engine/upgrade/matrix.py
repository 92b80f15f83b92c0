"""A recipe on every toolchain with every target of its ``matrix``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from engine import intake
from engine.errors import RecipeError
from engine.upgrade import report
from engine.upgrade.replay import How, Side, on_toolchain

Say = Callable[[str], None]
COLUMNS = ("toolchain", "target", "verdict", "error / limit", "engine MiB", "build s", "loads with")


@dataclass(frozen=True)
class Cell:
    """``target`` is empty where the engine is built for no single one."""

    target: str
    side: Side


def run(path: Path, out: Path | None, how: How, say: Say) -> list[Cell]:
    """Run each pair in a folder of its own. RecipeError for a recipe without a matrix."""
    loaded, plan = intake.make_plan(path)
    matrix = loaded.recipe.matrix
    if matrix is None:
        where = loaded.document.file
        raise RecipeError(f"{where}: the recipe has no matrix", hint="matrix: {targets: [sm86, sm89]}")
    folder = out or Path(loaded.document.file).parent / "port" / "matrix"
    specs: Sequence[str] = matrix.toolchains or (plan.build.toolchain,)
    targets: Sequence[str | None] = matrix.targets or (plan.build.target,)
    cells: list[Cell] = []
    for spec, target in product(dict.fromkeys(specs), dict.fromkeys(targets)):
        name = re.sub(r"[^\w.=-]+", "-", f"{spec}-{target or 'any'}").strip("-")
        (folder / name).mkdir(parents=True, exist_ok=True)
        planned = replace(plan, build=replace(plan.build, target=target))
        side = on_toolchain(planned, spec, folder / name, how)
        say(f"{spec}, {target or 'any target'}: {side.said}")
        cells.append(Cell(target or "", side))
    return cells


def table(cells: Sequence[Cell]) -> list[dict[str, str]]:
    """The cells of :data:`COLUMNS`."""
    rows = [(cell.side.spec, cell.target or "any", *report.figures(cell.side)) for cell in cells]
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]
