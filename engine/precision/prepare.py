"""Bring a graph into the form that selecting and lowering work on. Safe to run twice."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from engine.errors import Failure, StepError
from engine.graph.fresh import Names
from engine.precision.formats import FAMILY, is_float


def nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Every node in graph order, those of subgraphs after their owner."""
    return iter(ir.traversal.RecursiveGraphIterator(model.graph))


def values(model: ir.Model) -> Iterator[ir.Value]:
    """Every value of the main graph and of all subgraphs."""
    for graph in model.graphs():
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield from node.outputs


def owners(model: ir.Model) -> dict[object, ir.Node]:
    """The node that each subgraph belongs to, by graph."""
    found: dict[object, ir.Node] = {}
    for node in nodes(model):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                found[attribute.as_graph()] = node
            elif attribute.type == ir.AttributeType.GRAPHS:
                found |= dict.fromkeys(attribute.as_graphs(), node)
    return found


def prepare(model: ir.Model) -> None:
    """Give every node a unique name, every float a known type, and float constants one form (initializers).

    A CastLike to a float becomes a Cast, because lowering decides its type. Raises StepError for
    model-local functions, which must be inlined first, and for a value whose type cannot be inferred.
    """
    if model.functions:
        names = ", ".join(sorted(function.name for function in model.functions.values()))
        raise StepError(
            Failure(
                f"the graph has model-local functions ({names}), whose nodes cannot be given a type each",
                klass="op",
                fix="inline them first (onnx.inliner.inline_local_functions)",
            )
        )
    _name_nodes(model)
    _lift_constants(model)
    _refuse_untyped_sequences(model)
    if any(value.type is None for value in values(model)):
        ShapeInferencePass(check_type=False, strict_mode=False)(model)
    _replace_cast_like(model)
    _require_types(model)


def _refuse_untyped_sequences(model: ir.Model) -> None:
    """The inference behind ``prepare`` takes an undeclared sequence for a tensor, so it must be declared."""
    for node in nodes(model):
        if node.op_type.startswith(("Sequence", "Optional", "SplitToSequence")):
            for value in node.outputs:
                if value.type is None:
                    raise StepError(
                        Failure(
                            f"value {value.name!r} of {node.op_type} {node.name!r} has no declared type",
                            klass="op",
                            cause="TensorRT has no sequences; their types are not inferred here",
                            fix="rewrite the op into tensors, or declare the value in the graph's value_info",
                        )
                    )


def _name_nodes(model: ir.Model) -> None:
    seen: set[str] = set()
    names = Names(model)
    for node in nodes(model):
        if not node.name or node.name in seen:
            node.name = names.fresh(node.name or f"{node.op_type}_{node.outputs[0].name}")
        seen.add(node.name)


def _lift_constants(model: ir.Model) -> None:
    names = Names(model)
    for node in list(nodes(model)):
        tensor = _constant(node)
        value = node.outputs[0]
        graph = node.graph
        if tensor is None or tensor.dtype not in FAMILY or not isinstance(graph, ir.Graph):
            continue
        lifted = ir.Value(
            name=value.name,
            shape=ir.Shape(tensor.shape.numpy()),
            type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )
        if value.is_graph_output():  # an initializer is no result: a node must stand before the output
            lifted.name = names.fresh(f"{value.name}_constant")
            props = dict(node.metadata_props)
            copy = ir.Node("", "Identity", [lifted], name=node.name, metadata_props=props)
            graph.insert_before(node, copy)
            _hand_over(value, copy.outputs[0])
        else:
            value.replace_all_uses_with(lifted)
        graph.remove(node, safe=True)
        graph.register_initializer(lifted)


def _hand_over(old: ir.Value, new: ir.Value) -> None:
    """Let ``new`` take the place of ``old`` everywhere, under its name."""
    assert old.dtype is not None
    new.type, new.shape = ir.TensorType(old.dtype), old.shape
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    new.name, old.name = old.name, None


def _constant(node: ir.Node) -> ir.TensorProtocol | None:
    if node.op_type != "Constant" or node.domain:
        return None
    name = node.outputs[0].name
    if "value" in node.attributes:
        return node.attributes["value"].as_tensor()
    if "value_float" in node.attributes:
        return ir.tensor(node.attributes["value_float"].as_float(), dtype=ir.DataType.FLOAT, name=name)
    if "value_floats" in node.attributes:
        return ir.tensor(node.attributes["value_floats"].as_floats(), dtype=ir.DataType.FLOAT, name=name)
    return None


def _replace_cast_like(model: ir.Model) -> None:
    for node in list(nodes(model)):
        if node.op_type != "CastLike" or not is_float(node.outputs[0]) or node.graph is None:
            continue
        old, graph = node.outputs[0], node.graph
        dtype = old.dtype
        assert dtype is not None
        cast = ir.Node(
            "",
            "Cast",
            [node.inputs[0]],
            {"to": ir.AttrInt64("to", dtype.value)},
            name=node.name,
            metadata_props=dict(node.metadata_props),
        )
        graph.insert_before(node, cast)
        _hand_over(old, cast.outputs[0])
        graph.remove(node, safe=True)


def _require_types(model: ir.Model) -> None:
    for value in values(model):
        if value.type is None and value.name:
            maker = value.producer()
            at = f"made by {maker.op_type} {maker.name!r}" if maker else "a graph input"
            raise StepError(
                Failure(
                    f"the type of value {value.name!r} ({at}) is not known",
                    klass="op",
                    cause="ONNX has no schema for the op and the file declares no type for its result",
                    fix="declare the value in the graph's value_info, or rewrite the op",
                )
            )
