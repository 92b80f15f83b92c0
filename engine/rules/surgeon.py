"""The one node that a rule for operators is to replace, and new nodes beside it, for rules' Python functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.rules.constants import Array

FLOAT, INT32, INT64 = 1, 6, 7  # onnx.TensorProto's numbers


class Part:
    """A graph-surgeon graph of one node. Call it to add a node: ``part("Add", x, np.float32(1))``.

    Inputs are tensors of the graph or arrays; an optional one that is left out is None.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        (self.node,) = graph.nodes
        self.opset: int = graph.opset
        self.outputs = list(self.node.outputs)

    def input(self, index: int) -> Any:
        """The node's input, or None where it is left out."""
        found = self.node.inputs[index] if index < len(self.node.inputs) else None
        return None if found is None or found.is_empty() else found

    def __call__(self, op: str, *inputs: Any, **attributes: Any) -> Any:
        return self.many(op, 1, *inputs, **attributes)[0]

    def many(self, op: str, outputs: int, *inputs: Any, **attributes: Any) -> list[Any]:
        """A node with several outputs."""
        made: list[Any] = self.graph.layer(
            op=op, inputs=self._tensors(inputs), outputs=[f"{op.lower()}_part"] * outputs, attrs=attributes
        )
        return made

    def result(self, index: int, op: str, *inputs: Any, **attributes: Any) -> None:
        """A node that makes output ``index`` of the node that is replaced."""
        output = self.outputs[index]
        output.inputs.clear()
        self.graph.layer(op=op, inputs=self._tensors(inputs), outputs=[output], attrs=attributes)

    def _tensors(self, inputs: tuple[Any, ...]) -> list[Any]:
        return [np.asarray(x) if isinstance(x, np.generic | np.ndarray | int) else x for x in inputs]


def array_of(tensor: Any) -> Array | None:
    """The value of a constant; None for what is computed, or left out."""
    if isinstance(tensor, np.ndarray):
        return tensor
    values = getattr(tensor, "values", None)
    return None if values is None else np.asarray(values)
