"""The graph in FP64 against PyTorch in FP64, as a multiple of PyTorch's own rounding error in FP32: a claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.claims import Claim
from engine.values import StepResult

NAME = "accept.rounding"
# Constants that an exporter folds are rounded to FP32 once, which is less than what FP32 rounds on the way: healthy
# exports come to about half of it at most, by tests/mutants.
MOST = 1.0
UNIT = 2.0**-24  # of the result: less than FP32 can be off
_VAST = 1e300  # stands for a division by zero: a record holds no infinities


def claim(parity: StepResult, evidence: str, limit: float = MOST) -> Claim:
    """One claim over every float output, over all hard inputs inside what the recipe declares."""
    text = f"error in FP64 / rounding error of PyTorch in FP32 <= {limit:g}"
    why = parity.facts.get("exact", "not run: the parity step did not look at it")
    found: Sequence[Mapping[str, Any]] = parity.measurements.get("exact", ())
    if why != "run" or not found:
        why = "there is no float output" if why == "run" else why.removeprefix("not run: ")
        return Claim(NAME, "not run", text, why=why)
    multiples = {item["output"]: _multiple(item) for item in found}
    worst = max(multiples, key=lambda name: multiples[name])
    value = multiples[worst]
    if value <= limit:
        return Claim(NAME, "pass", text, value, worst, evidence)
    why = f"{worst} is off by {value:.2g} times PyTorch's rounding error, and in FP64 there is none to explain it"
    return Claim(NAME, "fail", text, value, worst, evidence, why)


def _multiple(item: Mapping[str, Any]) -> float:
    noise = max(item["noise"], UNIT * item["size"])
    if item["error"] == 0.0:
        return 0.0
    return float(item["error"] / noise) if noise else _VAST
