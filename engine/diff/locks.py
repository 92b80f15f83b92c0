"""The changes between two lock files: what a run came to then and now. Reads nothing but the two files."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.diff import loosening, revision
from engine.diff.change import Change, Difference
from engine.diff.loosening import Mark
from engine.errors import Problem, RecipeError
from engine.lock import figures
from engine.lock import file as lock_file
from engine.lock.model import Lock, LockedClaim, LockedPrecision
from engine.plain import to_plain
from engine.waivers import path_of

_VERDICTS = ("accepted", "accepted with waivers", "not accepted")
_PLAIN = ("recipe", "model", "export", "graph", "engine")  # sections whose values are compared one by one


def compare(old: str, new: str) -> Difference:
    """Compare two lock files named as in :func:`engine.diff.revision.locate`. RecipeError where one is none."""
    for one, other in ((old, new), (new, old)):
        if not revision.is_lock(one):
            what = f"{other} is a lock file and {one} a recipe; they cannot be compared"
            hint = (
                "name two recipes or two lock files; `portwright run --locked` compares a run with its lock"
            )
            raise RecipeError(what, hint)
    locks: list[Lock] = []
    found: list[Problem] = []
    with tempfile.TemporaryDirectory(prefix="portwright-diff-") as folder:
        for index, spec in enumerate((old, new)):
            scratch = Path(folder) / str(index)
            try:
                locks.append(lock_file.read(revision.locate(spec, scratch)))
            except RecipeError as error:
                found += [revision.named(problem, spec, scratch) for problem in error.problems]
    if found:
        raise RecipeError(list(dict.fromkeys(found)))
    return Difference(old, new, tuple(changes(locks[0], locks[1])), kind="locks")


def changes(old: Lock, new: Lock, tolerant: bool = False) -> Iterator[Change]:
    """Every change from ``old`` to ``new``; with ``tolerant`` not those of figures that count as equal."""
    if old.verdict != new.verdict:
        worse = _VERDICTS.index(new.verdict) > _VERDICTS.index(old.verdict)
        yield Change("verdict", old.verdict, new.verdict, "WORSE" if worse else "better")
    yield from _claims(old.claims, new.claims, tolerant)
    yield from _waivers(old, new)
    for section in _PLAIN:
        yield from _values(section, to_plain(getattr(old, section)), to_plain(getattr(new, section)))
    for stage in dict.fromkeys([*old.ops, *new.ops]):
        yield from _counts(f"ops.{stage}", old.ops.get(stage), new.ops.get(stage))
    yield from _rules(old, new)
    yield from _precision(old.precision, new.precision)
    yield from _values("packages", old.packages, new.packages)
    if old.portwright != new.portwright:
        yield Change("portwright", old.portwright, new.portwright)


def _claims(
    old: Mapping[str, LockedClaim], new: Mapping[str, LockedClaim], tolerant: bool
) -> Iterator[Change]:
    told: set[str] = set()  # a limit stands for the rehearsed and for the measured figure
    for name in dict.fromkeys([*old, *new]):
        one, other = old.get(name), new.get(name)
        if one is None or other is None:
            yield Change("claims", _figure(one), _figure(other), _came_or_went(name, other is not None), name)
            continue
        path = path_of(name)
        if one.limit != other.limit and path not in told:
            told.add(path)
            yield Change(
                "claims.limit", one.limit, other.limit, _limit_mark(path, one.limit, other.limit), path
            )
        if one.outcome != other.outcome:
            mark = _outcome_mark(one.outcome, other.outcome)
            yield Change("claims.outcome", _figure(one), _figure(other), mark, name)
        elif not (one.value == other.value or (tolerant and figures.same(name, one.value, other.value))):
            yield Change("claims.value", _figure(one), _figure(other), "", name)
        elif one.why != other.why:
            yield Change("claims.why", one.why, other.why, "", name)


def _figure(claim: LockedClaim | None) -> dict[str, Any] | None:
    return None if claim is None else {"limit": claim.limit, "outcome": claim.outcome, "value": claim.value,
                                       "why": claim.why}  # fmt: skip


def _came_or_went(name: str, came: bool) -> Mark:
    if name.startswith("require."):  # a step that had to run and did not
        return "WORSE" if came else "better"
    if name.startswith("accept."):
        return "tighter" if came else "LOOSER"
    return "" if came else "WORSE"


def _outcome_mark(old: str, new: str) -> Mark:
    if new == "pass":
        return "better"
    return "LOOSER" if (old, new) == ("fail", "waived") else "WORSE"


def _limit_mark(path: str, old: str, new: str) -> Mark:
    parts = [re.fullmatch(r"(>=|<=|==) *([0-9.e+-]+)", text) for text in (old, new)]
    if parts[0] is None or parts[1] is None:
        return "UNKNOWN DIRECTION"
    if path.startswith("accept.fusion."):
        return loosening.mark(path, old, new)
    return loosening.mark(path, float(parts[0][2]), float(parts[1][2]))


def _waivers(old: Lock, new: Lock) -> Iterator[Change]:
    before, after = ({waiver.claim: waiver for waiver in lock.waivers} for lock in (old, new))
    for claim in dict.fromkeys([*before, *after]):
        one, other = before.get(claim), after.get(claim)
        if one is None or other is None:
            yield Change(
                "waivers", to_plain(one), to_plain(other), "tighter" if other is None else "LOOSER", claim
            )
            continue
        for part in ("expires", "owner", "state"):
            values = getattr(one, part), getattr(other, part)
            if values[0] != values[1]:
                yield Change(f"waivers.{part}", *values, loosening.mark(f"waivers.{part}", *values), claim)


def _rules(old: Lock, new: Lock) -> Iterator[Change]:
    before, after = (_numbered([rule.rule for rule in lock.rules], lock.rules) for lock in (old, new))
    for name in dict.fromkeys([*before, *after]):
        one, other = before.get(name), after.get(name)
        if one is None or other is None:
            matches = tuple(None if rule is None else rule.matches for rule in (one, other))
            yield Change("rules", matches[0], matches[1], "", name[0])
            continue
        for part in ("matches", "refused"):
            values = getattr(one, part), getattr(other, part)
            if values[0] != values[1]:
                yield Change(f"rules.{part}", *values, "", name[0])
    orders = [[rule.rule for rule in lock.rules] for lock in (old, new)]
    if orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1]):
        yield Change("rules.order", orders[0], orders[1])


def _numbered(names: list[str], items: Any) -> dict[tuple[str, int], Any]:
    """Items by name and, where names repeat, by their turn."""
    found: dict[tuple[str, int], Any] = {}
    for name, item in zip(names, items, strict=True):
        found[(name, sum(other == name for other, _ in found))] = item
    return found


def _precision(old: LockedPrecision | None, new: LockedPrecision | None) -> Iterator[Change]:
    if old is None or new is None:
        if old is not new:
            yield Change("precision", old and old.base, new and new.base)
        return
    if old.base != new.base:
        yield Change("precision.base", old.base, new.base)
    if old.casts != new.casts:
        yield Change("precision.casts", old.casts, new.casts)
    yield from _counts("precision.counts", old.counts, new.counts)
    named = old.types(), new.types()
    same = old.names == new.names
    groups: dict[tuple[str | None, str | None], list[str]] = {}
    for node in sorted(named[0].keys() | named[1].keys()):
        types = (
            named[0].get(node, old.base if same else None),
            named[1].get(node, new.base if same else None),
        )
        if types[0] != types[1]:
            groups.setdefault(types, []).append(node)
    for (before, after), nodes in groups.items():
        yield Change("precision.nodes", before, after, "", _some(nodes))
    takes = [{item.selector: len(item.nodes) for item in side.overrides} for side in (old, new)]
    for selector in dict.fromkeys([*takes[0], *takes[1]]):
        counts = takes[0].get(selector), takes[1].get(selector)
        if counts[0] != counts[1]:
            yield Change("precision.overrides", *counts, "", selector)
    yield from _values("precision.quantised", to_plain(old.quantised) or {}, to_plain(new.quantised) or {})
    if not same:
        yield Change("precision.names", old.names, new.names)


def _some(nodes: list[str]) -> str:
    return ", ".join(nodes[:5]) + (f" and {len(nodes) - 5} more" if len(nodes) > 5 else "")


def _counts(key: str, old: Mapping[str, int] | None, new: Mapping[str, int] | None) -> Iterator[Change]:
    """The counts that changed, together; None where a lock has none at all."""
    if old is None or new is None:
        if old != new:
            yield Change(key, old, new)
        return
    moved = [name for name in sorted(old.keys() | new.keys()) if old.get(name, 0) != new.get(name, 0)]
    if moved:
        before, after = ({name: side.get(name, 0) for name in moved} for side in (old, new))
        yield Change(key, before, after)


def _values(key: str, old: Any, new: Any, what: str = "") -> Iterator[Change]:
    """Single values that changed; under ``files`` and ``packages`` the names are ``what``."""
    if old == new:
        return
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        yield Change(key, old, new, "", what)
        return
    for part in dict.fromkeys([*old, *new]):
        if key in ("packages", "model.files"):
            yield from _values(key, old.get(part), new.get(part), part)
        else:
            yield from _values(f"{key}.{part}", old.get(part), new.get(part))
