"""What the estimates of :mod:`engine.sensitivity` mean: a claim about the constants of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.claims import Claim
from engine.values import StepResult

NAME = "accept.rounding (of constants)"
# The runtime's functions (a sigmoid, an exponential) are off in one direction, so that the estimate of a right
# constant is not quite zero. What moves the outputs by less than FP32's unit roundoff and explains only a small part
# of the error is not held against a graph. Measured by tests/mutants on healthy exports and on planted faults.
UNIT = 2.0**-24
SHARE = 0.5
OFF = 7e-7  # largest accepted relative error of a constant
SURE = 8.0  # standard errors; what is nearer to zero than that is not told from rounding
TOLD = 1.2e-7  # largest standard error at which the outputs tell a constant
_LIMIT = "estimated error <= what is allowed"


def claim(parity: StepResult, evidence: str) -> Claim:
    """One claim over every constant that the outputs tell; the worst is named."""
    why = parity.facts.get("constants", "not run: the parity step did not look at them")
    found: Sequence[Mapping[str, Any]] = parity.measurements.get("constants", ())
    told = [item for item in found if item["sigma"] <= TOLD]
    if why != "run" or not told:
        why = "no output tells a constant from rounding" if why == "run" else why.removeprefix("not run: ")
        return Claim(NAME, "not run", _LIMIT, why=why)
    broken = [item for item in told if _ratio(item) > 1.0]
    worst = max(broken or told, key=_surely if broken else _ratio)
    if not broken:
        where = f"{worst['name']} ({len(told)} of {len(found)} told)"
        return Claim(NAME, "pass", _LIMIT, _ratio(worst), where, evidence)
    why = f"the outputs differ as if {worst['name']} were off by {worst['off']:.2g} of itself"
    return Claim(NAME, "fail", _LIMIT, _ratio(worst), worst["name"], evidence, why)


def _ratio(item: Mapping[str, Any]) -> float:
    """The estimate as a multiple of what is allowed."""
    off = abs(item["off"])
    matters = max(off * item["moves"] / UNIT, item["share"] / SHARE)
    return float(min(off / max(OFF, SURE * item["sigma"]), matters))


def _surely(item: Mapping[str, Any]) -> float:
    return float(abs(item["off"]) / max(item["sigma"], 1e-30))
