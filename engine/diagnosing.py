"""A diagnosis from a recipe's text to its changed text."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import formatting, interpret, recipe_patch, record, route
from engine.checks import hardware
from engine.errors import RecipeError
from engine.intake import make_plan
from engine.interpret import Observer
from engine.plan import Plan
from engine.recipe import LoadedRecipe
from engine.record import Record
from engine.store.store import Store

_UNTIL = "rehearse"


@dataclass(frozen=True)
class Diagnosis:
    """``facts`` are those of :mod:`engine.steps.diagnose`; ``patch`` is a diff of the recipe, or empty."""

    facts: Mapping[str, Any]
    recipe: str
    patch: str = ""
    wrote: bool = False
    narrow: tuple[str, ...] = ()  # places of the overrides that hold nodes narrow

    @property
    def good(self) -> bool:
        return self.facts.get("verdict") in ("fine", "found", "kinds")


def diagnose(
    path: Path, out: Path | None, observer: Observer, write: bool, store: Store | None = None
) -> Diagnosis:
    """Diagnose the recipe at ``path``; with ``write`` its file gets the overrides that were found."""
    loaded, plan, done, folder = rehearsed(path, out, observer, store)
    file = Path(loaded.document.file)
    facts = interpret.diagnose(done, folder, observer)
    if "overrides" not in facts:
        places = [
            loaded.document.place(("precision", "overrides", index)) for index in facts.get("narrow", ())
        ]
        return Diagnosis(facts, str(file), narrow=tuple(map(str, places)))
    before = file.read_bytes().decode()
    require_own_overrides(loaded, plan, file)
    after = recipe_patch.with_overrides(before, facts["overrides"], str(file))
    if write:
        formatting.write(file, after)
    return Diagnosis(facts, str(file), patch(before, after, file.name), write)


def patch(before: str, after: str, name: str) -> str:
    """The change of a file as a unified diff."""
    lines = before.splitlines(True), after.splitlines(True)
    return "".join(difflib.unified_diff(*lines, f"a/{name}", f"b/{name}"))


def rehearsed(
    path: Path, out: Path | None, observer: Observer, store: Store | None = None
) -> tuple[LoadedRecipe, Plan, Record, Path]:
    """The recipe, its plan, and the record of a run of it up to the rehearsal with the folder that it is in."""
    loaded, plan = make_plan(path)
    if found := hardware.asked(loaded):
        raise RecipeError(found)
    folder = (out or Path(loaded.document.file).parent / "port").resolve()
    done = _run_of(plan, folder)
    if done is None:
        done = route.run(path, out, _UNTIL, (), observer, store=store).record
    if done.interrupted:
        raise KeyboardInterrupt
    _require_rehearsed(done, loaded, folder)
    return loaded, plan, done, folder


def _run_of(plan: Plan, folder: Path) -> Record | None:
    """The record of a run in ``folder``, if it is one of this very plan, came to a rehearsal and has its files."""
    if not (folder / record.FILE).is_file():
        return None
    try:
        done = record.read(folder)
        files = [folder / item.path for result in done.results for item in result.artifacts.values()]
        route.require_unchanged(done, folder, [item for item in files if item.suffix in (".onnx", ".npz")])
    except RecipeError:
        return None
    return done if done.plan == plan and done.result(_UNTIL) is not None else None


def require_own_overrides(loaded: LoadedRecipe, plan: Plan, file: Path) -> None:
    """A list in a variant would take the place of the one in the recipe that it extends."""
    home = loaded.document.place(("precision", "overrides")).file
    if plan.precision.overrides and home != str(file):
        raise RecipeError(
            f"{file}: its precision.overrides stand in {home}; a list here would replace them",
            hint=f"diagnose {home}, or write the overrides out in {file}",
        )


def _require_rehearsed(done: Record, loaded: LoadedRecipe, folder: Path) -> None:
    if done.failure is not None:
        raise RecipeError(route.explain(done.failure, loaded, folder / "logs"))
    if done.result(_UNTIL) is None:
        where = loaded.document.file
        raise RecipeError(
            f"{where}: the graph is wrong in FP32 already, so this is not about precision",
            hint="see the report: which stage broke it, and at which node",
        )


def words(found: Diagnosis) -> Iterator[str]:
    """What was found, a line each."""
    facts = found.facts
    verdict = facts.get("verdict", "")
    if not verdict:
        yield f"{found.recipe}: the diagnosis broke off: {facts.get('why', 'no reason is known')}"
        return
    base, before, after = facts["base"].upper(), facts["before"], facts["after"]
    yield f"{found.recipe}: {_margin(before)} in {base}; {facts['rehearsals']} rehearsals"
    if verdict == "fine":
        yield "nothing to mend: the rehearsal is within accept.engine"
    elif verdict == "not precision":
        yield f"not a matter of precision: in FP32 throughout it is {_margin(after)}"
        yield "the limit is below what this graph gives in FP32: look at accept.engine, or at the steps before lower"
    elif verdict == "overrides":
        held = "the recipe's own overrides hold narrow what must be wide"
        yield f"with all else in {facts['wider'].upper()} it is {_margin(after)}: {held}"
        yield from (f"  {place}" for place in found.narrow)
    elif verdict == "spread":
        yield f"the error is spread over the graph ({facts['of']} nodes): neither a few of them nor a kind of layer in "
        yield f"{facts['wider'].upper()} is enough; choose another precision.base, or a looser limit"
    elif verdict == "unconfirmed":
        yield f"the overrides that were found did not hold when rehearsed: {_margin(after)}"
    else:
        nodes = facts["takes"]
        many = f"{len(nodes)} of {facts['of']} nodes" if len(nodes) > 1 else f"1 of {facts['of']} nodes"
        also = f" and {len(facts['also'])} in FP32" if facts["also"] else ""
        yield f"with {many} in {facts['wider'].upper()}{also}: {_margin(after)}"
        shown = ", ".join(nodes[:8]) + (f" and {len(nodes) - 8} more" if len(nodes) > 8 else "")
        yield f"  nodes: {shown}"
        tensors = facts["tensors"]
        if verdict == "kinds":
            yield "  the error is spread over the graph; these kinds of layers are enough, and fewer may be"
        elif tensors:
            yield f"  they keep wide: {', '.join(tensors[:8])}" + (
                f" and {len(tensors) - 8} more" if len(tensors) > 8 else ""
            )
        yield "rehearsed on the CPU, not measured on a GPU" + (
            "; written" if found.wrote else "; --apply writes it:"
        )


def _margin(margin: Mapping[str, Any]) -> str:
    where = f" ({margin['where']})" if margin["where"] else ""
    if margin["ratio"] is None:
        return f"outside the limits: {margin['what']}{where}"
    if margin["value"] is None:
        return f"without a limit to hold{where}"
    return f"{margin['what']} {margin['value']:.3g}, {margin['ratio']:.3g} x its limit{where}"
