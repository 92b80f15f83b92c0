"""Defaults that ONNX's own shape inference gets wrong where a node leaves them out; written out, they mean the same.

ONNX 1.23 infers an STFT without ``onesided`` as if it were 0, and takes the definition of a MeanVarianceNormalization
without ``axes`` for invalid; either way a valid model fails the full checker.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir

_LEFT_OUT = {"STFT": "onesided", "MeanVarianceNormalization": "axes"}


def write_out(model: ir.Model) -> None:
    """Give every such node of ``model`` the default that the standard names."""
    opset = model.opset_imports.get("", 1)
    nodes = [
        *model.graph.all_nodes(),
        *(node for one in model.functions.values() for node in one.all_nodes()),
    ]
    for node in nodes:
        name = _LEFT_OUT.get(node.op_type)
        if name is not None and node.domain == "" and name not in node.attributes:
            default = _default(node.op_type, name, opset)
            if default is not None:
                node.attributes.add(ir.serde.deserialize_attribute(default))


def write_out_proto(model: onnx.ModelProto) -> bool:
    """The same for a proto, its functions left aside; whether there was such a node."""
    opset = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 1)
    written = False
    for node in _nodes(model.graph):
        name = _LEFT_OUT.get(node.op_type)
        if name is None or node.domain not in ("", "ai.onnx") or name in {one.name for one in node.attribute}:
            continue
        default = _default(node.op_type, name, opset)
        if default is not None:
            node.attribute.append(default)
            written = True
    return written


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _nodes(inner)


def _default(op: str, name: str, opset: int) -> onnx.AttributeProto | None:
    if not onnx.defs.has(op, max_inclusive_version=opset):
        return None
    known = onnx.defs.get_schema(op, opset).attributes.get(name)
    return known.default_value if known is not None and known.default_value.name else None
