"""Waivers: claims of ``accept`` that may fail for a while, each with an owner, a reason and a last day.

A waiver covers a figure beyond its limit. It never covers a figure that is missing or not finite, and it
counts up to and including its last day, by the date on which the run started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from engine.claims import Claim
from engine.recipe import Accept, Waiver

State = Literal["used", "unused", "expired", "refused"]


@dataclass(frozen=True)
class WaiverUse:
    """What became of one waiver; ``why`` says it in words."""

    claim: str
    owner: str
    because: str
    expires: str
    state: State
    why: str


def known(accept: Accept) -> tuple[str, ...]:
    """Every claim of ``accept`` that a waiver can name."""
    found = []
    for part in ("onnx", "engine", "fusion"):
        group = getattr(accept, part)
        names = [field.name for field in fields(group)] if group else []
        found += [f"accept.{part}.{name}" for name in names if getattr(group, name) is not None]
    alone = [f"accept.{name}" for name in ("engine_mib", "rounding") if getattr(accept, name) is not None]
    return (*found, *alone)


def path_of(claim: str) -> str:
    """``accept.engine (rehearsed).max_abs`` as the recipe's path ``accept.engine.max_abs``."""
    return claim.replace(" (rehearsed)", "").replace(" (measured)", "").replace(" (of constants)", "")


def apply(
    claims: Sequence[Claim], waivers: Sequence[Waiver], date: str
) -> tuple[list[Claim], tuple[WaiverUse, ...]]:
    """The claims with every covered failure turned into ``waived``, and what became of each waiver.

    ``date`` is the run's, as YYYY-MM-DD; without one nothing is covered.
    """
    uses, changed = [], list(claims)
    for waiver in waivers:
        mine = [index for index, claim in enumerate(claims) if path_of(claim.name) == waiver.claim]
        failed = [index for index in mine if claims[index].status == "fail"]
        state, why = _state(waiver, [claims[index] for index in mine], date)
        uses.append(WaiverUse(waiver.claim, waiver.owner, waiver.because, waiver.expires, state, why))
        for index in failed:
            claim = claims[index]
            if state == "used" and claim.value is not None:
                text = f"waived by {waiver.owner} until {waiver.expires}: {waiver.because}"
                changed[index] = replace(claim, status="waived", why=text)
            else:
                changed[index] = replace(claim, why="; ".join(part for part in (claim.why, why) if part))
    return changed, tuple(uses)


def _state(waiver: Waiver, claims: Sequence[Claim], date: str) -> tuple[State, str]:
    failed = [claim for claim in claims if claim.status == "fail"]
    if not failed:
        passed = any(claim.status == "pass" for claim in claims)
        return "unused", "the claim holds without it" if passed else "the claim was not run"
    if not date or date > waiver.expires:
        day = f"the run is of {date}" if date else "the run has no date"
        return "expired", f"the waiver of {waiver.owner} expired on {waiver.expires}; {day}"
    if all(claim.value is None for claim in failed):
        return "refused", f"the waiver of {waiver.owner} covers a figure, and there is none"
    return "used", f"covers {len([claim for claim in failed if claim.value is not None])} failed"
