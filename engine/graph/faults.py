"""What the checks of a graph file find, and how they walk its graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx

from engine.errors import quoted


@dataclass(frozen=True)
class Fault:
    """Why a file is refused: one fault, with what mends it."""

    symptom: str
    cause: str = ""
    fix: str = ""
    klass: str = "export"


def who(node: onnx.NodeProto) -> str:
    """A node as messages name it: by its name, or by what it makes when it has none."""
    if node.name:
        return f"node {quoted(node.name)} ({node.op_type})"
    made = next((name for name in node.output if name), "")
    return f"the node that makes {quoted(made)} ({node.op_type})"


def below(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs inside a node: branches and loop bodies."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """``graph`` and every graph inside it."""
    yield graph
    for node in graph.node:
        for inner in below(node):
            yield from graphs(inner)


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for one in graphs(graph):
        yield from one.node


def function_nodes(function: onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    for node in function.node:
        yield node
        for inner in below(node):
            yield from all_nodes(inner)


def domain_of(text: str) -> str:
    """``ai.onnx`` is another spelling of the default domain."""
    return "" if text == "ai.onnx" else text


def domain_name(domain: str) -> str:
    return quoted(domain or "ai.onnx")


def dims(shape: onnx.TensorShapeProto) -> list[int | str]:
    """Sizes of a shape: a number, a symbol, or "" for one that is not known."""
    return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in shape.dim]


def described(kind: onnx.TypeProto) -> str:
    """A type as messages show it: ``float[n, 4]``."""
    which = kind.WhichOneof("value")
    if which != "tensor_type":
        return (which or "no type").removesuffix("_type").replace("_", " ")
    name = str(onnx.TensorProto.DataType.Name(kind.tensor_type.elem_type)).lower()
    if not kind.tensor_type.HasField("shape"):
        return name
    return f"{name}[{', '.join(str(size) or '?' for size in dims(kind.tensor_type.shape))}]"
