"""The changes between two recipes, as resolved where both check, as written otherwise. Runs no model code."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine import meaning, plan, recipe, reruns, schema
from engine.diff import locks, revision
from engine.diff.change import CODE, Change, Difference
from engine.diff.loosening import mark
from engine.errors import Problem, RecipeError
from engine.plain import to_plain, without_none
from engine.plan import Plan, PlannedInput
from engine.recipe import QUANTS, LoadedRecipe

_SELECTOR = ("module", "op", "node", "nth")
_DEFAULTS: Mapping[tuple[str, ...], Callable[[Plan], Any]] = {
    ("seed",): lambda plan: plan.seed,
    ("export", "opset"): lambda plan: plan.opset,
    ("export", "exporter"): lambda plan: plan.exporter,
    ("simplify",): lambda plan: plan.simplify,
    ("precision", "base"): lambda plan: plan.precision.base,
    ("precision", "float"): lambda plan: plan.precision.floats if plan.precision.base in QUANTS else None,
    ("precision", "io"): lambda plan: plan.precision.io,
    ("build", "toolchain"): lambda plan: plan.build.toolchain,
    ("build", "time_limit_s"): lambda plan: plan.build.time_limit_s,
    ("accept", "rehearsal"): lambda plan: plan.accept.rehearsal or "every-op",
    ("bench", "rounds"): lambda plan: plan.bench.rounds,
    ("bench", "warmup"): lambda plan: plan.bench.warmup,
}


@dataclass(frozen=True)
class _Side:
    loaded: LoadedRecipe
    plan: Plan | None
    why: str


@dataclass(frozen=True)
class _View:
    """A recipe's data and, in ``defaults``, the dotted keys that it does not say itself."""

    data: dict[str, Any]
    defaults: frozenset[str] = frozenset()


def compare(old: str, new: str) -> Difference:
    """Compare two recipes, or two lock files, named as in :func:`engine.diff.revision.locate`.

    Raises RecipeError for one of the wrong form, and for a lock beside a recipe.
    """
    if revision.is_lock(old) or revision.is_lock(new):
        return locks.compare(old, new)
    with tempfile.TemporaryDirectory(prefix="portwright-diff-") as scratch:
        sides: list[_Side] = []
        found: list[Problem] = []
        for index, spec in enumerate((old, new)):
            try:
                sides.append(_load(spec, Path(scratch) / str(index)))
            except RecipeError as error:
                found += error.problems
    if found:
        raise RecipeError(list(dict.fromkeys(found)))
    before, after = sides
    why = before.why or after.why
    views = [_View(_written(side.loaded)) if why or side.plan is None else resolved(side.loaded, side.plan)
             for side in sides]  # fmt: skip
    changes = tuple(_changes(*views))
    return Difference(old, new, changes, reruns.steps(change.key for change in changes), why)


def _load(spec: str, scratch: Path) -> _Side:
    try:
        loaded = recipe.load(revision.locate(spec, scratch))
    except RecipeError as error:
        raise RecipeError([revision.named(problem, spec, scratch) for problem in error.problems]) from None
    try:
        meaning.check(loaded)
        return _Side(loaded, plan.make(loaded), "")
    except RecipeError as error:
        return _Side(
            loaded, None, f"{spec} does not check: {revision.named(error.problems[0], spec, scratch).what}"
        )


def _written(loaded: LoadedRecipe) -> dict[str, Any]:
    found: dict[str, Any] = without_none(to_plain(loaded.recipe))
    return found


def resolved(loaded: LoadedRecipe, made: Plan) -> _View:
    """As written, with defaults filled in, sample values spelled out and the digests of what the recipe names."""
    data, defaults = _written(loaded), set()
    for path, value in _DEFAULTS.items():
        holder = data
        for part in path[:-1]:
            holder = holder.setdefault(part, {})
        if path[-1] not in holder:
            holder[path[-1]] = value(made)
            defaults.add(".".join(path))
    for name, planned in made.inputs.items():
        data["inputs"][name]["values"] = _values(data["inputs"][name].get("values"), planned)
        _add_digests(data["inputs"][name], planned)
    _add_digests(data["model"], made.model)
    for entry, rewrite in zip(data.get("rewrites", ()) if made.rewrites else (), made.rewrites, strict=True):
        _add_digests(entry, rewrite)
    return _View(data, frozenset(defaults))


def _values(written: Any, planned: PlannedInput) -> Any:
    """One spelling for ``normal``, ``{normal: [0, 1]}`` and nothing."""
    if not isinstance(written, dict):
        return {"kind": planned.kind, "numbers": list(planned.numbers)}
    (kind, numbers), *more = written.items()
    return written if more or not isinstance(numbers, list) else {"kind": kind, "numbers": numbers}


def _add_digests(entry: dict[str, Any], planned: Any) -> None:
    """Digests of the files that an entry names: a changed file is a change."""
    found = list(_digests(to_plain(planned)))
    if found:
        entry[CODE] = found


def _digests(value: Any) -> Iterator[str]:
    for key, item in value.items():
        if key == "digest" and item:
            yield item
        elif isinstance(item, dict):
            yield from _digests(item)


def _changes(old: _View, new: _View) -> Iterator[Change]:
    order = {key: place for place, key in enumerate(schema.load("recipe")["properties"])}
    keys = sorted(old.data.keys() | new.data.keys(), key=lambda key: order.get(key, len(order)))
    for key in keys:
        before, after = old.data.get(key), new.data.get(key)
        if key == "rewrites" and "auto" in (before, after):
            if before != after:
                yield Change("rewrites", _rules(before), _rules(after), "", "auto")
            continue
        if key == "rewrites":
            yield from _named_list("rewrites", before or [], after or [], ("rule",))
            yield from _order("rewrites", *([entry["rule"] for entry in side or []] for side in (before, after)))
            continue
        if key == "waivers":
            yield from _named_list("waivers", before or [], after or [], ("claim",))
            continue
        if key == "stress":
            for part, name in (("add", "name"), ("leave_out", "case")):
                sides = [(side or {}).get(part) or [] for side in (before, after)]
                yield from _named_list(f"stress.{part}", sides[0], sides[1], (name,))
            continue
        if key == "precision":
            lists = [(side or {}).get("overrides") or [] for side in (before, after)]
            yield from _named_list("precision.overrides", lists[0], lists[1], _SELECTOR)
            if len({entry["type"] for entry in lists[1]}) > 1:  # of one type, their order says nothing
                yield from _order("precision.overrides", *([_selector(entry) for entry in side] for side in lists))
            before, after = (
                {k: v for k, v in (side or {}).items() if k != "overrides"} for side in (before, after)
            )
        for change in _leaves(key, before, after):
            yield replace(
                change, old_default=change.key in old.defaults, new_default=change.key in new.defaults
            )


def _leaves(key: str, old: Any, new: Any, what: str = "") -> Iterator[Change]:
    """Changes of single values; a whole entry under axes or inputs that comes or goes is one change."""
    if old == new and type(old) is type(new):
        return
    entry = key in ("axes", "inputs") and what
    whole = key == "inputs.values" or (entry and (old is None or new is None))
    mappings = [isinstance(side, dict) for side in (old, new)]
    if (
        not any(mappings)
        or not all(mapping or side is None for mapping, side in zip(mappings, (old, new)))
        or whole
    ):
        yield Change(key, old, new, mark(key, old, new), what)
        return
    before, after = old or {}, new or {}
    for part in dict.fromkeys([*after, *before]):
        if key in ("axes", "inputs") and not what:
            yield from _leaves(key, before.get(part), after.get(part), part)
        else:
            yield from _leaves(f"{key}.{part}", before.get(part), after.get(part), what)


def _named_list(key: str, old: list[Any], new: list[Any], names: tuple[str, ...]) -> Iterator[Change]:
    """Changes of a list whose entries are known by ``names`` (and, where these repeat, by their turn)."""
    before, after = _by_name(old, names), _by_name(new, names)
    for name in dict.fromkeys([*before, *after]):
        what = " ".join(f"{part} {value}" for part, value in zip(names, name) if value is not None)
        one, other = before.get(name), after.get(name)
        if one is None or other is None:
            present = one or other or {}
            yield Change(key, one, other, mark(key, one, other), what, str(present.get("because", "")))
            continue
        for part in dict.fromkeys([*other, *one]):
            if part not in names and one.get(part) != other.get(part):
                changed = (one.get(part), other.get(part))
                reason = str(other.get("because", "")) if part != "because" else ""
                yield Change(f"{key}.{part}", *changed, mark(f"{key}.{part}", *changed), what, reason)


def _by_name(entries: list[Any], names: tuple[str, ...]) -> dict[tuple[Any, ...], Any]:
    found: dict[tuple[Any, ...], Any] = {}
    for entry in entries:
        name, turn = tuple(entry.get(part) for part in names), 0
        while (*name, turn) in found:
            turn += 1
        found[(*name, turn)] = entry
    return found


def _rules(written: Any) -> str:
    """``auto``, or the names of the rules."""
    return written if written == "auto" else ", ".join(entry["rule"] for entry in written or ()) or "none"


def _order(key: str, before: list[str], after: list[str]) -> Iterator[Change]:
    """Rules work one after the other, and a later override wins: a new order of those that stay is a change."""
    stay = [name for name in before if name in after], [name for name in after if name in before]
    if stay[0] != stay[1] and sorted(stay[0]) == sorted(stay[1]):
        yield Change(key, stay[0], stay[1], "", "order")


def _selector(entry: dict[str, Any]) -> str:
    return " ".join(f"{part} {entry[part]}" for part in _SELECTOR if entry.get(part) is not None)
