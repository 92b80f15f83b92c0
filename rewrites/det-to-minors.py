"""Det of small matrices by minors, one row after the other."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part

LARGEST = 8


def apply(graph: gs.Graph, match: Captured) -> None:
    """``minors`` holds the determinants of the first rows over every choice of that many columns."""
    shape, part = match.shapes["X"], Part(graph)
    size = shape[-1] if shape else None
    if shape is None or not isinstance(size, int) or not 1 <= size <= LARGEST:
        raise RefusedError(f"a matrix of {size} columns; only known sizes from 1 to {LARGEST} are expanded")
    real, lead = match.dtypes["X"], [0] * (len(shape) - 2)  # 0 keeps a size as it is
    x = part.input(0)
    minors = part("Gather", x, np.int64(0), axis=-2)
    before = list(combinations(range(size), 1))
    for row in range(1, size):
        chosen = list(combinations(range(size), row + 1))
        columns = np.array([[picked[p] for picked in chosen] for p in range(row + 1)])
        rest = np.array([[before.index((*s[:p], *s[p + 1 :])) for s in chosen] for p in range(row + 1)])
        signs = np.array([(-1.0) ** (row + p) for p in range(row + 1)], dtype=real).reshape(-1, 1)
        line = part("Gather", part("Gather", x, np.int64(row), axis=-2), columns, axis=-1)
        terms = part("Mul", part("Mul", line, signs), part("Gather", minors, rest, axis=-1))
        minors, before = part("ReduceSum", terms, np.array([-2]), keepdims=0), chosen
    part.result(0, "Reshape", minors, np.array(lead, dtype=np.int64))
