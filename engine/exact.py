"""A graph computed in FP64 by the ONNX reference evaluator: what it says, without the rounding of a runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx.reference.op_run import OpRun

from engine.graph import files, reference
from engine.samples import Array


class GatherElements(OpRun):
    """In place of the evaluator's own, which fails where an axis has more than 64 elements."""

    def _run(self, data: Any, indices: Any, axis: int = 0) -> tuple[Any]:
        places = list(np.indices(indices.shape, sparse=True))
        places[axis] = np.where(indices < 0, indices + data.shape[axis], indices)
        return (data[tuple(places)],)


class Exact:
    """The graph at ``path``, every FP32 number in it an FP64 one of the same value."""

    def __init__(self, path: Path) -> None:
        model = files.load(path)
        for graph in model.graphs():
            for value in graph.initializers.values():
                tensor = value.const_value
                if tensor is not None:
                    value.const_value = ir.tensor(_wide(tensor.numpy()), name=value.name)
                    value.dtype = value.const_value.dtype
        for node in model.graph.all_nodes():
            changed = [_widened(node, attribute) for attribute in node.attributes.values()]
            node.attributes.clear()
            node.attributes.update({attribute.name: attribute for attribute in changed})
        for value in (*model.graph.inputs, *model.graph.outputs):
            if value.dtype == ir.DataType.FLOAT:
                value.dtype = ir.DataType.DOUBLE
        self._evaluator = reference.Reference(ir.to_proto(model), [GatherElements])

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name. Raises StepError for a graph that the evaluator cannot compute."""
        return self._evaluator.run(
            {name: _wide(feeds[name]) for name in self._evaluator.inputs if name in feeds}
        )


def _wide(values: Any) -> Any:
    return values.astype(np.float64) if values.dtype == np.float32 else values


def _widened(node: ir.Node, attribute: ir.Attr) -> ir.Attr:
    if attribute.type == ir.AttributeType.TENSOR:
        return ir.AttrTensor(attribute.name, ir.tensor(_wide(attribute.as_tensor().numpy())))
    if node.op_type == "Cast" and attribute.name == "to" and attribute.as_int() == int(ir.DataType.FLOAT):
        return ir.AttrInt64("to", int(ir.DataType.DOUBLE))
    if node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
        held = np.asarray(attribute.value, np.float32)
        return ir.AttrTensor("value", ir.tensor(held.astype(np.float64)))
    return attribute
