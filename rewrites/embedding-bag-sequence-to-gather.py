"""EmbeddingBag as the dynamo exporter writes it: a Loop makes a sequence of bags, which is put together behind it."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from engine.rules.bags import loop_over_bags
from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError


def apply(graph: gs.Graph, match: Captured) -> None:
    (output,) = graph.outputs
    (joined,) = output.inputs
    loop = joined.inputs[0].inputs[0] if joined.inputs[0].inputs else None
    if loop is None or loop.op != "Loop":
        raise RefusedError("no loop makes the sequence")
    if joined.attrs.get("axis") != 0 or joined.attrs.get("new_axis", 0):
        raise RefusedError("the sequence is not put together along axis 0")
    result = loop_over_bags(graph, loop)
    output.inputs.clear()
    graph.layer(op="Identity", inputs=[result], outputs=[output])
