"""ReduceMax and ReduceMin of booleans by counting."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.surgeon import Part


def apply(graph: gs.Graph, match: Captured) -> None:
    """``ReduceMax`` holds where some are true, ``ReduceMin`` where none is false."""
    node, add, none = graph.nodes[0], Part(graph), np.array(0, np.int32)
    some = node.op == "ReduceMax"
    value = node.inputs[0] if some else add("Not", node.inputs[0])
    count = add("ReduceSum", add.cast(value, "int32"), *node.inputs[1:], **node.attrs)
    add.finish({"reduced": add("Greater", count, none) if some else add("Equal", count, none)})
