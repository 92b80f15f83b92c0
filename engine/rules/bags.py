"""What rules for EmbeddingBag share: a Loop over bags that are the rows of one tensor of indices.

The functions here look for the parts; that the bags are rows, and that nothing else is computed, the proof tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.refuse import RefusedError
from engine.rules.surgeon import array_of

_REDUCTIONS = ("ReduceMean", "ReduceMax", "ReduceSum")  # the mean of the last bag is written as a sum


def loop_over_bags(graph: gs.Graph, loop: gs.Node) -> gs.Tensor:
    """The reduced bags, in the place of what ``loop`` puts together. Raises RefusedError."""
    inner = list(_nodes(loop.attrs["body"]))
    if not any(node.op == "Slice" for node in inner):
        raise RefusedError("no bag is cut out in the loop")
    found = {node.op for node in inner}
    reduction = next((op for op in _REDUCTIONS if op in found), None)
    if reduction is None:
        raise RefusedError("the loop reduces nothing to a bag's result")
    if not any(node.op == "Range" for node in graph.nodes):
        raise RefusedError("bags do not begin at regular offsets")
    rows = _bags(graph, _indices(graph), _read(inner))
    return _layer(graph, reduction, rows)


def _nodes(graph: gs.Graph) -> Iterator[gs.Node]:
    for node in graph.nodes:
        yield node
        for value in node.attrs.values():
            if isinstance(value, gs.Graph):
                yield from _nodes(value)


def _read(inner: list[gs.Node]) -> list[gs.Tensor]:
    """Tables of floats that the loop reads from outside."""
    made = {tensor.name for node in inner for tensor in node.outputs}
    found = {tensor.name: tensor for node in inner for tensor in node.inputs if tensor.name not in made}
    return [tensor for tensor in found.values() if _floats(tensor) and len(tensor.shape or ()) > 1]


def _floats(tensor: gs.Tensor) -> bool:
    return tensor.dtype is not None and np.dtype(tensor.dtype).kind == "f"


def _indices(graph: gs.Graph) -> gs.Tensor:
    """The tensor of indices with two axes that is made flat."""
    for node in graph.nodes:
        target = array_of(node.inputs[1]) if node.op == "Reshape" else None
        if target is not None and target.tolist() == [-1]:
            indices = node.inputs[0]
            if indices.shape is not None and len(indices.shape) == 2:
                return indices
    raise RefusedError("bags are not the rows of one tensor of indices with two axes")


def _bags(graph: gs.Graph, indices: gs.Tensor, read: list[gs.Tensor]) -> gs.Tensor:
    """Rows of the table with a bag on axis 1."""
    if len(read) != 1 or read[0].shape is None or len(read[0].shape) != 2:
        raise RefusedError("the loop does not read one table with two axes")
    table, width = read[0], indices.shape[1]
    if isinstance(table, gs.Constant) or not table.inputs:
        return _layer_of(graph, "Gather", [table, indices], axis=0)
    if not isinstance(width, int) or not isinstance(table.shape[1], int):
        raise RefusedError("bags or rows have no fixed size")
    return _layer_of(graph, "Reshape", [table, np.array([-1, width, table.shape[1]])])


def _layer(graph: gs.Graph, reduction: str, rows: gs.Tensor) -> gs.Tensor:
    if reduction == "ReduceSum" or graph.opset >= 18:
        return _layer_of(graph, reduction, [rows, np.array([1])], keepdims=0)
    return _layer_of(graph, reduction, [rows], keepdims=0, axes=[1])


def _layer_of(graph: gs.Graph, op: str, inputs: list[Any], **attributes: Any) -> gs.Tensor:
    return graph.layer(op=op, inputs=inputs, outputs=[f"{op.lower()}_part"], attrs=attributes)[0]
