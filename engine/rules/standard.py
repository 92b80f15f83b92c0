"""What the ONNX standard says of an operator of its default domain."""

from __future__ import annotations

import onnx

Schema = onnx.defs.OpSchema


def schema_of(op: str, opset: int | None = None) -> Schema | None:
    """The operator as ``opset`` has it (the newest by default), or None where there is none."""
    top = opset or onnx.defs.onnx_opset_version()
    if not onnx.defs.has(op, max_inclusive_version=top, domain=""):
        return None
    return onnx.defs.get_schema(op, top, "")


def names(op: str) -> tuple[set[str], set[str]]:
    """Names of values and of attributes that any opset gives ``op``; a variadic one stands for its numbers."""
    values: set[str] = set()
    attributes: set[str] = set()
    for schema in onnx.defs.get_all_schemas_with_history():
        if (schema.name, schema.domain) == (op, ""):
            values |= {formal.name for formal in (*schema.inputs, *schema.outputs)}
            attributes |= set(schema.attributes)
    return values, attributes
