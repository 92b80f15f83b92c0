"""Clip of narrow integers as Max and Min in int32."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part

WIDE = {"int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64"}


def apply(graph: gs.Graph, match: Captured) -> None:
    kind, add = match.dtypes["input"], Part(graph)
    if kind not in WIDE:
        raise RefusedError(f"TensorRT takes Clip of {kind} as it is")
    value = add.cast(graph.nodes[0].inputs[0], WIDE[kind])
    for limit, op in zip(graph.nodes[0].inputs[1:], ("Max", "Min"), strict=False):
        if limit.name:
            value = add(op, value, add.cast(limit, WIDE[kind]))
    add.finish({"output": add.cast(value, kind)})
