"""Which axes can be dynamic: each is tried at two other sizes, alone and together with those it may be tied to."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.initial.attempts import Bench, Trial
from engine.initial.watch import Need
from engine.recipe import Axis

Position = tuple[str, int]  # an input and its axis
_ROLES = {"batch": (1, 4, 16), "seq": (1, 32, 128), "other": (1, 8, 32)}
# What the name of an axis says of it, where somebody has given one.
_SPOKEN = {"batch": "batch", "seq": "seq|len|time|token|frames|past", "space": "^(height|width|depth|[hwd])$"}


@dataclass
class Group:
    """Positions that have one size. ``tried`` are sizes at which the model ran, ``notes`` become comments."""

    name: str
    places: list[Position]
    role: str
    size: int
    tried: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    axis: Axis = field(default_factory=lambda: Axis(1, 1, 1))
    asked: bool = False


def find(
    bench: Bench, trials: Mapping[str, Trial], met: Mapping[str, Sequence[Need]]
) -> tuple[list[Group], dict[Position, str]]:
    """Groups of positions that can change, and why each other position cannot."""
    why = {(name, axis): reason for name, trial in trials.items() for axis, reason in trial.fixed.items()}
    open_places = [(name, axis) for name, trial in trials.items()
                   for axis in range(len(trial.shape)) if (name, axis) not in why]  # fmt: skip
    units = _units(trials, open_places)
    alone = [unit for unit in units if _runs(bench, trials, unit)]
    groups = [list(unit) for unit in alone]
    tied = [unit for unit in units if unit not in alone]
    while tied:
        unit = tied.pop(0)
        peers = [other for other in tied if _size(trials, other[0]) == _size(trials, unit[0])]
        more = [other for other in alone if _size(trials, other[0]) == _size(trials, unit[0])]
        found = _together(bench, trials, unit, peers) or _together(bench, trials, unit, peers + more)
        if found:
            groups = [group for group in groups if not set(group) & set(found)] + [found]
            tied = [other for other in tied if not set(other) & set(found)]
        else:
            why |= dict.fromkeys(unit, _reason(bench, trials, unit))
    groups = _merged(bench, trials, groups)
    groups.sort(key=lambda group: min(open_places.index(place) for place in group))
    return _named(groups, trials, met), why


def _units(trials: Mapping[str, Trial], places: Sequence[Position]) -> list[list[Position]]:
    """Places that can only change together: those for which a file has one symbol."""
    units: dict[object, list[Position]] = {}
    for name, axis in places:
        units.setdefault(trials[name].tied.get(axis, (name, axis)), []).append((name, axis))
    return list(units.values())


def _merged(
    bench: Bench, trials: Mapping[str, Trial], groups: Sequence[list[Position]]
) -> list[list[Position]]:
    """Join groups that the user or a docstring calls by one name, where the model runs with them joined."""
    merged: dict[str, list[Position]] = {}
    for index, places in enumerate(groups):
        name = next((trials[n].named[a] for n, a in places if a in trials[n].named), "")
        together = [*merged.get(name, []), *places]
        same = len({_size(trials, place) for place in together}) == 1
        fits = name and (name not in merged or (same and _runs(bench, trials, together)))
        merged[name if fits else f" {index}"] = together if fits else places
    return list(merged.values())


def resized(trials: Mapping[str, Trial], sizes: Mapping[Position, int]) -> dict[str, Trial]:
    """A copy of ``trials`` with other sizes at some positions."""
    changed = copy.deepcopy(dict(trials))
    for (name, axis), size in sizes.items():
        changed[name].shape[axis] = size
    return changed


def _size(trials: Mapping[str, Trial], place: Position) -> int:
    return trials[place[0]].shape[place[1]]


def others(size: int) -> tuple[int, int]:
    """Two sizes other than ``size``; neither is 1, which would broadcast, nor even for both."""
    return size + 1, size * 2


def _runs(bench: Bench, trials: Mapping[str, Trial], places: Sequence[Position]) -> bool:
    return all(
        bench.works(resized(trials, dict.fromkeys(places, size))) for size in others(_size(trials, places[0]))
    )


def _together(
    bench: Bench, trials: Mapping[str, Trial], unit: list[Position], peers: Sequence[list[Position]]
) -> list[Position]:
    """The fewest peers that must change with ``unit``; empty when even all of them are not enough."""
    chosen = [unit, *peers]
    if not peers or not _runs(bench, trials, _flat(chosen)):
        return []
    for peer in peers:
        fewer = [other for other in chosen if other != peer]
        if _runs(bench, trials, _flat(fewer)):
            chosen = fewer
    return _flat(chosen)


def _flat(units: Sequence[list[Position]]) -> list[Position]:
    return [place for unit in units for place in unit]


def _reason(bench: Bench, trials: Mapping[str, Trial], unit: Sequence[Position]) -> str:
    size = _size(trials, unit[0])
    plus, double = others(size)
    errors = {wanted: bench.run(resized(trials, dict.fromkeys(unit, wanted)), watched=False).error
              for wanted in (plus, double)}  # fmt: skip
    if errors[plus] and not errors[double]:
        return f"runs at {size} and {double} but not at {plus}, and an axis cannot ask for multiples"
    refused = plus if errors[plus] else double
    return f"does not run at {refused}: {errors[refused]}"


def _named(
    groups: Sequence[list[Position]], trials: Mapping[str, Trial], met: Mapping[str, Sequence[Need]]
) -> list[Group]:
    named: list[Group] = []
    for places in groups:
        name, axis = places[0]
        given = next((trials[n].named[a] for n, a in places if a in trials[n].named), "")
        word, role = _role(trials[name], axis, met.get(name, ()))
        word = given or word
        if any(group.name == word for group in named):
            word = f"{name}_{word}"
        while any(group.name == word for group in named):
            word += "_"
        named.append(Group(word, places, role, _size(trials, places[0])))
    return named


def _role(trial: Trial, axis: int, met: Sequence[Need]) -> tuple[str, str]:
    """Name and role of an axis by convention, or by what the module that takes the input says."""
    rank = len(trial.shape)
    for role, pattern in _SPOKEN.items():
        if re.search(pattern, trial.named.get(axis, ""), re.IGNORECASE):
            return trial.named[axis], role
    batch = next((need.batch for need in met if need.batch is not None and need.rank == rank), 0)
    if axis == batch:
        return "batch", "batch"
    if rank >= 4 and axis >= 2:
        return ("depth", "height", "width")[axis - rank + 3], "space"
    if rank == 3 and any(1 in need.sizes and need.rank == 3 for need in met):
        return "length", "seq"
    if rank <= 3:
        return "seq", "seq"
    return f"axis{axis}", "other"


def choose(bench: Bench, trials: Mapping[str, Trial], groups: list[Group], asked: Mapping[str, Axis]) -> None:
    """Give each group a range whose ends the model runs at, then see that it runs with all at their ends."""
    for group in groups:
        if group.name in asked:
            group.axis, group.asked = asked[group.name], True
            continue
        low, opt, high = _wanted(group)
        low, high = (
            _reach(bench, trials, group, end) for end in (min(low, group.size), max(high, group.size))
        )
        group.axis = Axis(low, group.size if opt < low else min(opt, high), high)
    _require_corners(bench, trials, groups)


def _wanted(group: Group) -> tuple[int, int, int]:
    if group.role == "space":
        return max(1, group.size // 2), group.size, group.size * 2
    return _ROLES[group.role]


def _reach(bench: Bench, trials: Mapping[str, Trial], group: Group, wanted: int) -> int:
    """The size nearest to ``wanted`` that the model runs at, halving the way there from one that it runs at."""
    runs, fails = (wanted, wanted) if _at(bench, trials, group, wanted) else (group.size, wanted)
    while abs(fails - runs) > 1:
        middle = (runs + fails) // 2
        runs, fails = (middle, fails) if _at(bench, trials, group, middle) else (runs, middle)
    if fails != runs:
        error = bench.run(resized(trials, dict.fromkeys(group.places, fails)), watched=False).error
        group.notes.append(f"It ends at {runs}, because the model does not run at {fails}: {error}")
    return runs


def _at(bench: Bench, trials: Mapping[str, Trial], group: Group, size: int) -> bool:
    return bench.works(resized(trials, dict.fromkeys(group.places, size)))


def at_ends(trials: Mapping[str, Trial], groups: Sequence[Group], end: str) -> dict[str, Trial]:
    """Trials with every group at its ``min``, ``opt`` or ``max``."""
    sizes = {place: int(getattr(group.axis, end)) for group in groups for place in group.places}
    return resized(trials, sizes)


def _require_corners(bench: Bench, trials: Mapping[str, Trial], groups: Sequence[Group]) -> None:
    free = [group for group in groups if not group.asked]
    if not bench.works(at_ends(trials, groups, "min")):
        for group in free:
            group.axis = Axis(group.size, max(group.size, group.axis.opt), max(group.size, group.axis.max))
            group.notes.append("Smaller sizes run only while the other axes are large.")
    if not bench.works(at_ends(trials, groups, "max")):
        for group in free:
            largest = max(group.size, group.axis.min)
            group.axis = Axis(group.axis.min, min(group.axis.opt, largest), largest)
            group.notes.append("Larger sizes run only while the other axes are small.")
