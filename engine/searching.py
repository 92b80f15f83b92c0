"""A search for the cheapest types, from a recipe's text to a picture of the frontier and a changed text."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import diagnosing, formatting, intake, interpret, recipe_patch
from engine.errors import RecipeError
from engine.interpret import Observer
from engine.paths import data_dir
from engine.recipe import QUANTS, LoadedRecipe
from engine.store.store import Store

PICTURE = "search.svg"
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _EDGE = 640, 360, 60, 50, 20
_LEAST, _MOST = 1e-3, 1e3  # ratios outside are drawn at the edge


@dataclass(frozen=True)
class Searched:
    """``facts`` are those of :mod:`engine.steps.search`; ``patch`` is a diff of the recipe, or empty."""

    facts: Mapping[str, Any]
    recipe: str
    picture: Path | None
    patch: str = ""
    wrote: bool = False
    refused: str = ""  # why the changed recipe would not pass its checks; it is not written then

    @property
    def good(self) -> bool:
        return self.facts.get("best") is not None


def search(path: Path, out: Path | None, observer: Observer, write: bool, store: Store | None = None) -> Searched:
    """Search for the recipe at ``path``; with ``write`` its file gets base and overrides of the cheapest that holds."""
    _require_searchable(intake.check(path))
    loaded, plan, done, folder = diagnosing.rehearsed(path, out, observer, store)
    file = Path(loaded.document.file)
    facts = interpret.search(done, folder, observer)
    if "points" not in facts:
        return Searched(facts, str(file), None)
    picture = folder / PICTURE
    draft = picture.with_name(f".{PICTURE}.part")
    draft.write_text(drawn(facts["points"], facts["best"]), encoding="utf-8")
    os.replace(draft, picture)
    if facts["best"] is None:
        return Searched(facts, str(file), picture)
    best = facts["points"][facts["best"]]
    before = file.read_bytes().decode()
    after = before
    if (best["base"], best["floats"]) != (plan.precision.base, plan.precision.floats):
        _require_own_base(str(loaded.document.place(("precision", "base")).file), file)
        after = recipe_patch.with_base(after, best["base"], best["floats"], str(file))
    if best["overrides"]:
        diagnosing.require_own_overrides(loaded, plan, file)
        after = recipe_patch.with_overrides(after, best["overrides"], str(file))
    refused = _refusal(file, after) if after != before else ""
    wrote = write and after != before and not refused
    if wrote:
        formatting.write(file, after)
    return Searched(facts, str(file), picture, diagnosing.patch(before, after, file.name), wrote, refused)


def _require_searchable(loaded: LoadedRecipe) -> None:
    """A search needs a base to change, and decides itself what is quantised."""
    precision, at = loaded.recipe.precision, loaded.document.problem
    if precision is None or precision.base is None:
        what = "precision.base: is missing; a search puts what it finds there"
        raise RecipeError([at(("precision",) if precision else (), what, "base: fp16 will do until then", key=True)])
    found = [
        at(("precision", "overrides", index, "type"),
           f"precision.overrides[{index}]: a search decides what is quantised", "take it out for the search")
        for index, item in enumerate(precision.overrides or ()) if item.type in QUANTS
    ]  # fmt: skip
    if found:
        raise RecipeError(found)


def _refusal(file: Path, text: str) -> str:
    """What the checks say of the recipe with another text; it must stand beside the files that it names."""
    draft = file.with_name(f".search-{os.getpid()}.{file.name}")
    try:
        draft.write_text(text, encoding="utf-8")
        intake.check(draft)
    except RecipeError as error:
        return str(error.problems[0].what)
    finally:
        draft.unlink(missing_ok=True)
    return ""


def _require_own_base(home: str, file: Path) -> None:
    if home != str(file):
        raise RecipeError(f"{file}: its precision.base stands in {home}", hint=f"search for {home}")


def words(found: Searched) -> Iterator[str]:
    """What was found, a line each; the table of points is :func:`rows`."""
    facts = found.facts
    if "points" not in facts:
        yield f"{found.recipe}: the search broke off: {facts.get('why', 'no reason is known')}"
        return
    yield f"{found.recipe}: {facts['rehearsals']} rehearsals of {facts['budget']}"
    yield from (f"  {note}" for note in facts["notes"])
    if unknown := max((point["cost"]["unknown"] for point in facts["points"]), default=0):
        yield f"  {unknown} tensors whose size is not known count for nothing in the cost"
    if facts["best"] is None:
        yield "none of them is within accept.engine"
    else:
        yield "the cheapest within accept.engine is marked; cost is relative to FP32, no GPU has timed it"
    if found.picture:
        yield f"picture: {found.picture}"
    if found.good and not found.patch:
        yield "the recipe says so already"
    elif found.refused:
        yield f"not written, because the recipe would be refused then: {found.refused}; by hand it would be:"
    elif found.patch:
        yield "rehearsed on the CPU, not measured on a GPU" + ("; written" if found.wrote else "; --apply writes it:")


def rows(facts: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The points as text, the cheapest first: base, exceptions, cost and its parts, error over limit, mark."""
    order = sorted(range(len(facts["points"])), key=lambda index: facts["points"][index]["cost"]["whole"])
    return [_row(facts["points"][index], index == facts["best"]) for index in order]


def _row(point: Mapping[str, Any], best: bool) -> tuple[str, ...]:
    cost, ratio = point["cost"], point["margin"]["ratio"]
    name = point["base"] if point["base"] == point["floats"] else f"{point['base']} + {point['floats']}"
    error = f"{ratio:.3g}" if ratio is not None else "not finite"
    figures = (f"{cost[key]:.3f}" for key in ("whole", "multiplications", "bytes"))
    return (name, str(len(point["overrides"])), *figures, error, "best" if best else "")


def drawn(points: Sequence[Mapping[str, Any]], best: int | None) -> str:
    """The points as SVG: cost to the right, error over limit upwards on a logarithmic scale, the limit as a line."""
    import jinja2

    most = max((point["cost"]["whole"] for point in points), default=1.0) * 1.1
    dots = []
    for index, point in enumerate(points):
        ratio = point["margin"]["ratio"]
        label = _row(point, False)[0] + (f", {len(point['overrides'])} exceptions" if point["overrides"] else "")
        x = _LEFT + (_WIDTH - _LEFT - _EDGE) * point["cost"]["whole"] / most
        dots.append({"x": f"{x:.1f}", "y": f"{_height(math.inf if ratio is None else ratio):.1f}", "label": label,
                     "fill": "#2a7" if index == best else "#36c" if ratio is not None and ratio <= 1 else "#c33",
                     **_beside(x)})  # fmt: skip
    ticks = [{"y": f"{_height(10.0**power):.1f}", "text": f"1e{power:+d}" if power else "limit", "limit": not power}
             for power in range(-3, 4)]  # fmt: skip
    marks = [{"x": f"{_LEFT + (_WIDTH - _LEFT - _EDGE) * part / 4:.1f}", "text": f"{most * part / 4:.2f}"}
             for part in range(5)]  # fmt: skip
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_dir("templates")), undefined=jinja2.StrictUndefined, autoescape=True
    )
    return environment.get_template("search.svg.j2").render(
        width=_WIDTH, height=_HEIGHT, left=_LEFT, right=_WIDTH - _EDGE, top=_EDGE, bottom=_HEIGHT - _BOTTOM,
        dots=dots, ticks=ticks, marks=marks,
    )  # fmt: skip


def _beside(x: float) -> dict[str, str]:
    """Where a point's label stands: to its right, to its left in the right half."""
    return {"anchor": "end", "dx": "-8"} if x > _WIDTH / 2 else {"anchor": "start", "dx": "8"}


def _height(ratio: float) -> float:
    kept = min(max(ratio, _LEAST), _MOST)
    span = math.log10(_MOST) - math.log10(_LEAST)
    return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _EDGE) * (math.log10(kept) - math.log10(_LEAST)) / span
