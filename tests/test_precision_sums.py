"""What FP16 accumulation could do: the bounds hold for what numpy adds up in float16; other sums are left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.graph import files
from engine.precision.lower import lower
from engine.precision.selectors import resolve
from engine.precision.sums import Sum
from engine.recipe import Override
from engine.samples import Array
from tests.test_precision_shadow import lowered, parse, probed

RNG = np.random.default_rng(7)


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def sums(folder: Path, body: str, *overrides: Override, base: str = "fp16", **feeds: Any) -> dict[str, Sum]:
    return {
        item.node: item for item in probed(folder, lowered(folder, body, *overrides, base=base), **feeds).sums
    }


A, B, IMAGE, FILTERS = normal(3, 40), normal(40, 5), normal(2, 4, 6, 6), normal(8, 2, 3, 3)
K = "<int64[1] k = {1}> "


def one(inputs: str, made: str, op: str, constants: str = "") -> str:
    """A graph of one node ``n``."""
    return f"g ({inputs}) => (float[{made}] y) {constants}{{ [n] y = {op} }}"


@pytest.mark.parametrize(
    ("body", "feeds", "length", "magnitudes"),
    [
        (one("float[3, 40] a, float[40, 5] b", "3, 5", "MatMul (a, b)"),
         {"a": A, "b": B}, 40, np.abs(A) @ np.abs(B)),
        (one("float[40] a, float[40, 5] b", "5", "MatMul (a, b)"),
         {"a": A[0], "b": B}, 40, np.abs(A[:1]) @ np.abs(B)),
        (one("float[3, 40] a, float[40] b", "3", "MatMul (a, b)"),
         {"a": A, "b": B[:, 0]}, 40, np.abs(A) @ np.abs(B[:, 0])),
        (one("float[40, 3] a, float[5, 40] b", "3, 5", "Gemm <alpha = 2.0, transA = 1, transB = 1> (a, b)"),
         {"a": A.T, "b": B.T}, 40, 2 * np.abs(A) @ np.abs(B)),
        (one("float[3, 40] a", "3, 1", "ReduceSum (a, k)", K),
         {"a": A}, 40, np.abs(A).sum(-1)),
        (one("float[3, 40] a", "3, 1", "ReduceMean (a, k)", K),
         {"a": A}, 40, np.abs(A).sum(-1)),
        (one("float[3, 40] a", "3, 1", "ReduceL2 (a, k)", K),
         {"a": A}, 40, np.square(A).sum(-1)),
        (one("float[2, 4, 6, 6] a", "2, 4, 1, 1", "GlobalAveragePool (a)"),
         {"a": IMAGE}, 36, np.abs(IMAGE).sum((2, 3))),
        (one("float[2, 4, 6, 6] a", "2, 4, 2, 2", "AveragePool <kernel_shape = [3, 3], strides = [3, 3]> (a)"),
         {"a": IMAGE}, 9, np.abs(IMAGE).reshape(2, 4, 2, 3, 2, 3).sum((3, 5))),
        (one("float[2, 4, 6, 6] a, float[8, 2, 3, 3] w", "2, 8, 4, 4", "Conv <group = 2> (a, w)"),
         {"a": IMAGE, "w": FILTERS}, 18, 0),
        (one("float[2, 4, 6, 6] a, float[4, 4, 3, 3] w", "2, 8, 8, 8", "ConvTranspose <group = 2> (a, w)"),
         {"a": IMAGE, "w": FILTERS.reshape(4, 4, 3, 3)}, 18, 0),
    ],
)  # fmt: skip
def test_length_and_a_bound_of_the_terms(
    tmp_path: Path, body: str, feeds: dict[str, Any], length: int, magnitudes: Any
) -> None:
    found = sums(tmp_path, body, **feeds)["n"]
    assert found.length == length
    assert found.total >= np.max(magnitudes) * 0.998  # inputs are rounded to FP16
    if np.max(magnitudes):
        assert found.total <= np.max(magnitudes) * 3
    else:
        magnitude = sums(tmp_path, body, **{name: np.abs(value) for name, value in feeds.items()})["n"]
        assert (
            magnitude.result <= magnitude.total * 1.002 <= magnitude.result * 6
        )  # sums of magnitudes are the result


@pytest.mark.parametrize("opset", [13, 18])
def test_both_spellings_of_axes(tmp_path: Path, opset: int) -> None:
    model = parse(one("float[3, 40] a, float[40, 5] b", "3, 5", "MatMul (a, b)"), opset)
    lower(model, resolve(model, "fp16", ()), io="keep")
    files.save(model, tmp_path / "low.onnx", "low.weights")
    [found] = probed(tmp_path, files.load(tmp_path / "low.onnx"), a=A, b=B).sums
    assert found.length == 40


def test_only_sums_in_fp16_are_looked_at(tmp_path: Path) -> None:
    body = one("float[3, 40] a, float[40, 5] b", "3, 5", "MatMul (a, b)")
    assert sums(tmp_path, body, a=A, b=B)
    assert not sums(tmp_path, body, Override("fp32", "test", op="MatMul"), a=A, b=B)
    assert not sums(tmp_path, body, base="bf16", a=A, b=B)


def test_a_mean_overflows_on_the_way_though_the_result_does_not(tmp_path: Path) -> None:
    body = one("float[1, n] a", "1, 1", "ReduceMean (a, k)", K)
    found = sums(tmp_path, body, a=np.full((1, 700), 100.0, np.float32))["n"]
    assert (found.overflows, found.total, found.result) == (True, 70000.0, 100.0)
    assert not sums(tmp_path, body, a=np.full((1, 600), 100.0, np.float32))["n"].overflows


def test_what_overflows_anyway_is_not_told_twice(tmp_path: Path) -> None:
    body = one("float[1, n] a", "1, 1", "ReduceSum (a, k)", K)
    model = lowered(tmp_path, body)
    found = probed(tmp_path, model, a=np.full((1, 700), 100.0, np.float32))
    assert [item.node for item in found.culprits if item.kind == "overflow"] == ["n"]
    assert not any(item.overflows for item in found.sums)


def test_only_long_sums_have_an_error() -> None:
    assert Sum("n", "MatMul", "", 1024, 10.0, 1.0).error == 0.0
    assert Sum("n", "MatMul", "", 4096, 10.0, 1.0).error == pytest.approx(64 * 2.0**-11 * 10)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(terms=st.integers(1, 64), scale=st.sampled_from([1.0, 30.0, 60.0, 120.0]), shift=st.sampled_from([0.0, 1.0]),
       seed=st.integers(0, 2**16))  # fmt: skip
def test_no_overflow_of_partial_sums_is_missed(
    tmp_path: Path, terms: int, scale: float, shift: float, seed: int
) -> None:
    """Products exact, each partial sum rounded to float16, in the order of the terms; inputs are FP16 numbers."""
    rng = np.random.default_rng(seed)
    a, b = (
        ((rng.normal(size=terms) + shift) * scale).astype(np.float16).astype(np.float32) for _ in range(2)
    )
    partial, overflows = np.float16(0), False
    with np.errstate(over="ignore", invalid="ignore"):
        for one, other in zip(a, b, strict=True):
            partial = np.float16(np.float32(partial) + one * other)
            overflows = overflows or bool(np.isinf(partial))
    body = "g (float[1, n] a, float[n, 1] b) => (float[1, 1] y) { [n] y = MatMul (a, b) }"
    found = probed(tmp_path, lowered(tmp_path, body), a=a[None], b=b[:, None])
    told = any(item.overflows for item in found.sums) or bool(found.culprits)
    assert told >= overflows
    [item] = found.sums or [Sum("", "", "", 0, 0.0, 0.0)]
    if not overflows:  # the bound on the error that the module quotes
        exact = float(np.dot(a.astype(np.float64), b.astype(np.float64)))
        assert abs(float(partial) - exact) <= terms * 2.0**-11 * max(item.total, 1e-30) * 1.05 + 1e-3
