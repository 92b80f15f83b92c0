"""Integer types that a toolchain lacks, computed in a wider one that it has, with the same numbers.

uint8, uint16 and int16 become int32, uint32 becomes int64, in tensors, constants and casts. After an
operator that can leave the range of the narrow type the result is wrapped as the narrow type would. Operators
that ONNX does not define for the wider type, or whose result depends on the type otherwise, keep the narrow one
between two casts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from engine.graph import provenance, stable
from engine.graph.fresh import Names
from engine.graph.integer_types import WIDER, WRAPS, Type, join_casts, number_range

_TYPE_ATTRIBUTES = ("to", "dtype")


@dataclass(frozen=True)
class Retyped:
    """What was changed: inputs and outputs with their old and new types, counts of nodes, and nodes.

    ``computing`` are the operators that compute in the wider type now, ``added`` the new nodes, each with the operator
    that it serves, where there is one.
    """

    inputs: Mapping[str, tuple[str, str]]
    outputs: Mapping[str, tuple[str, str]]
    wrapped: int
    kept: int  # operators that still compute in the narrow type, between casts
    computing: tuple[ir.Node, ...]
    added: Mapping[ir.Node, ir.Node | None]


def widen(model: ir.Model, boundary: Collection[Type], types: Mapping[Type, Type] = WIDER) -> Retyped | None:
    """Change ``model`` in place; None when no operator in it can compute one of ``types`` in the wider one.

    Inputs and outputs whose type is in ``boundary`` get the wider one; the others keep theirs, with a cast behind
    or before them.
    """
    work = _Pass(model, types, _narrow(model, types))
    return work.run(boundary) if work.possible() else None


def staying(model: ir.Model, types: Mapping[Type, Type] = WIDER) -> list[tuple[ir.Node, str]]:
    """The operators of ``model`` that would go on to compute in a narrow type, and why."""
    work = _Pass(model, types, _narrow(model, types))
    return [(node, why) for node in work.concerned() if (why := work.why_it_stays(node))]


def _narrow(model: ir.Model, types: Mapping[Type, Type]) -> dict[ir.Value, Type]:
    was = {value: value.dtype for graph in model.graphs() for value in _values(graph)}
    return {value: dtype for value, dtype in was.items() if dtype is not None and dtype in types}


class _Pass:
    def __init__(self, model: ir.Model, types: Mapping[Type, Type], narrow: Mapping[ir.Value, Type]) -> None:
        self.model, self.types, self.narrow = model, types, dict(narrow)
        self.opset = model.opset_imports.get("", 1)
        self.names = Names(model)
        self.left: set[ir.Value] = set()  # keep the type that they have
        self.wrapped = self.kept = 0
        self.computing: list[ir.Node] = []
        self.added: dict[ir.Node, ir.Node | None] = {}

    def possible(self) -> bool:
        return any(not self.why_it_stays(node) for node in self.concerned())

    def concerned(self) -> Iterator[ir.Node]:
        for node in self.model.graph.all_nodes():
            if any(value in self.narrow for value in (*node.inputs, *node.outputs)):
                yield node

    def run(self, boundary: Collection[Type]) -> Retyped:
        inputs, outputs = list(self.model.graph.inputs), list(self.model.graph.outputs)
        before = {value: value.dtype for value in (*inputs, *outputs)}
        names = [value.name or "" for value in outputs]
        for graph in list(self.model.graphs()):
            for node in list(graph):
                if any(value in self.narrow for value in (*node.inputs, *node.outputs)):
                    self._node(node)
        kept = [value for value in inputs if value in self.narrow and self.narrow[value] not in boundary]
        for value, dtype in list(self.narrow.items()):
            if value not in self.left and value not in kept:
                self._retype(value, dtype)
        for value in kept:
            user = next((use.node for use in value.uses() if use.node not in self.added), None)
            self._after(value, [self._cast(value, self.types[self.narrow[value]], user)], self.model.graph)
        for index, value in enumerate(outputs):
            old = before[value]
            kept_type = self.model.graph.outputs[index].dtype == old
            if old is not None and old in self.types and old not in boundary and not kept_type:
                self._narrow_output(index, names[index], old)
        after = {
            value.name or "": value.dtype for value in (*self.model.graph.inputs, *self.model.graph.outputs)
        }
        for graph in self.model.graphs():
            join_casts(graph)
            graph.sort()
        return Retyped(
            _changes([(value.name or "", before[value]) for value in inputs], after),
            _changes([(name, before[value]) for name, value in zip(names, outputs, strict=True)], after),
            self.wrapped,
            self.kept,
            tuple(self.computing),
            self.added,
        )

    def _retype(self, value: ir.Value, dtype: Type) -> None:
        wide = self.types[dtype]
        value.type = ir.TensorType(wide)
        if value.const_value is not None and value.producer() is None:
            value.const_value = ir.Tensor(value.const_value.numpy().astype(wide.numpy()), name=value.name)

    def why_it_stays(self, node: ir.Node) -> str:
        """Why an operator must keep its types, or ""."""
        return stable.why_it_stays(node, self.narrow, self.types, self.opset)

    def _node(self, node: ir.Node) -> None:
        if self.why_it_stays(node):
            self._island(node)
            return
        if node.op_type not in ("Cast", "Constant") or (
            node.op_type == "Cast" and not stable.fits(node, self.narrow)
        ):
            self.computing.append(node)
        for name in _TYPE_ATTRIBUTES:
            written = node.attributes.get(name)
            if written is not None and Type(written.as_int()) in self.types:
                node.attributes[name] = ir.AttrInt64(name, int(self.types[Type(written.as_int())]))
        for name, attribute in list(node.attributes.items()):
            if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype in self.types:
                tensor = attribute.as_tensor()
                made = tensor.numpy().astype(self.types[tensor.dtype].numpy())
                node.attributes[name] = ir.AttrTensor(name, ir.Tensor(made, name=tensor.name))
        if node.op_type in WRAPS or (node.op_type == "Cast" and not stable.fits(node, self.narrow)):
            for output in list(node.outputs):
                if output in self.narrow:
                    self._wrap(node, output)

    def _island(self, node: ir.Node) -> None:
        """The node keeps its types, with a cast on every narrow edge."""
        graph = _graph(node)
        self.kept += 1
        for index, value in enumerate(list(node.inputs)):
            if value is not None and value in self.narrow:
                cast = self._cast(value, self.narrow[value], node)
                graph.insert_before(node, cast)
                node.replace_input_with(index, cast.outputs[0])
        for output in list(node.outputs):
            if output in self.narrow:
                self.left.add(output)
                cast = self._cast(output, self.types[self.narrow[output]], node)
                self._after(output, [cast], graph, node)

    def _wrap(self, node: ir.Node, output: ir.Value) -> None:
        """Bring a result back into the range of the narrow type, as that type's own arithmetic does."""
        dtype = self.narrow[output]
        wide, (low, high) = self.types[dtype], number_range(dtype)
        self.wrapped += 1
        graph = _graph(node)
        steps = [("Mod", high - low + 1)]
        if low < 0:
            steps = [("Sub", low), *steps, ("Add", low)]
        chain: list[ir.Node] = []
        value = output
        for op, number in steps:
            constant = self._constant(number, wide, output, graph)
            made = self._value(f"{output.name}/{op.lower()}", wide, output)
            name = self.names.fresh(f"{output.name}/{op}")
            chain.append(self._made(ir.Node("", op, [value, constant], outputs=[made], name=name), node))
            value = made
        self._after(output, chain, graph, node)

    def _after(
        self, value: ir.Value, chain: Sequence[ir.Node], graph: ir.Graph, producer: ir.Node | None = None
    ) -> None:
        """Whoever reads ``value`` reads the end of ``chain`` from now on, which begins at ``value``."""
        end, first = chain[-1].outputs[0], chain[0]
        if value in self.narrow:
            self.narrow[end] = self.narrow[value]
            self.left.add(end)
        if value.is_graph_input():  # one that is an output as well stays both, under its name
            for user, index in list(value.uses()):
                user.replace_input_with(index, end)
        else:
            value.replace_all_uses_with(end, replace_graph_outputs=True)
        first.replace_input_with(0, value)
        if end.is_graph_output():
            name = value.name
            value.name, end.name = self.names.fresh(f"{name}/raw"), name
        for node in reversed(chain):
            if producer is not None:
                graph.insert_after(producer, node)
            else:
                graph.insert_before(graph[0], node)

    def _narrow_output(self, index: int, name: str, dtype: Type) -> None:
        graph = self.model.graph
        value = graph.outputs[index]
        cast = self._cast(value, dtype, self._maker(value))
        graph.append(cast)
        value.name, cast.outputs[0].name = self.names.fresh(f"{name}/wide"), name
        graph.outputs[index] = cast.outputs[0]

    def _cast(self, value: ir.Value, to: Type, of: ir.Node | None) -> ir.Node:
        made = self._value(f"{value.name}/{to.name.lower()}", to, value)
        attributes = [ir.AttrInt64("to", int(to))]
        name = self.names.fresh(f"{value.name}/Cast")
        return self._made(ir.Node("", "Cast", [value], attributes, outputs=[made], name=name), of)

    def _made(self, node: ir.Node, of: ir.Node | None) -> ir.Node:
        """A new node comes from where the operator comes from that it serves."""
        self.added[node] = of
        if of is not None:
            node.metadata_props.update(
                {key: of.metadata_props[key] for key in provenance.ORIGIN if key in of.metadata_props}
            )
        return node

    def _maker(self, value: ir.Value) -> ir.Node | None:
        """The operator that a value comes from, what was added behind it left aside."""
        node = value.producer()
        return self.added.get(node, node) if node is not None else None

    def _constant(self, number: int, dtype: Type, of: ir.Value, graph: ir.Graph) -> ir.Value:
        tensor = ir.Tensor(np.asarray(number, dtype=dtype.numpy()))
        made = ir.Value(name=self.names.fresh(f"{of.name}/{number}"), shape=ir.Shape([]), type=ir.TensorType(dtype),
                        const_value=tensor)  # fmt: skip
        graph.register_initializer(made)
        return made

    def _value(self, name: str, dtype: Type, like: ir.Value) -> ir.Value:
        shape = None if like.shape is None else like.shape.copy()
        return ir.Value(name=self.names.fresh(name), shape=shape, type=ir.TensorType(dtype))


def _graph(node: ir.Node) -> ir.Graph:
    assert isinstance(node.graph, ir.Graph)
    return node.graph


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def _changes(
    before: Iterable[tuple[str, Type | None]], after: Mapping[str, Type | None]
) -> dict[str, tuple[str, str]]:
    return {
        name: (was.name.lower(), now.name.lower())
        for name, was in before
        if was is not None and (now := after.get(name)) is not None and now != was
    }
