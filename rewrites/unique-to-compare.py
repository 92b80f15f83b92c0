"""Unique where the size of what is used does not depend on values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import FLOAT, INT64, Part

_INVERSE = 2


def apply(graph: gs.Graph, match: Captured) -> None:
    """One element is its own result; otherwise its place among the unique ones is counted."""
    part, shape = Part(graph), match.shapes["X"]
    if shape is None:
        raise RefusedError("the rank of the input is not known from the graph")
    used = [index for index, output in enumerate(part.outputs) if output in graph.outputs]
    if all(size == 1 for size in shape):
        _of_one(part, used, match.attributes["axis"] is not None)
        return
    if used != [_INVERSE]:
        names = ("Y", "indices", "inverse_indices", "counts")
        open_ones = " and ".join(names[index] for index in used if index != _INVERSE)
        raise RefusedError(
            f"the size of {open_ones} depends on values; only that of inverse_indices does not"
        )
    if match.attributes["axis"] is not None and len(shape) != 1:
        raise RefusedError("whole subtensors along an axis are compared")
    _place(part, bool(match.attributes["sorted"]))


def _of_one(part: Part, used: list[int], along: bool) -> None:
    for index in used:
        if index:
            part.result(index, "Identity", np.array([1 if index == _INVERSE + 1 else 0]))
        elif along:
            part.result(0, "Identity", part.input(0))
        else:
            part.result(0, "Reshape", part.input(0), np.array([-1]))


def _place(part: Part, ordered: bool) -> None:
    """How many kinds stand before the element's own: smaller ones, or such that came earlier."""
    flat = part("Reshape", part.input(0), np.array([-1]))
    row, column = (part("Unsqueeze", flat, np.array([axis])) for axis in (0, 1))
    counted = part("CumSum", part("Cast", part("Equal", flat, flat), to=INT64), np.int64(0))
    earlier = part("Less", *(part("Unsqueeze", counted, np.array([axis])) for axis in (0, 1)))
    same = part("Equal", row, column)
    again = _count(part, part("And", same, earlier))
    first = part("Equal", again, np.float32(0))  # [n]: no earlier element is the same
    kind = part("Unsqueeze", first, np.array([0]))
    if ordered:
        before = _count(part, part("And", part("Less", row, column), kind))
    else:
        own = _count(part, part("And", earlier, kind))  # kinds that came before this element
        met = part("Unsqueeze", own, np.array([0]))
        before = _summed(part, part("Where", part("And", same, kind), met, np.float32(0)))
    part.result(_INVERSE, "Cast", before, to=INT64)


def _count(part: Part, truth: Any) -> Any:
    """[n]: how many of each row hold; whole numbers are exact in float32 up to 2**24 elements."""
    return _summed(part, part("Cast", truth, to=FLOAT))


def _summed(part: Part, value: Any) -> Any:
    return part("ReduceSum", value, np.array([1]), keepdims=0)
