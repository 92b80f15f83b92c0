"""What the estimates of :mod:`engine.sensitivity` mean: a claim about the constants of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.claims import Claim
from engine.values import StepResult

NAME = "accept.rounding (of constants)"
# A constant that an exporter folded is rounded to FP32, and others that move the outputs alike take a part of it: what
# is off by less than eight standard errors, explains less than a quarter of the error or moves the outputs by less
# than a sixteenth of FP32's unit roundoff is not held against a graph. Measured by tests/mutants.
OFF = 5e-7  # largest accepted relative error of a constant
SURE = 8.0
TOLD = 1.2e-7  # largest standard error at which the outputs tell a constant
SHARE = 0.25
UNIT = 2.0**-28
_LIMIT = "estimated error <= what is allowed"


def claim(parity: StepResult, evidence: str) -> Claim:
    """One claim over every constant that the outputs tell; the worst is named."""
    why = parity.facts.get("exact", "not run: the parity step did not look at them")
    found: Sequence[Mapping[str, Any]] = parity.measurements.get("constants", ())
    told = [item for item in found if item["sigma"] <= TOLD]
    if why != "run" or not told:
        nothing = (
            "no constant moves an output by more than rounding does"
            if found
            else "estimated only where the recipe sets accept.rounding"
        )
        why = nothing if why == "run" else why.removeprefix("not run: ")
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
    return float(min(off / max(OFF, SURE * item["sigma"]), off * item["moves"] / UNIT, item["share"] / SHARE))


def _surely(item: Mapping[str, Any]) -> float:
    return float(abs(item["off"]) / max(item["sigma"], 1e-30))
