"""Sentences of the report, from facts as the steps record them."""

from __future__ import annotations

from typing import Any

from engine.stress import view
from engine.values import StepResult

STRESS = StepResult("stress", "ok", facts={"cases": [], "noise": "run"})


def told(state: str, measured: dict[str, Any]) -> str:
    parity = StepResult("parity", "ok", facts={"exact": state}, measurements=measured)
    return "\n".join(view.beyond_limits(STRESS, parity))


def test_what_was_computed_in_fp64_is_said_without_the_tools_own_words() -> None:
    error = {"output": "y", "error": 5e-7, "noise": 1e-6, "size": 1.0}
    constant = {"name": "w", "off": 1e-7, "sigma": 1e-8, "moves": 1.0, "share": 1.0}
    text = told("run", {"exact": [error], "constants": [constant]})
    assert "They differ by 0.5 times the rounding error of the model in FP32 (output y)" in text
    assert "The worst is w (1 of 1 told), with 0.2 times what rounding to FP32 explains." in text


def test_what_was_not_computed_is_said_with_its_reason() -> None:
    text = told("not run: too many weights", {})
    assert text == "Same computation: not run: too many weights.\nSame constants: not run: too many weights."
