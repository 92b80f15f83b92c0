"""Random instances of operators: the rewritten graph gives what the graph gave."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rules import library
from engine.rules.apply import apply_rule
from engine.rules.evaluate import Evaluator
from engine.rules.language import Rule, load_rule
from tests.rules_tools import check, model

SEEDS = st.integers(0, 2**32 - 1)
KINDS = {"int8": np.int8, "uint8": np.uint8, "int32": np.int32, "int64": np.int64}


@functools.lru_cache
def rule(name: str) -> Rule:
    return load_rule(library.path_of(name))


def compare(
    name: str, text: str, feeds: Mapping[str, Any], reference: bool = False, rtol: float = 0, atol: float = 0
) -> None:
    """``text`` before and after the rule ``name``, which must apply."""
    before, after = model(text), model(text)
    apply_rule(after, rule(name), prover=None)
    check(after)
    one, two = Evaluator(before, reference)(feeds), Evaluator(after, reference)(feeds)
    for output, wanted in one.items():
        assert two[output].dtype == wanted.dtype
        np.testing.assert_allclose(two[output], wanted, rtol=rtol, atol=atol, err_msg=f"{text} {feeds}")


def whole(seed: int, kind: Any, shape: tuple[int, ...]) -> Any:
    """Integers of all sizes: a random number of their bits is used."""
    rng = np.random.default_rng(seed)
    limits = np.iinfo(kind)
    full = rng.integers(limits.min, limits.max, size=shape, dtype=kind, endpoint=True)
    return full >> rng.integers(0, limits.bits, size=shape).astype(kind)


def head(opset: int) -> str:
    return f'<ir_version: 10, opset_import: ["" : {opset}]>\n'


@settings(max_examples=25)
@given(
    st.sampled_from(sorted(KINDS)), st.sampled_from(["LEFT", "RIGHT"]), st.none() | st.integers(-3, 70), SEEDS
)
def test_bitshift(dtype: str, direction: str, constant: int | None, seed: int) -> None:
    kind = KINDS[dtype]
    low = -3 if np.iinfo(kind).min else 0
    shift = f", {dtype}[3] k" if constant is None else ""
    held = "" if constant is None else f"<{dtype} k = {{{max(constant, low)}}}>"
    body = f'y = BitShift <direction = "{direction}"> (x, k)'
    text = f"{head(28)}net ({dtype}[2,3] x{shift}) => ({dtype}[2,3] y) {held} {{ {body} }}"
    feeds = {"x": whole(seed, kind, (2, 3))}
    if constant is None:
        feeds["k"] = np.random.default_rng(seed).integers(low, 70, size=3).astype(kind)
    compare("bitshift-to-arithmetic", text, feeds, reference=True)


@settings(max_examples=25)
@given(st.sampled_from(sorted(KINDS)), st.sampled_from(["And", "Or", "Xor"]), st.booleans(), SEEDS)
def test_bitwise(dtype: str, op: str, constant: bool, seed: int) -> None:
    kind = KINDS[dtype]
    mask = whole(seed + 1, kind, (3,))
    held = f"<{dtype} m = {{{mask[0]}}}>" if constant else ""
    given_mask = "" if constant else f", {dtype}[3] m"
    text = (
        f"{head(18)}net ({dtype}[2,3] x{given_mask}) => ({dtype}[2,3] y) {held} {{ y = Bitwise{op} (x, m) }}"
    )
    feeds = {"x": whole(seed, kind, (2, 3))} | ({} if constant else {"m": mask})
    compare("bitwise-to-arithmetic", text, feeds)
