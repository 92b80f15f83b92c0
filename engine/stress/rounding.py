"""The error of the graph as a multiple of PyTorch's own rounding error, both against FP64: a claim."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from engine.claims import Claim
from engine.comparison import Comparison
from engine.plain import from_plain
from engine.stress.judge import made
from engine.values import StepResult

NAME = "accept.rounding"
# Two ways to compute the same in FP32 are about as far from the exact result as each other. Measured by tests/mutants:
# the healthy exports come to 1.7 times PyTorch's own error at most, a removed epsilon to 3 times and more.
MOST = 2.5
_VAST = 1e300  # stands for a division by zero: a record holds no infinities
UNIT = 2.0**-24  # of the result: less than FP32 can be off


def claim(stress: StepResult, parity: StepResult, evidence: str, limit: float = MOST) -> Claim:
    """One claim over every float output, over all hard inputs inside what the recipe declares."""
    text = f"error / PyTorch's rounding error <= {limit:g}"
    within = {case["name"] for case in made(stress) if case["within"]}
    found: tuple[Comparison, ...] = from_plain(tuple[Comparison, ...], parity.measurements.get("stress", []))
    multiples = _multiples([item for item in found if item.shape in within])
    if not multiples:
        return Claim(
            NAME, "not run", text, why=f"there is no reference in FP64 ({stress.facts.get('noise', '')})"
        )
    worst = max(multiples, key=lambda name: multiples[name])
    value = multiples[worst]
    if value <= limit:
        return Claim(NAME, "pass", text, value, worst, evidence)
    why = f"{worst} is {value:.2g} times as far from FP64 as PyTorch is in FP32: more than another order of operations"
    return Claim(NAME, "fail", text, value, worst, evidence, why)


def _multiples(found: Sequence[Comparison]) -> Mapping[str, float]:
    errors: dict[str, float] = {}
    noises: dict[str, float] = {}
    for item in found:
        if item.exact_l2 is None or item.noise_l2 is None or item.exact_norm is None:
            continue
        errors[item.output] = errors.get(item.output, 0.0) + item.exact_l2**2
        noises[item.output] = noises.get(item.output, 0.0) + max(item.noise_l2, UNIT * item.exact_norm) ** 2
    return {
        name: math.sqrt(error / noises[name]) if noises[name] else (_VAST if error else 0.0)
        for name, error in errors.items()
    }
