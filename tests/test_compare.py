"""A comparison is good only when everything that should be there is, and is finite."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from engine.compare import compare

ONE = {"y": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)}


def test_equal() -> None:
    (item,) = compare(ONE, ONE)
    assert (item.problem, item.max_abs, item.rel_l2, item.cosine, item.argmax) == ("", 0, 0, 1, 1)


def test_figures() -> None:
    (item,) = compare(ONE, {"y": ONE["y"] + np.float32([[0, 0], [0, 0.5]])})
    assert item.max_abs == 0.5
    assert item.mean_abs == 0.125
    assert item.rel_l2 == pytest.approx(0.5 / np.sqrt(30))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite_is_a_problem(value: float) -> None:
    bad = ONE["y"].copy()
    bad[1, 1] = value
    (item,) = compare(ONE, {"y": bad})
    assert "1 of 4 values" in item.problem
    assert item.max_abs is None


def test_infinities_that_agree_are_equal_and_the_rest_is_compared() -> None:
    reference = {"y": np.array([-np.inf, 1.0], np.float32)}
    (item,) = compare(reference, {"y": np.array([-np.inf, 1.5], np.float32)})
    assert (item.problem, item.max_abs) == ("", 0.5)


def test_nan_in_the_reference_is_never_equal() -> None:
    reference = {"y": np.array([np.nan], np.float32)}
    (item,) = compare(reference, reference)
    assert item.problem


def test_missing_and_unasked_outputs() -> None:
    first, second = compare(ONE, {"z": ONE["y"]})
    assert first.output == "y"
    assert first.problem.startswith("missing")
    assert second.problem == "an output that nobody asked for"


@pytest.mark.parametrize(
    ("got", "word"),
    [(np.ones((2, 3), np.float32), "shape"), (np.ones((2, 2), np.int64), "type"), (np.float32(1.0), "shape")],
)
def test_other_shape_or_kind(got: np.ndarray, word: str) -> None:
    (item,) = compare(ONE, {"y": np.asarray(got)})
    assert word in item.problem


def test_empty_is_a_problem() -> None:
    empty = {"y": np.zeros((0, 3), np.float32)}
    (item,) = compare(empty, empty)
    assert "nothing to compare" in item.problem


def test_zero_reference() -> None:
    zero = {"y": np.zeros(3, np.float32)}
    (item,) = compare(zero, {"y": np.float32([0, 0, 1e-3])})
    assert item.cosine == 0.0
    assert item.rel_l2 is not None
    assert item.rel_l2 > 1e30


@given(
    hnp.arrays(np.float32, (2, 3), elements=st.floats(-1e6, 1e6, width=32)),
    hnp.arrays(np.float32, (2, 3), elements=st.floats(allow_nan=True, allow_infinity=True, width=32)),
)
def test_figures_are_finite_or_there_is_a_problem(a: np.ndarray, b: np.ndarray) -> None:
    (item,) = compare({"y": a}, {"y": b})
    assert bool(item.problem) == (not np.isfinite(b).all())
    if not item.problem:
        figures = (item.max_abs, item.mean_abs, item.rel_l2, item.cosine, item.argmax)
        assert all(value is not None and np.isfinite(value) for value in figures)
