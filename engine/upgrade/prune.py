"""What a recipe no longer needs: it is run without each of its rewrites and overrides, then without all that may go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine import diagnosing, formatting, intake, recipe_patch, toolchain
from engine.errors import RecipeError
from engine.plan import Plan
from engine.recipe import LoadedRecipe
from engine.upgrade.replay import How, Side, on_toolchain
from engine.wording import number

Say = Callable[[str], None]


@dataclass(frozen=True)
class Part:
    """One line of the recipe: a rewrite, or an override, by its index in its list."""

    key: str
    index: int
    label: str


@dataclass(frozen=True)
class Tried:
    """A run without one part. ``needed`` says why the part stays; ``cost`` what its absence changes."""

    part: Part
    side: Side
    needed: str = ""
    cost: str = ""


@dataclass(frozen=True)
class Pruned:
    """``together`` is the run without everything in ``gone``; ``patch`` is a diff of the recipe, or empty."""

    recipe: str
    whole: Side
    tried: tuple[Tried, ...] = ()
    gone: tuple[Part, ...] = ()
    together: Side | None = None
    patch: str = ""
    wrote: bool = False


def prune(path: Path, spec: str, out: Path | None, how: How, say: Say, write: bool) -> Pruned:
    """Try the recipe on the toolchain ``spec`` (empty: its own) without what it may not need.

    With ``write`` its file loses those lines. RecipeError where lists of another file would have to change.
    """
    toolchain.require_form(spec or "current")
    loaded, plan = intake.make_plan(path)
    file = Path(loaded.document.file)
    parts = _parts(loaded, plan)
    folder = out or file.parent / "port" / "prune"
    folder.mkdir(parents=True, exist_ok=True)
    spec = spec or plan.build.toolchain
    whole = on_toolchain(plan, spec, folder / "whole", how)
    say(f"as it is: {whole.said}")
    if not whole.accepted:
        return Pruned(str(file), whole)
    tried = []
    for place, part in enumerate(parts, start=1):
        side = on_toolchain(_without(plan, [part]), spec, folder / f"without-{place}", how)
        tried.append(_judged(part, whole, side))
        say(f"without {part.label}: {side.said}")
    gone, together = _together(plan, spec, [item for item in tried if not item.needed], folder, how, say)
    if not gone:
        return Pruned(str(file), whole, tuple(tried))
    before = file.read_bytes().decode()
    after = recipe_patch.without(before, [_place(part) for part in gone], str(file))
    if write:
        formatting.write(file, after)
    patch = diagnosing.patch(before, after, file.name)
    return Pruned(str(file), whole, tuple(tried), tuple(gone), together, patch, write)


def _together(
    plan: Plan, spec: str, spare: Sequence[Tried], folder: Path, how: How, say: Say
) -> tuple[list[Part], Side | None]:
    """The parts that may go together: all, or as many as one after the other leave the recipe accepted."""
    if len(spare) < 2:
        return [item.part for item in spare], spare[0].side if spare else None
    side = on_toolchain(_without(plan, [item.part for item in spare]), spec, folder / "together", how)
    say(f"without all {len(spare)}: {side.said}")
    if side.accepted:
        return [item.part for item in spare], side
    gone, kept = [spare[0].part], spare[0].side
    for place, item in enumerate(spare[1:], start=1):
        side = on_toolchain(_without(plan, [*gone, item.part]), spec, folder / f"together-{place}", how)
        if side.accepted:
            gone, kept = [*gone, item.part], side
    return gone, kept


def _parts(loaded: LoadedRecipe, plan: Plan) -> list[Part]:
    found = [Part("rewrites", index, f"rule {item.rule}") for index, item in enumerate(plan.rewrites)]
    for index, item in enumerate(plan.precision.overrides):
        selector = next(f"{kind} {value}" for kind in ("module", "op", "node") if (value := getattr(item, kind)))
        found.append(Part("overrides", index, f"override {selector}: {item.type}"))
    file = loaded.document.file
    for part in found:
        home = loaded.document.place(_place(part)).file
        if home != file:
            raise RecipeError(f"{file}: its {part.key} stand in {home}", hint=f"prune {home}")
    if not found:
        raise RecipeError(f"{file}: has no rewrites and no overrides, so there is nothing to prune")
    return found


def _place(part: Part) -> tuple[str | int, ...]:
    return ("rewrites", part.index) if part.key == "rewrites" else ("precision", "overrides", part.index)


def _without(plan: Plan, gone: Sequence[Part]) -> Plan:
    out = {(part.key, part.index) for part in gone}
    rules = tuple(item for index, item in enumerate(plan.rewrites) if ("rewrites", index) not in out)
    overrides = tuple(
        item for index, item in enumerate(plan.precision.overrides) if ("overrides", index) not in out
    )
    return replace(plan, rewrites=rules, precision=replace(plan.precision, overrides=overrides))


def _judged(part: Part, whole: Side, side: Side) -> Tried:
    if not side.accepted:
        return Tried(part, side, needed=side.said)
    return Tried(part, side, cost=_cost(whole, side))


def _cost(whole: Side, side: Side) -> str:
    """The claim that comes nearer to its limit by most, in words."""
    ours, theirs = ({claim.name: claim for claim in one.verdict.claims} if one.verdict else {}
                    for one in (whole, side))  # fmt: skip
    pairs = [(claim, theirs[name]) for name, claim in ours.items() if name in theirs]
    moved = [(other.use - one.use, one, other) for one, other in pairs if one.use is not None and other.use is not None]
    harm, one, other = max(moved, key=lambda item: item[0], default=(0.0, None, None))
    if one is None or other is None or harm <= 0:
        return "no figure is worse without it"
    return f"{one.name} goes from {number(one.value)} to {number(other.value)} ({other.limit})"
