"""Two runs of one recipe, before and after: what changed, and whether it is for the better. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine import needed
from engine.claims import Claim
from engine.diff import locks
from engine.diff.change import Change
from engine.rules import library, summary
from engine.upgrade.replay import Side
from engine.wording import number

Status = Literal["unchanged", "better", "worse", "broke", "fixed", "failing on both", "not compared"]

# A difference below these is said, and makes nothing better or worse.
ERROR_MOVES = 0.10  # of a claim's figure: rounding elsewhere in the same plan moves it by a few percent
LIMIT_MOVES = 0.01  # of its limit: what is far from the limit may move by more
BYTES_MOVE = 0.05  # of the engine: tactics and padding change from build to build of two versions
_UNTOLD = ("engine.toolchain", "packages", "recipe.digest")


@dataclass(frozen=True)
class Row:
    """``changes`` are those of the lock; ``notes`` say in words what made the status."""

    recipe: str
    status: Status
    before: Side
    after: Side
    notes: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    findings_new: tuple[str, ...] = ()
    findings_gone: tuple[str, ...] = ()
    unneeded: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether the recipe may go on: it is accepted afterwards."""
        return self.after.accepted


def compare(recipe: str, before: Side, after: Side) -> Row:
    """One row of the table."""
    changes: tuple[Change, ...] = ()
    one, other = before.lock, after.lock
    if one is not None and other is not None:
        changes = tuple(item for item in locks.changes(one, other, tolerant=True) if item.key not in _UNTOLD)
    status, notes = _status(before, after)
    findings = _findings(before), _findings(after)
    return Row(
        recipe, status, before, after, tuple(notes), changes,
        tuple(text for key, text in findings[1].items() if key not in findings[0]),
        tuple(text for key, text in findings[0].items() if key not in findings[1]),
        tuple(_unneeded(before, after)),
    )  # fmt: skip


def _status(before: Side, after: Side) -> tuple[Status, list[str]]:
    if before.record is None or after.record is None:
        return "not compared", [f"{side.spec}: {side.why}" for side in (before, after) if side.why]
    if before.accepted != after.accepted:
        side = after if before.accepted else before
        return ("broke" if before.accepted else "fixed"), [f"{side.spec}: {side.said}"]
    if not after.accepted:
        return "failing on both", [f"{side.spec}: {side.said}" for side in (before, after)]
    worse, better = _moves(before, after)
    return ("worse" if worse else "better" if better else "unchanged"), worse + better


def _moves(before: Side, after: Side) -> tuple[list[str], list[str]]:
    """What is worse, and what is better."""
    found: tuple[list[str], list[str]] = [], []
    for name, (one, other) in _claims(before, after).items():
        if one.status != other.status:
            found[other.status == "pass"].append(f"{name}: {one.status} -> {other.status}")
        elif one.use is not None and other.use is not None:
            moved = other.use - one.use
            if abs(moved) > max(ERROR_MOVES * one.use, LIMIT_MOVES):
                found[moved < 0].append(f"{name}: {number(one.value)} -> {number(other.value)} ({other.limit})")
    sizes = [side.record.facts("build").get("engine_bytes", 0) for side in (before, after) if side.record]
    if sizes[0] and abs(sizes[1] / sizes[0] - 1) > BYTES_MOVE:
        found[sizes[1] < sizes[0]].append(f"engine {sizes[0]:,} -> {sizes[1]:,} bytes")
    fused = [side.record.facts("build").get("fusion", {}).get("attention") for side in (before, after) if side.record]
    if None not in fused and fused[0] != fused[1]:
        found[fused[1] > fused[0]].append(f"fused attentions {fused[0]} -> {fused[1]}")
    return found


def _claims(before: Side, after: Side) -> Mapping[str, tuple[Claim, Claim]]:
    sides = [{claim.name + claim.limit: claim for claim in side.verdict.claims} if side.verdict else {}
             for side in (before, after)]  # fmt: skip
    return {claim.name: (claim, sides[1][key]) for key, claim in sides[0].items() if key in sides[1]}


def _findings(side: Side) -> dict[str, str]:
    """What the build said, by its text without numbers that change from run to run."""
    texts: list[str] = side.record.facts("build").get("findings", []) if side.record else []
    return {re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?", "#", text): text for text in texts}


def _unneeded(before: Side, after: Side) -> list[str]:
    """Rules of the library that the recipe applies, and that by their own word only the first toolchain needs."""
    built = [side.record.facts("build") if side.record else {} for side in (before, after)]
    if "module" not in built[1] or before.record is None:
        return []
    rules = [rewrite.rule for rewrite in before.record.plan.rewrites]
    return [rule for rule in rules if rule in library.names() and not _needs(rule, built[1])]


def _needs(rule: str, built: Mapping[str, Any]) -> bool:
    wanted = summary.read(library.path_of(rule)).needed_by
    return set(wanted.values()) == {"never"} or needed.needs(wanted, built["module"], built["version"])
