"""An If whose condition is known before the graph runs: which branch it takes, and that branch in its place.

Also what such rules share: a node is matched together with the nodes that make one of its inputs.

The exporter of TorchScript writes ``squeeze(dim)`` as an If on the size of the axis. The part that is matched holds
the If and the nodes that read the size, so that a proof runs the condition as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir
from onnx_ir.passes import common

from engine.rules.constants import axis_of_size, dims_of, tensor_of
from engine.rules.pattern import Pattern, PatternNode
from engine.rules.refuse import RefusedError
from engine.rules.standard import schema_of

MOST = 64  # nodes that make one input
Bound = tuple[Pattern, tuple[ir.Node, ...], dict[str, ir.Value | None]]
Sizes = Mapping[str, tuple[int, ...]]  # symbol -> lowest to highest of the sizes that it may have


def bind(node: ir.Node) -> Bound | str:
    """A pattern for one If with what reads its condition, the nodes and the values; or why there is none."""
    reading = list(_reading(node.inputs[0]))
    made = {value for one in (*reading, node) for value in one.outputs}
    spoilt = next((value for value in captured(node) if value in made), None)
    if spoilt is not None:
        return f"reads {spoilt.name}, of which the condition is made, in a branch"
    return together((*reversed(reading), node))


def together(nodes: tuple[ir.Node, ...]) -> Bound:
    """A pattern for the last of ``nodes``, which are sorted, with those that make something for it."""
    node = nodes[-1]
    made = {value for one in nodes for value in one.outputs}
    read = dict.fromkeys(value for one in nodes for value in one.inputs if value is not None)
    read |= dict.fromkeys(captured(node))
    outer = [value for value in read if value not in made]
    names: dict[ir.Value, str] = {value: f"outer_{number}" for number, value in enumerate(outer)}
    inner = [value for one in nodes[:-1] for value in one.outputs]
    names |= {value: f"inner_{number}" for number, value in enumerate(inner)}
    names |= {value: f"outputs_{number}" for number, value in enumerate(node.outputs)}
    wanted = tuple(
        PatternNode(one.op_type, one.domain, tuple(names[v] if v is not None else "" for v in one.inputs),
                    tuple(names[value] for value in one.outputs), {})
        for one in nodes
    )  # fmt: skip
    pattern = Pattern(tuple(names[v] for v in outer), tuple(names[v] for v in node.outputs), wanted)
    return pattern, nodes, {name: value for value, name in names.items()}


def index_of(node: ir.Node, name: str, opset: int | None) -> int | None:
    """Which input of the node the standard calls ``name``; None where it has none, or leaves it out."""
    schema = schema_of(node.op_type, opset)
    names = [formal.name for formal in schema.inputs] if schema is not None else []
    index = names.index(name) if name in names else len(node.inputs)
    return index if index < len(node.inputs) and node.inputs[index] is not None else None


def makers(node: ir.Node, index: int) -> tuple[ir.Node, ...] | None:
    """What makes input ``index``, back to constants and to the values whose shapes are read, sorted; None: too much."""
    first = node.inputs[index]
    seen = [first.producer()] if first is not None and tensor_of(first) is None else []
    for one in seen:  # grows while it is gone through
        if one is None or len(seen) > MOST:
            return None
        if one.op_type != "Shape":
            needed = (value for value in one.inputs if value is not None and tensor_of(value) is None)
            seen += [maker for maker in (value.producer() for value in needed) if maker not in seen]
    found = set(seen)
    return tuple(one for one in node.graph or () if one in found)


def captured(node: ir.Node) -> Iterator[ir.Value]:
    """What the node's subgraphs read of the graphs around them."""
    for attribute in node.attributes.values():
        if attribute.type != ir.AttributeType.GRAPH:
            continue
        graph = attribute.as_graph()
        own = {value for inside in graph.all_nodes() for value in inside.outputs}
        own |= {
            value for inner in graph.subgraphs() for value in (*inner.inputs, *inner.initializers.values())
        }
        own |= {*graph.inputs, *graph.initializers.values()}
        ends = [*graph.outputs, *(end for inner in graph.subgraphs() for end in inner.outputs)]
        used = [value for inside in graph.all_nodes() for value in inside.inputs]
        yield from (value for value in (*used, *ends) if value is not None and value not in own)


def _reading(condition: ir.Value | None) -> Iterator[ir.Node]:
    """The nodes from the condition back to where a size is read, nearest first; none where it is read nowhere."""
    node = condition.producer() if condition is not None else None
    if node is None or _measured(node) is None:
        return
    seen = [node]
    for one in seen:  # grows while it is gone through
        if one.op_type != "Shape":
            makers = (
                value.producer() for value in one.inputs if value is not None and tensor_of(value) is None
            )
            seen += [maker for maker in makers if maker is not None and maker not in seen]
    yield from seen


def _measured(node: ir.Node) -> tuple[ir.Value, int, int] | None:
    """Value, axis and number of ``size of the axis == number``."""
    if node.op_type != "Equal" or node.domain != "":
        return None
    for first, second in (node.inputs, node.inputs[::-1]):
        size, tensor = axis_of_size(first), tensor_of(second)
        if size is not None and tensor is not None and tensor.size == 1:
            return *size, int(tensor.numpy().reshape(()))
    return None


def decided(node: ir.Node, sizes: Sizes) -> bool:
    """The condition of an If. Raises RefusedError where neither the graph nor ``sizes`` decide it."""
    condition = node.inputs[0]
    tensor = tensor_of(condition)
    if tensor is not None and tensor.size == 1:
        return bool(tensor.numpy().reshape(()))
    maker = condition.producer() if condition is not None else None
    found = _measured(maker) if maker is not None else None
    if found is None:
        raise RefusedError("its condition is not whether an axis has a certain size")
    value, axis, number = found
    dims = dims_of(value)
    size = dims[axis] if dims is not None else None
    allowed = (size,) if isinstance(size, int) else sizes.get(str(size), ())
    if not allowed:
        raise RefusedError(f"nothing says what size axis {axis} of {value.name} has ({size or 'no name'})")
    low, high = min(allowed), max(allowed)
    if low < high and low <= number <= high:
        raise RefusedError(
            f"{size}, the size of axis {axis} of {value.name}, is {low} to {high}: both branches are needed"
        )
    return low == number


def copied(attribute: ir.Attr, values: Mapping[ir.Value, ir.Value], own_names: bool) -> ir.Attr:
    """The attribute for a copy of its node: a subgraph reads ``values`` then; with ``own_names`` its names are new."""
    if attribute.type != ir.AttributeType.GRAPH:
        return attribute
    graph = attribute.as_graph().clone(allow_outer_scope_values=True)
    for node in graph.all_nodes():
        for index, value in enumerate(node.inputs):
            if value is not None and value in values:
                node.replace_input_with(index, values[value])
    inside = [value for node in graph.all_nodes() for value in node.outputs if value.name]
    for number, value in enumerate((*graph.initializers.values(), *inside) if own_names else ()):
        value.name = f"{attribute.name}_{number}"
    return ir.Attr(attribute.name, attribute.type, graph)


def taken(before: ir.Model, branch: bool) -> ir.Model:
    """``before``, a fragment that ends in an If, with the nodes of one branch in its place."""
    graph = before.graph.clone()
    node = graph[-1]
    inner = node.attributes["then_branch" if branch else "else_branch"].as_graph()
    ends = [_source(value) for value in inner.outputs]
    for value in list(inner.initializers.values()):
        inner.initializers.pop(value.name or "")
        graph.register_initializer(value)
    inside = list(inner)
    inner.outputs.clear()
    inner.remove(inside)
    graph.insert_before(node, inside)
    copies = [ir.Node("", "Identity", [end]) for end in ends]
    for old, copy in zip(node.outputs, copies, strict=True):
        copy.outputs[0].name, copy.outputs[0].type = old.name, old.type
    graph.insert_after(node, copies)
    graph.outputs[:] = [copy.outputs[0] for copy in copies]
    graph.remove(node, safe=True)
    after = ir.Model(graph, ir_version=before.ir_version)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(after)
    common.RemoveUnusedNodesPass()(after)
    return after


def _source(value: ir.Value) -> ir.Value:
    node = value.producer()
    while (
        node is not None and node.op_type == "Identity" and node.domain == "" and node.inputs[0] is not None
    ):
        value = node.inputs[0]
        node = value.producer()
    return value


def followers(olds: Sequence[ir.Value], news: Sequence[ir.Value]) -> list[ir.Value]:
    """What is made of outputs of which the If said another rank than the branch that is taken has."""
    wrong = [old for old, new in zip(olds, news, strict=True) if _rank(old) != _rank(new)]
    return [made for old in wrong for user in old.consumers() for made in user.outputs]


def _rank(value: ir.Value) -> int | None:
    dims = dims_of(value)
    return None if dims is None else len(dims)


def forget(values: list[ir.Value]) -> None:
    """These, and what is made of them, have no shape any more."""
    seen = set(values)
    for value in values:  # grows while it is gone through
        value.shape = None
        fresh = dict.fromkeys(made for user in value.consumers() for made in user.outputs if made not in seen)
        seen |= set(fresh)
        values.extend(fresh)
