"""Rules for an operator, whatever its inputs and attributes: each node gets a pattern of its own.

Inputs, outputs and attributes carry the names of the ONNX standard, so that conditions, proofs and Python
functions can speak of ``target`` and ``reduction``. From there on a match is like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from engine.rules import branches
from engine.rules.constants import tensor_of
from engine.rules.equality import attribute_of
from engine.rules.language import Rule
from engine.rules.pattern import Pattern, PatternNode
from engine.rules.standard import Schema, schema_of

_SUBGRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def bind(
    rule: Rule, node: ir.Node, opset: int | None
) -> tuple[Rule, tuple[ir.Node, ...], dict[str, ir.Value | None], dict[str, Any]] | str:
    """The rule with a pattern for ``node``, its nodes, the values and the attributes; or why it cannot have one."""
    if rule.branch or rule.fold:
        found = branches.bind(node) if rule.branch else _made_constant(rule, node, opset)
        if isinstance(found, str):
            return found
        pattern, nodes, values = found
        stay: Mapping[str, Mapping[str, Any]] = {
            name: {"shared": True} for name in values if name.startswith("inner_")
        }
        return replace(rule, match=pattern, where={**rule.where, **stay}), nodes, values, {}
    schema = schema_of(node.op_type, opset)
    if schema is None:
        return f"opset {opset} has no {node.op_type}"
    if any(attribute.type in _SUBGRAPHS for attribute in node.attributes.values()):
        return "holds a subgraph"
    inputs = _named(node.inputs, schema.inputs)
    outputs = _named([value if value.name else None for value in node.outputs], schema.outputs)
    if len(inputs) < len(node.inputs) or len(outputs) < len(node.outputs):
        return f"has more inputs or outputs than {node.op_type} of opset {opset}"
    values = {**inputs, **outputs}
    taken = tuple(name for name, value in inputs.items() if value is not None)
    made = tuple(name for name, value in outputs.items() if value is not None)
    used = tuple(name for name in made if _used(outputs[name]))
    pattern = Pattern(
        taken,
        used or made,  # what nobody reads need not be replaced
        (PatternNode(node.op_type, node.domain, tuple(n if n in taken else "" for n in inputs),
                     tuple(n if n in made else "" for n in outputs), {}),),
    )  # fmt: skip
    attributes = {name: attribute_of(node, name, opset) for name in {*schema.attributes, *node.attributes}}
    return replace(rule, match=pattern), (node,), values, attributes


def _named(values: Any, formals: Any) -> dict[str, ir.Value | None]:
    """Values by formal name. An input and an output of one name (as in Dropout's ancestors) do not occur."""
    return dict(zip(_numbered(formals, len(values)), values, strict=False))


def _made_constant(rule: Rule, node: ir.Node, opset: int | None) -> branches.Bound | str:
    index = branches.index_of(node, rule.fold, opset)
    if index is None or tensor_of(node.inputs[index]) is not None:
        return f"has {'no' if index is None else 'a constant'} {rule.fold}"
    makers = branches.makers(node, index)
    return f"has {rule.fold} of values" if makers is None else branches.together((*makers, node))


def _used(value: ir.Value | None) -> bool:
    return value is not None and (bool(value.uses()) or value.is_graph_output())


def _numbered(formals: Any, count: int) -> Iterator[str]:
    for formal in formals:
        if formal.option == Schema.FormalParameterOption.Variadic:
            yield from (f"{formal.name}_{index}" for index in range(count))
        else:
            yield formal.name


def refusal(where: Mapping[str, Mapping[str, Any]], values: Mapping[str, Any]) -> str | None:
    """Why ``present`` conditions do not hold, or None."""
    for name, conditions in where.items():
        wanted, there = conditions.get("present"), values.get(name) is not None
        if wanted is not None and wanted != there:
            return f"has {'no ' if wanted else 'the value '}{name}"
    return None
