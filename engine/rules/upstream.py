"""A match that holds a node and all that it is computed from: for a node that means little without.

A Loop reads the tables that it goes through from outside; whether they are regular only their making tells. Names of
the pattern are those of the graph, so that what subgraphs read by name is there in the part, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import onnx_ir as ir

from engine.rules.constants import tensor_of
from engine.rules.language import Rule
from engine.rules.pattern import Pattern, PatternNode

MOST = 200  # nodes; a part is proven as a whole


def bind(rule: Rule, node: ir.Node) -> tuple[Rule, tuple[ir.Node, ...], dict[str, ir.Value | None]] | str:
    """The rule with a pattern for ``node`` and what it is computed from, the nodes, the values; or why it has none."""
    found, stack = {node}, [node]
    ends: dict[ir.Value, None] = {}
    while stack:
        for value in read(stack.pop()):
            maker = value.producer()
            if maker is None or tensor_of(value) is not None:
                ends[value] = None
            elif maker.graph is not node.graph:
                return f"reads {value.name} of a graph around it"
            elif maker not in found:
                found.add(maker)
                stack.append(maker)
        if len(found) > MOST:
            return f"is computed from more than {MOST} nodes"
    assert isinstance(node.graph, ir.Graph)
    nodes = tuple(one for one in node.graph if one in found)
    outputs = tuple(value.name or "" for value in node.outputs if value.uses() or value.is_graph_output())
    values = {value.name or "": value for value in ends}
    values |= {value.name: value for one in nodes for value in one.outputs if value.name}
    if not outputs:
        return "makes nothing that is used"
    pattern = Pattern(tuple(value.name or "" for value in ends), outputs, tuple(map(_wanted, nodes)))
    return replace(rule, match=pattern), nodes, dict(values)


def read(node: ir.Node) -> Iterator[ir.Value]:
    """What a node reads of the graph that it stands in, in its subgraphs as well."""
    yield from (value for value in node.inputs if value is not None)
    for graph in subgraphs(node):
        own = {*graph.inputs, *graph.initializers.values()} | {
            value for one in graph for value in one.outputs
        }
        for one in graph:
            yield from (value for value in read(one) if value not in own)
        yield from (value for value in graph.outputs if value not in own)


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def _wanted(node: ir.Node) -> PatternNode:
    inputs = tuple("" if value is None else value.name or "" for value in node.inputs)
    return PatternNode(
        node.op_type, node.domain, inputs, tuple(value.name or "" for value in node.outputs), {}
    )
