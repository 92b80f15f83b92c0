"""What rule functions build with: one call a node, names and constants looked after by onnx-graphsurgeon."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs

Operand = Any  # a tensor, an array or numpy scalar, or None; onnx-graphsurgeon has no types


class Parts:
    """Adds nodes to a rule's graph. Arrays become constants, None an input that is left out."""

    def __init__(self, graph: gs.Graph) -> None:
        self.graph = graph

    def __call__(self, op: str, *inputs: Operand, **attributes: Any) -> gs.Tensor:
        """The one output of a new node."""
        return self.several(op, 1, *inputs, **attributes)[0]

    def several(self, op: str, count: int, *inputs: Operand, **attributes: Any) -> list[gs.Tensor]:
        """The outputs of a new node that has ``count``."""
        given = [_operand(value) for value in inputs]
        made: list[gs.Tensor] = self.graph.layer(
            op=op, inputs=given, outputs=[op.lower()] * count, attrs=attributes
        )
        return made

    def cast(self, value: gs.Tensor, dtype: str) -> Operand:
        """A constant is cast at once: TensorRT takes 8-bit ones before DequantizeLinear only."""
        if isinstance(value, gs.Constant):
            return value.values.astype(dtype)
        to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self("Cast", value, to=to)

    def finish(self, results: dict[str, gs.Tensor]) -> None:
        """Let ``results`` be the outputs of these names."""
        for output in self.graph.outputs:
            if output.name in results:
                output.inputs.clear()
                self.graph.layer(op="Identity", inputs=[results[output.name]], outputs=[output])


def _operand(value: Operand) -> Any:
    if value is None:
        return gs.Variable.empty()
    return np.asarray(value) if isinstance(value, np.generic) else value
