"""A change of a lock in words, on one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from engine.diff.change import Change

Show = Callable[[Any], str]
_STAGES = {"export": "export", "simplify": "simplification", "rewrite": "rewrite", "lower": "lowering"}
_HEX = re.compile(r"[0-9a-f]{64}")


def sentence(change: Change, show: Show) -> str:
    """The change; ``show`` writes a single value."""
    section, _, part = change.key.partition(".")
    special = _SPECIAL.get(change.key) or _SPECIAL.get(section)
    if special is not None:
        return special(change, part, show)
    name = f"{section}.{change.what}" if change.what else change.key
    return f"{name}: {_pair(change, lambda value: _short(value, show))}"


def _pair(change: Change, show: Show) -> str:
    old, new = (None if side is None else show(side) for side in (change.old, change.new))
    if old is None or new is None:
        return f"{new} added" if old is None else f"{old} dropped"
    return f"{old} -> {new}"


def _short(value: Any, show: Show) -> str:
    """A digest by its first digits; a whole section that came or went by its size."""
    if isinstance(value, Mapping):
        return f"{len(value)} facts"
    return value[:12] if isinstance(value, str) and _HEX.fullmatch(value) else show(value)


def _claim(change: Change, part: str, show: Show) -> str:
    if part == "limit":
        return f"{change.what}: limit {change.old} -> {change.new}"
    label = _label(change.what)
    if part == "why":
        return f"{label} not run: {_pair(change, show)}"
    if change.old is None:
        return f"{label} {_outcome(change.new, show)} (limit {change.new['limit']}), not asked before"
    if change.new is None:
        return f"{label} no longer asked; it was {_outcome(change.old, show)}"
    if part == "value":
        old, new = (
            "no figure" if side["value"] is None else show(side["value"]) for side in (change.old, change.new)
        )
        return f"{label} {old} -> {new} (limit {change.new['limit']})"
    return (
        f"{label} {_outcome(change.old, show)} -> {_outcome(change.new, show)} (limit {change.new['limit']})"
    )


def _label(claim: str) -> str:
    """``accept.engine (rehearsed).max_abs`` as ``accept.engine.max_abs: rehearsed``."""
    found = re.fullmatch(r"(.*) \((rehearsed|measured)\)(.*)", claim)
    return f"{found[1]}{found[3]}: {found[2]}" if found else f"{claim}:"


def _outcome(claim: Mapping[str, Any], show: Show) -> str:
    words = str(claim["outcome"])
    if claim["value"] is not None:
        words += f" {show(claim['value'])}"
    return words + (f", {show(claim['why'])}" if claim["why"] else "")


def _ops(change: Change, part: str, show: Show) -> str:
    head = f"op counts after {_STAGES.get(part, part)}"
    if change.old is None or change.new is None:
        return f"{head}: {'there were none' if change.old is None else 'there are none now'}"
    return f"{head}: {_counted(change)}"


def _counted(change: Change) -> str:
    return ", ".join(f"{name} {old} -> {change.new[name]}" for name, old in change.old.items())


def _rule(change: Change, part: str, show: Show) -> str:
    if part == "order":
        return f"rewrites: order is now {', '.join(change.new)}; it was {', '.join(change.old)}"
    if part == "refused":
        return f"rewrites: {change.what} refused {change.old} -> {change.new} times"
    if change.old is None or change.new is None:
        return f"rewrites: {change.what} " + ("added" if change.old is None else "dropped")
    return f"rewrites: {change.what} matched {change.old} -> {change.new} times"


def _precision(change: Change, part: str, show: Show) -> str:
    if part == "nodes":
        if change.old is None:
            return f"{change.what}: now {change.new}, not named before"
        if change.new is None:
            return f"{change.what}: was {change.old}, not named now"
        return f"{change.what}: {change.old} -> {change.new}"
    if part == "names":
        return "precision: the nodes have other names; types compare only where both locks name a node"
    if part == "overrides":
        old, new = change.old or 0, change.new or 0
        return f"precision: {change.what} takes {old} -> {new} nodes"
    if part == "counts":
        return f"precision: nodes {_counted(change)}"
    return f"{change.key}: {_pair(change, show)}"


def _waiver(change: Change, part: str, show: Show) -> str:
    if part:
        return f"waivers: {change.what}: {part}: {_pair(change, show)}"
    if change.new is None:
        return f"waivers: {change.what} no longer waived"
    return f"waivers: {change.what} waived until {change.new['expires']} by {show(change.new['owner'])}"


def _bytes(change: Change, part: str, show: Show) -> str:
    old, new = (f"{size / 2**20:.1f} MiB" for size in (change.old, change.new))
    if old == new:
        return f"engine: {change.old:,} bytes -> {change.new:,} bytes"
    return f"engine: bytes {old} -> {new}"


def _digest(change: Change, part: str, show: Show) -> str:
    return f"recipe: it means something else (digest {change.old[:12]} -> {change.new[:12]})"


_SPECIAL: Mapping[str, Callable[[Change, str, Show], str]] = {
    "claims": _claim,
    "ops": _ops,
    "rules": _rule,
    "precision": _precision,
    "waivers": _waiver,
    "engine.bytes": _bytes,
    "recipe.digest": _digest,
}
