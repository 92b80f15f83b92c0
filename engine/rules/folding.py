"""An input that must be a constant, computed beforehand where it follows from constants and fixed shapes."""

from __future__ import annotations

import onnx_ir as ir

from engine.rules import definition, fragment
from engine.rules.branches import index_of
from engine.rules.constants import dims_of, tensor_of
from engine.rules.refuse import RefusedError


def folded(before: ir.Model, name: str) -> ir.Model:
    """``before``, a fragment that ends in the node, with that input a constant. Raises RefusedError."""
    after = ir.Model(before.graph.clone(), ir_version=before.ir_version)
    fragment.infer(after)
    for node in list(after.graph):
        value = node.inputs[0] if node.inputs else None
        dims = dims_of(value) if node.op_type == "Size" and value is not None else None
        if dims is not None and all(isinstance(size, int) for size in dims):
            _constant(after.graph, node, dims)
    definition.fold(after)
    last = after.graph[-1]
    index = index_of(last, name, before.opset_imports[""])
    if index is None or tensor_of(last.inputs[index]) is None:
        raise RefusedError(f"{name} does not follow from constants and fixed shapes alone")
    return after


def _constant(graph: ir.Graph, node: ir.Node, dims: tuple[int | str | None, ...]) -> None:
    count = 1
    for size in dims:
        count *= int(size or 0)
    made = ir.Node("", "Constant", [], [ir.AttrInt64("value_int", count)])
    graph.insert_before(node, made)
    made.outputs[0].name = f"{node.outputs[0].name}_known"
    node.outputs[0].replace_all_uses_with(made.outputs[0])
    graph.remove(node, safe=True)
