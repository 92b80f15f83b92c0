"""Compress by a constant condition as a Gather of the elements that it keeps."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part, array_of


def apply(graph: gs.Graph, match: Captured) -> None:
    """The condition may be shorter than the axis; what lies beyond it is dropped."""
    part = Part(graph)
    condition = array_of(part.input(1))
    if condition is None:
        raise RefusedError("condition is not constant, so the size of the result depends on values")
    kept, axis, value = np.flatnonzero(condition), match.attributes["axis"], part.input(0)
    if not kept.size:
        raise RefusedError("the condition keeps nothing; an empty result is left alone")
    if axis is None:
        value, axis = part("Reshape", value, np.array([-1])), 0
    part.result(0, "Gather", value, kept, axis=axis)
