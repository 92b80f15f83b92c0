"""Names of a graph file: every value made once, before it is used; every node its own name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx
import onnx_ir as ir

from engine.errors import quoted
from engine.graph.faults import Fault, all_nodes, below, who
from engine.values import Issue

_MEND = "write the file again with another tool, or rename by hand"


def faults(model: onnx.ModelProto, inputs_may_be_weights: bool) -> Iterator[Fault]:
    """Faults in the order of the graph. ``inputs_may_be_weights``: as files before IR version 4 have them."""
    graph = model.graph
    if not graph.node:
        yield Fault("the graph has no nodes", fix="export the model again")
        return
    if not graph.output:
        yield Fault("the graph has no outputs", fix="export the model again")
    weights = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name in weights and not inputs_may_be_weights:
            yield Fault(
                f"{quoted(value.name)} is an input and a weight at once",
                "a default that a caller may override, so that nothing may be folded",
                "take it out of the inputs",
            )
    yield from _same_node_names(graph)
    yield from _scope(graph, set(), inputs_may_be_weights)


def _same_node_names(graph: onnx.GraphProto) -> Iterator[Fault]:
    seen: dict[str, onnx.NodeProto] = {}
    for node in graph.node:
        if node.name and node.name in seen:
            first = seen[node.name]
            yield Fault(
                f"two nodes are named {quoted(node.name)}: {first.op_type} making {quoted(first.output[0])}"
                f" and {node.op_type} making {quoted(node.output[0])}",
                "the ONNX checker takes it, ONNX Runtime does not; overrides by node name would be ambiguous",
                _MEND,
            )
        seen[node.name] = node


def _scope(graph: onnx.GraphProto, outer: set[str], inputs_may_be_weights: bool) -> Iterator[Fault]:
    made: dict[str, str] = {}
    for names, what in (([value.name for value in graph.input], "an input"),
                        (_weights(graph), "a weight")):  # fmt: skip
        for name in names:
            allowed = inputs_may_be_weights and what == "a weight" and made.get(name) == "an input"
            if name in made and not allowed:
                yield _twice(name, made[name], what)
            made[name] = what
    later = {name for node in graph.node for name in node.output if name}
    for node in graph.node:
        for name in node.input:
            if name and name not in made and name not in outer:
                yield _unmade(node, name, later)
        for inner in below(node):
            yield from _scope(inner, outer | set(made), inputs_may_be_weights)
        for name in node.output:
            if name and (name in made or name in outer):
                yield _twice(name, made.get(name, "the graph around"), who(node))
            if name:
                made[name] = who(node)
    for value in graph.output:
        if value.name not in made and value.name not in outer:
            yield Fault(
                f"nothing makes the output {quoted(value.name)}",
                "the node that made it was removed, or the output renamed",
                "export the model again",
            )


def _weights(graph: onnx.GraphProto) -> list[str]:
    return [item.name for item in graph.initializer] + [item.values.name for item in graph.sparse_initializer]


def _twice(name: str, first: str, second: str) -> Fault:
    return Fault(f"the value {quoted(name)} is made twice: by {first} and by {second}",
                 "names must be unique (single static assignment)", _MEND)  # fmt: skip


def _unmade(node: onnx.NodeProto, name: str, later: set[str]) -> Fault:
    if name in later:
        return Fault(
            f"{who(node)} reads {quoted(name)} before it is made",
            "the nodes are not sorted; ONNX Runtime sorts them in silence, the format forbids it",
            "sort the nodes topologically",
        )
    return Fault(
        f"{who(node)} reads {quoted(name)}, which nothing makes",
        "a node or weight was removed, or renamed in one place only",
        "export the model again",
    )


def name_nodes(model: ir.Model) -> None:
    """Give a name of its own to every node, in subgraphs as well, that has none or another's."""
    nodes = list(model.graph.all_nodes())
    taken, seen = {node.name for node in nodes}, set[str | None]()
    for index, node in enumerate(nodes):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{index}"
            while node.name in taken:
                node.name += "_"
            taken.add(node.name)
        seen.add(node.name)


def unused(model: onnx.ModelProto, step: str) -> list[Issue]:
    """Inputs, weights and nodes whose values go nowhere."""
    graph = model.graph
    used = {name for node in all_nodes(graph) for name in node.input}
    used |= {value.name for node in graph.node for inner in below(node) for value in inner.output}
    used |= {value.name for value in graph.output}
    weights = [tensor.name for tensor in graph.initializer if tensor.name not in used]
    inputs = [value.name for value in graph.input if value.name not in used and value.name not in weights]
    dead = [node.name or node.output[0] for node in graph.node if not used & set(node.output)]
    return [
        Issue(step, "export", f"{what} that nothing uses ({len(names)})", cause, evidence=_shown(names))
        for what, cause, names in (
            ("inputs", "the outputs do not depend on them", inputs),
            ("weights", "they take room in the file and are never read", weights),
            ("nodes", "their results go nowhere", dead),
        )
        if names
    ]


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
