"""What the estimates of :mod:`engine.sensitivity` mean: a claim about the constants of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.claims import Claim
from engine.values import StepResult

NAME = "accept.onnx on constants"
# The runtime's functions are off in one direction too, so an estimate of a right constant is not quite zero.
OFF = 5e-7  # largest accepted relative error of a constant
SURE = 6.0  # standard errors; what is nearer to zero than that is not told from rounding
TOLD = 1.5e-7  # largest standard error at which the outputs tell a constant
_LIMIT = f"relative error <= {OFF:g}"


def claim(parity: StepResult, evidence: str) -> Claim:
    """One claim over every constant; the surest of those that are off is named."""
    why = parity.facts.get("constants", "not run: the parity step did not look at them")
    found: Sequence[Mapping[str, Any]] = parity.measurements.get("constants", ())
    told = [item for item in found if item["sigma"] <= TOLD]
    broken = [item for item in told if abs(item["off"]) > max(OFF, SURE * item["sigma"])]
    if why != "run" or not told:
        why = "no output tells a constant from rounding" if why == "run" else why.removeprefix("not run: ")
        return Claim(NAME, "not run", _LIMIT, why=why)
    if broken:
        worst = max(broken, key=lambda item: abs(item["off"]) / max(item["sigma"], 1e-30))
        why = f"the outputs differ as if {worst['name']} were off by a factor of 1{worst['off']:+.2g}"
        return Claim(NAME, "fail", _LIMIT, abs(worst["off"]), worst["name"], evidence, why)
    worst = max(told, key=lambda item: abs(item["off"]))
    where = f"{worst['name']} ({len(told)} of {len(found)} told)"
    return Claim(NAME, "pass", _LIMIT, abs(worst["off"]), where, evidence)
