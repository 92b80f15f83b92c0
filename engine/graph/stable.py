"""Which operators give the same numbers in a wider integer type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir

from engine.graph.integer_types import SAME, WRAPS, Type, number_range

Kinds = Mapping[ir.Value, Type]


def why_it_stays(node: ir.Node, narrow: Kinds, wider: Mapping[Type, Type], opset: int) -> str:
    """Why an operator must keep the ``narrow`` types of its values, or ""."""
    reduces = node.op_type.startswith("Scatter") and "reduction" in node.attributes
    if node.domain != "" or node.op_type not in (SAME | WRAPS) or reduces:
        return f"what {node.op_type} gives may depend on the width of the type"
    if not _defined(node, narrow, wider, opset):
        return f"ONNX does not define {node.op_type} for the wider type"
    return ""


def fits(cast: ir.Node, narrow: Kinds) -> bool:
    """Whether every number of the cast's source is in the range of the narrow type."""
    source, target = cast.inputs[0], narrow.get(cast.outputs[0])
    kind = narrow.get(source, source.dtype) if source is not None else None
    if target is None or kind == Type.BOOL:
        return True
    if kind is None or not kind.is_integer():
        return False
    (low, high), (least, most) = number_range(kind), number_range(target)
    return low >= least and high <= most


def _defined(node: ir.Node, narrow: Kinds, wider: Mapping[Type, Type], opset: int) -> bool:
    """Whether ONNX has the operator with every narrow tensor in the wider type."""
    if not onnx.defs.has(node.op_type, max_inclusive_version=opset, domain=""):
        return False
    schema = onnx.defs.get_schema(node.op_type, opset)
    allowed = {item.type_param_str: set(item.allowed_type_strs) for item in schema.type_constraints}
    pairs = [*_formals(node.inputs, schema.inputs), *_formals(node.outputs, schema.outputs)]
    return all(
        f"tensor({wider[narrow[value]].name.lower()})" in allowed.get(kind, ())
        for value, kind in pairs
        if value in narrow
    )


def _formals(values: Iterable[ir.Value | None], formals: Sequence[Any]) -> Iterator[tuple[ir.Value, str]]:
    """Values with the name of the type parameter of their place; a variadic place serves all that follow."""
    for index, value in enumerate(values):
        if value is not None and formals:
            yield value, formals[min(index, len(formals) - 1)].type_str
