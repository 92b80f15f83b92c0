"""MatMul of a vector with a stack of matrices: the vector becomes a matrix of one row."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part


def apply(graph: gs.Graph, match: Captured) -> None:
    ranks = [None if (shape := match.shapes[name]) is None else len(shape) for name in ("A", "B")]
    if ranks[0] != 1 or ranks[1] is None or ranks[1] < 3:
        raise RefusedError(f"the operands have rank {ranks[0]} and {ranks[1]}, not 1 and at least 3")
    add, (vector, stack) = Part(graph), graph.nodes[0].inputs
    row = add("Unsqueeze", vector, np.array([0]))
    add.finish({"Y": add("Squeeze", add("MatMul", row, stack), np.array([-2]))})
