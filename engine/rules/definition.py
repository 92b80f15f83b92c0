"""The ONNX standard's own definition of an operator in simpler ones, in place of a node."""

from __future__ import annotations

import logging
from typing import Any

import onnx
import onnx.inliner
import onnx_ir as ir

from engine.rules import standard
from engine.rules.refuse import RefusedError

_DOMAIN = "definition"
FOLDED = 4096  # elements of a constant that may be computed beforehand; larger ones stay as they are


def body(before: ir.Model) -> ir.Model:
    """``before``, a fragment of one node, with the node replaced by its function body for the graph's opset.

    What follows from constants and static shapes alone is computed beforehand, so that branches over a rank
    are gone. Raises RefusedError where the standard gives no body for this opset, these types and attributes.
    """
    proto = ir.to_proto(before)
    (node,) = proto.graph.node
    opset = before.opset_imports[""]
    function = _function(node, _types(proto), opset)
    given = {attribute.name for attribute in node.attribute}
    schema = onnx.defs.get_schema(node.op_type, opset)
    node.attribute.extend(
        known.default_value
        for name, known in schema.attributes.items()
        if name not in given and known.default_value.name
    )
    node.domain = function.domain = _DOMAIN
    proto.functions.append(function)
    proto.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    inlined = onnx.inliner.inline_local_functions(proto)
    after: ir.Model = ir.from_proto(inlined)
    after.opset_imports.pop(_DOMAIN, None)
    fold(after)
    for name, value in after.graph.initializers.items():  # large weights stay where they are
        if name in before.graph.initializers:
            value.const_value = before.graph.initializers[name].const_value
    return after


def _types(proto: onnx.ModelProto) -> list[bytes]:
    """Serialized types of the node's inputs; an empty one for an input that is left out."""
    known = {value.name: value.type for value in proto.graph.input}
    for tensor in proto.graph.initializer:
        known[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
    (node,) = proto.graph.node
    return [known.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]


def _function(node: onnx.NodeProto, types: list[bytes], opset: int) -> onnx.FunctionProto:
    """The function body that holds at ``opset``: the newest not newer whose operators it has."""
    schema: Any = onnx.defs.get_schema(node.op_type, opset)  # its stub lacks two of the methods
    versions = {*schema.function_opset_versions, *schema.context_dependent_function_opset_versions}
    for version in sorted((v for v in versions if v <= opset), reverse=True):
        if version in schema.context_dependent_function_opset_versions:
            text = schema.get_context_dependent_function_with_opset_version(
                version, node.SerializeToString(), types
            )
        else:
            text = schema.get_function_with_opset_version(version)
        function: onnx.FunctionProto = onnx.FunctionProto.FromString(text)
        if function.node and _allowed(function, opset):
            for item in function.opset_import:
                item.version = opset if item.domain == "" else item.version
            return function
    raise RefusedError(f"opset {opset} does not define {node.op_type} of these types by simpler operators")


def _allowed(function: onnx.FunctionProto, opset: int) -> bool:
    """Whether ``opset`` has every operator of the body in that form; what it computes, the proof shows."""
    for node in function.node:
        schema = standard.schema_of(node.op_type, opset)
        if schema is None or not schema.min_input <= len(node.input) <= schema.max_input:
            return False
        if any(attribute.name not in schema.attributes for attribute in node.attribute):
            return False
    return True


def fold(model: ir.Model) -> None:
    """Compute what follows from constants and fixed shapes."""
    from onnxscript import optimizer

    logging.getLogger("onnxscript.optimizer").setLevel(logging.ERROR)  # it tells what it could not fold
    optimizer.fold_constants(model, input_size_limit=FOLDED, output_size_limit=FOLDED)
    ir.passes.common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    ir.passes.common.RemoveUnusedNodesPass()(model)
