"""EmbeddingBag as the torchscript exporter writes it: a Loop that puts one result a bag on top of the others."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from engine.rules.bags import loop_over_bags
from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError


def apply(graph: gs.Graph, match: Captured) -> None:
    (output,) = graph.outputs if len(graph.outputs) == 1 else (None,)
    if output is None or not output.inputs or output.inputs[0].op != "Loop":
        raise RefusedError("the loop gives more than the bags")
    result = loop_over_bags(graph, output.inputs[0])
    output.inputs.clear()
    graph.layer(op="Identity", inputs=[result], outputs=[output])
