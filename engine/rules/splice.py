"""Put a replacement in the place of a match: names, provenance, outputs, clean-up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from engine.graph import provenance
from engine.graph.fresh import Names
from engine.rules.constants import tensor_of
from engine.rules.fragment import canonical, shape_of
from engine.rules.match import Match


def splice(match: Match, after: ir.Model, names: Names) -> list[ir.Node]:
    """Put ``after`` in the place of the match and return the nodes added; what nobody uses any more goes.

    New nodes carry the root's provenance and the rule's name. Outputs keep their names, types and shapes.
    """
    root = match.root
    graph = graph_of(root)
    aliases = canonical(match)
    real = {value: _real(value, match, aliases, names) for value in _outer(after)}
    results = list(after.graph.outputs)
    added: list[ir.Node] = []
    for node in list(after.graph):
        if node.op_type == "Identity" and node.outputs[0] in results and node.inputs[0] is not None:
            real[node.outputs[0]] = real[node.inputs[0]]
        else:
            added.append(_transplant(node, real, match, names))
    anchor = root
    for node in added:
        graph.insert_after(anchor, node)
        anchor = node
    renamed: set[ir.Value] = set()
    for name, result in zip(match.rule.match.outputs, results, strict=True):
        new = real[result]
        if new.producer() in added and new not in renamed:
            _take_over(match.value(name), new, names)
            renamed.add(new)
        else:
            added += _share(match.value(name), new, match, names)
    _remove_unused(match)
    if len(match.nodes) > 1 and len(results) > 1:
        graph.sort()
    return added


def graph_of(node: ir.Node) -> ir.Graph:
    assert isinstance(node.graph, ir.Graph)  # matches are looked for in graphs only, not in functions
    return node.graph


def _outer(model: ir.Model) -> list[ir.Value]:
    return [*model.graph.inputs, *model.graph.initializers.values()]


def _real(value: ir.Value, match: Match, aliases: Mapping[str, str], names: Names) -> ir.Value:
    """The graph's own value for a fragment's input; a new initializer for a constant the rule made."""
    name = value.name or ""
    bound = match.values.get(name) if name in aliases else None
    if bound is not None and (value.const_value is None or _untouched(value, bound)):
        return bound
    tensor = value.const_value
    assert tensor is not None  # inputs of a replacement are inputs of the match, checked by the caller
    fresh = names.fresh(f"{_stem(match)}/{name}")
    made = ir.Value(name=fresh, shape=shape_of(value), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph_of(match.root).register_initializer(made)
    return made


def _untouched(value: ir.Value, bound: ir.Value) -> bool:
    tensor, original = value.const_value, tensor_of(bound)
    if tensor is original or tensor is None or original is None:
        return tensor is original
    return tensor.dtype == original.dtype and np.array_equal(tensor.numpy(), original.numpy())


def _transplant(node: ir.Node, real: dict[ir.Value, ir.Value], match: Match, names: Names) -> ir.Node:
    stem = _stem(match)
    outputs = []
    for value in node.outputs:
        made = ir.Value(name=names.fresh(f"{stem}/{value.name}"), shape=value.shape, type=value.type)
        outputs.append(made)
        real[value] = made
    inputs = [real[value] if value is not None else None for value in node.inputs]
    fresh = ir.Node(
        node.domain,
        node.op_type,
        inputs,
        list(node.attributes.values()),
        outputs=outputs,
        name=names.fresh(f"{stem}/{node.op_type}"),
        metadata_props=_provenance(match),
    )
    for graph in _subgraphs(node):
        _rewire(graph, real, names, stem)
    return fresh


def _subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def _rewire(graph: ir.Graph, real: Mapping[ir.Value, ir.Value], names: Names, stem: str) -> None:
    """Inside a new subgraph: values of the fragment become those of the model, and every name is its own."""
    for value in [*graph.inputs, *graph.initializers.values()]:
        value.name = names.fresh(f"{stem}/{value.name}")
    for node in graph:
        node.name = names.fresh(f"{stem}/{node.op_type}")
        for index, used in enumerate(node.inputs):
            if used is not None and used in real:
                node.replace_input_with(index, real[used])
        for output in node.outputs:
            output.name = names.fresh(f"{stem}/{output.name}") if output.name else output.name
        for inner in _subgraphs(node):
            _rewire(inner, real, names, stem)


def _take_over(old: ir.Value, new: ir.Value, names: Names) -> None:
    """``new`` becomes ``old``: its users, name, type and shape, and its place among the graph outputs."""
    name = old.name
    new.type = old.type or new.type
    if old.shape is not None and (new.shape is None or len(new.shape) == len(old.shape)):
        new.shape = old.shape  # an If may have said the rank of its other branch
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    old.name = names.fresh(f"{name}/replaced")
    new.name = name


def _share(old: ir.Value, new: ir.Value, match: Match, names: Names) -> list[ir.Node]:
    """Let users of ``old`` read the existing ``new``; a graph output keeps its name by a copy."""
    if not old.is_graph_output():
        old.replace_all_uses_with(new)
        return []
    name = names.fresh(f"{_stem(match)}/Identity")
    copy = ir.Node("", "Identity", [new], name=name, metadata_props=_provenance(match))
    copy.outputs[0].type, copy.outputs[0].shape = new.type, new.shape
    producer = new.producer()
    graph = graph_of(match.root)
    if producer is not None and producer.graph is graph:
        graph.insert_after(producer, copy)
    else:
        graph.insert_before(match.root, copy)
    _take_over(old, copy.outputs[0], names)
    return [copy]


def _stem(match: Match) -> str:
    return f"{match.root.name or match.root.op_type}/{match.rule.name}"


def _provenance(match: Match) -> dict[str, str]:
    return {**match.root.metadata_props, provenance.RULE: match.rule.name}


def _let_go(node: ir.Node) -> list[ir.Value]:
    """What the subgraphs of a node that goes read; they read it no more."""
    found = []
    for graph in _subgraphs(node):
        for inner in graph.all_nodes():
            for index, value in enumerate(inner.inputs):
                if value is not None:
                    found.append(value)
                    inner.replace_input_with(index, None)
    return found


def _remove_unused(match: Match) -> None:
    fed = [value for node in match.nodes for value in node.inputs if value is not None]
    for node in reversed(match.nodes):
        if any(value.uses() or value.is_graph_output() for value in node.outputs):
            continue
        graph = node.graph
        if isinstance(graph, ir.Graph):
            fed += _let_go(node)
            graph.remove(node, safe=True)
    for value in fed:
        graph = value.graph
        if (
            value.is_initializer()
            and not value.uses()
            and not value.is_graph_input()
            and isinstance(graph, ir.Graph)
        ):
            graph.initializers.pop(value.name or "", None)
