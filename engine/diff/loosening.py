"""Whether a changed limit asks for less than before."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from typing import Any, Literal

from engine.comparison import AT_LEAST
from engine.recipe import Limits

Mark = Literal["", "LOOSER", "tighter", "UNKNOWN DIRECTION", "WORSE", "better"]
Direction = Literal["at most", "at least", "bound"]


def direction(key: str) -> Direction | None:
    """How a limit under ``accept`` is read; None for a key that this module does not know."""
    parts = key.split(".")
    if (
        len(parts) == 3
        and parts[1] in ("onnx", "engine")
        and parts[2] in {field.name for field in fields(Limits)}
    ):
        return "at least" if parts[2] in AT_LEAST else "at most"
    if len(parts) == 3 and parts[1] == "fusion":
        return "bound"
    return "at most" if key in ("accept.engine_mib", "accept.rounding") else None


def mark(key: str, old: Any, new: Any) -> Mark:
    """Mark of a change of the dotted ``key``; ``None`` stands for a limit that is not there."""
    if key == "stress.leave_out":  # what is left out is no longer compared
        return "tighter" if new is None else "LOOSER"
    if key in ("waivers", "waivers.expires"):  # a waived limit is a loosened one; dates are YYYY-MM-DD
        return "tighter" if new is None or (isinstance(old, str) and new < old) else "LOOSER"
    if _is_check(key):
        return "LOOSER" if new is None else "tighter" if old is None else ""
    if key == "accept.rehearsal":  # with 'plan', what is inside a fused layer is not rounded
        return "" if (old == "plan") == (new == "plan") else "LOOSER" if new == "plan" else "tighter"
    if not key.startswith("accept."):
        return ""
    if old is None or new is None:
        return "LOOSER" if new is None else "tighter"
    kind = direction(key)
    if kind is None:
        return "UNKNOWN DIRECTION"
    if kind == "bound":
        return _bound(_interval(old), _interval(new))
    return "LOOSER" if (new > old) == (kind == "at most") else "tighter"


def _is_check(key: str) -> bool:
    """Keys outside ``accept`` without which something is no longer checked."""
    return key in ("rewrites.matches", "stress.add") or (
        key.startswith("model.") and (key.endswith(".sha256") or key.startswith("model.external_sha256"))
    )


def _interval(bound: str) -> tuple[float, float]:
    """``">= 6"`` as (6, inf)."""
    found = re.fullmatch(r"(>=|<=|==) *(\d+)", bound)
    assert found is not None
    number = float(found[2])
    low, high = {">=": (number, math.inf), "<=": (-math.inf, number), "==": (number, number)}[found[1]]
    return low, high


def _bound(old: tuple[float, float], new: tuple[float, float]) -> Mark:
    """Looser as soon as one value passes that did not pass before."""
    if old == new:
        return ""
    return "tighter" if old[0] <= new[0] and new[1] <= old[1] else "LOOSER"
