"""What rules' Python functions build with: the node that is replaced, and new nodes beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from engine.rules.constants import Array

FLOAT, INT32, INT64 = 1, 6, 7  # onnx.TensorProto's numbers
Operand = Any  # a tensor, an array or a number, or None: left out; onnx-graphsurgeon has no types


class Part:
    """A graph-surgeon graph of one node. Call it to add a node: ``part("Add", x, np.float32(1))``.

    Names are looked after by onnx-graphsurgeon. Arrays become constants, None an input that is left out.
    """

    def __init__(self, graph: gs.Graph) -> None:
        self.graph = graph
        (self.node,) = graph.nodes
        self.opset: int = graph.opset
        self.outputs = list(self.node.outputs)

    def input(self, index: int) -> Operand:
        """The node's input, or None where it is left out."""
        found = self.node.inputs[index] if index < len(self.node.inputs) else None
        return None if found is None or found.is_empty() else found

    def __call__(self, op: str, *inputs: Operand, **attributes: Any) -> gs.Tensor:
        """The one output of a new node."""
        return self.many(op, 1, *inputs, **attributes)[0]

    def many(self, op: str, outputs: int, *inputs: Operand, **attributes: Any) -> list[gs.Tensor]:
        """The outputs of a new node that has several."""
        names = [f"{op.lower()}_part"] * outputs
        made: list[gs.Tensor] = self._layer(op, inputs, names, attributes)
        return made

    def cast(self, value: Operand, dtype: str) -> Operand:
        """A constant is cast at once: TensorRT takes 8-bit ones before DequantizeLinear only."""
        if isinstance(value, gs.Constant):
            return value.values.astype(dtype)
        return self("Cast", value, to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def result(self, index: int, op: str, *inputs: Operand, **attributes: Any) -> None:
        """A node that makes output ``index`` of the node that is replaced."""
        output = self.outputs[index]
        output.inputs.clear()
        self._layer(op, inputs, [output], attributes)

    def finish(self, results: dict[str, gs.Tensor]) -> None:
        """Let ``results`` be the outputs of these names."""
        for index, output in enumerate(self.outputs):
            if output.name in results:
                self.result(index, "Identity", results[output.name])

    def _layer(self, op: str, inputs: tuple[Operand, ...], outputs: list[Any], attributes: dict[str, Any]) -> Any:
        given = [_operand(value) for value in inputs]
        return self.graph.layer(op=op, inputs=given, outputs=outputs, attrs=attributes)


def _operand(value: Operand) -> Any:
    if value is None:
        return gs.Variable.empty()
    return np.asarray(value) if isinstance(value, np.generic | np.ndarray | int) else value


def array_of(tensor: Operand) -> Array | None:
    """The value of a constant; None for what is computed, or left out."""
    if isinstance(tensor, np.ndarray):
        return tensor
    values = getattr(tensor, "values", None)
    return None if values is None else np.asarray(values)
