"""Put the types into the graph: one cast per value and type, weights in every type they are read in."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from engine.graph.fresh import Names
from engine.graph.provenance import KEYS
from engine.precision import ops
from engine.precision.constants import fill_value
from engine.precision.decide import Decision
from engine.precision.formats import FAMILY, PRECISIONS, Precision, is_float, is_weight
from engine.precision.prepare import nodes, owners
from engine.precision.report import Boundary, ConvertedWeight, InsertedCast
from engine.precision.selectors import Assignment, module_of
from engine.precision.weights import ConvertedTensor, Scan, scan


class Writer:
    """Carries a decision out on one model; ``casts``, ``weights`` and ``folded`` say what was done."""

    def __init__(self, model: ir.Model, decision: Decision, assignment: Assignment, io: Boundary) -> None:
        self._model, self._decision, self._io = model, decision, io
        self._base, self._pinned = ops.precise(assignment.base), assignment.pinned.keys()
        self._owners, self._names = owners(model), Names(model)
        self._needs: dict[ir.Value, dict[ir.DataType, list[ir.Node]]] = {}
        self._variants: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        self._casts: list[tuple[ir.Node, Precision, list[ir.Node]]] = []
        self.weights: list[ConvertedWeight] = []
        self.folded: list[str] = []

    def write(self) -> None:
        order = list(nodes(self._model))
        wanted = {node: self._wanted(node) for node in order if ops.touches_float(node)}
        for node, inputs in wanted.items():
            for index, dtype in inputs.items():
                value = node.inputs[index]
                assert value is not None
                self._needs.setdefault(value, {}).setdefault(dtype, []).append(node)
        outputs = self._retype()
        for value in list(self._needs):
            self._supply(value)
        for node, inputs in wanted.items():
            for index, dtype in inputs.items():
                value = node.inputs[index]
                assert value is not None
                node.replace_input_with(index, self._variants[value, dtype])
        for graph, index, dtype in outputs:
            value = graph.outputs[index]
            self._supply(value, dtype)
            graph.outputs[index] = self._variants[value, dtype]
        self._restore_output_names(outputs)
        self._drop_idle_casts(order)

    def _wanted(self, node: ir.Node) -> dict[int, ir.DataType]:
        """The type of each float input, by index; an input that may have any type is left out."""
        if ops.is_blind(node) and self._any_type(node):
            return {}
        if ops.casts_between_floats(node):
            return {}
        dtype = self._decision.types[node]
        slots = ops.slots_of(node, self._model.opset_imports)
        if not slots:
            return {index: dtype for index, value in enumerate(node.inputs) if is_float(value)}
        return {slot.index: ops.slot_type(node, slot, dtype) for slot in slots if not slot.is_output}

    def _any_type(self, node: ir.Node) -> bool:
        slots = ops.slots_of(node, self._model.opset_imports)
        return all(slot.allowed >= {ir.DataType.FLOAT, self._base} for slot in slots)

    def _retype(self) -> list[tuple[ir.Graph, int, ir.DataType]]:
        """Give every produced value its new type; return what each graph output must be."""
        outputs = []
        for graph in self._model.graphs():
            assert isinstance(graph, ir.Graph)
            owner = self._owners.get(graph)
            for index, value in enumerate(graph.outputs):
                if is_float(value):
                    assert value.dtype is not None
                    kept = value.dtype if self._io == "keep" else self._base
                    outputs.append((graph, index, self._inside(owner) if owner else kept))
            for value in graph.inputs:
                if is_float(value) and not is_weight(value) and (owner or self._io == "lower"):
                    value.type = ir.TensorType(self._inside(owner) if owner else self._base)
        for node, dtype in self._decision.types.items():
            self._retype_node(node, dtype)
        return outputs

    def _inside(self, owner: ir.Node) -> ir.DataType:
        """The type in which floats enter and leave the graph inside ``owner``."""
        return self._decision.types.get(owner, ir.DataType.FLOAT)

    def _retype_node(self, node: ir.Node, dtype: ir.DataType) -> None:
        slots = ops.slots_of(node, self._model.opset_imports)
        for slot in slots:
            if slot.is_output:
                node.outputs[slot.index].type = ir.TensorType(ops.slot_type(node, slot, dtype))
        if not slots:
            return
        if name := ops.type_attribute(node):
            node.attributes[name] = ir.AttrInt64(name, dtype.value)
        elif node.op_type == "ConstantOfShape" and is_float(node.outputs[0]):
            filled = fill_value(node, dtype, self._decision.constants.clamps)
            node.attributes["value"] = ir.AttrTensor("value", filled)

    def _supply(self, value: ir.Value, dtype: ir.DataType | None = None) -> None:
        """Make sure that ``value`` exists in ``dtype``, or in every type that its readers need."""
        if dtype is not None:
            self._needs.setdefault(value, {}).setdefault(dtype, [])
        needs = self._needs[value]
        if is_weight(value):
            self._supply_weight(value, needs)
            return
        for target, readers in needs.items():
            if value.dtype == target:
                self._variants[value, target] = value
            elif (value, target) not in self._variants:
                self._variants[value, target] = self._cast(value, target, readers)

    def _supply_weight(self, value: ir.Value, needs: Mapping[ir.DataType, list[ir.Node]]) -> None:
        original = value.dtype
        assert original is not None
        stays = original in needs or value.is_graph_output()
        for target in needs:
            if (value, target) in self._variants:
                continue
            if target == original:
                self._variants[value, target] = value
            elif stays or any((value, other) in self._variants for other in FAMILY):
                self._variants[value, target] = self._second(value, target)
            else:
                self._variants[value, target] = value
                self._convert(value, value, target)

    def _second(self, value: ir.Value, target: ir.DataType) -> ir.Value:
        name = self._names.fresh(f"{value.name}_{PRECISIONS[target]}")
        second = ir.Value(name=name, shape=value.shape, type=ir.TensorType(target))
        self._convert(value, second, target)
        graph = value.graph
        assert isinstance(graph, ir.Graph)
        graph.register_initializer(second)
        return second

    def _convert(self, source: ir.Value, into: ir.Value, target: ir.DataType) -> None:
        precision, tensor = PRECISIONS[target], source.const_value
        assert tensor is not None
        if isinstance(tensor, ConvertedTensor):
            tensor = tensor.source
        constants = self._decision.constants
        found = constants.scans.get((source, precision)) or scan(tensor, precision)
        clamp = constants.clamps.get((source, precision))
        into.const_value = ConvertedTensor(tensor, precision, clamp)
        into.const_value.name = into.name
        into.type = ir.TensorType(target)
        self.weights.append(_converted(source, into, precision, found, clamp))

    def _cast(self, value: ir.Value, target: ir.DataType, readers: list[ir.Node]) -> ir.Value:
        assert value.dtype is not None
        self._model.opset_imports.setdefault("", 18)
        short = PRECISIONS[target]
        reader = readers[0] if readers else value.producer()
        cast = ir.Node(
            "",
            "Cast",
            [value],
            {"to": ir.AttrInt64("to", target.value)},
            name=self._names.fresh(f"{value.name}_to_{short}"),
            metadata_props={key: text for key, text in reader.metadata_props.items() if key in KEYS}
            if reader
            else {},
        )
        made = cast.outputs[0]
        made.name = self._names.fresh(f"{value.name}_{short}")
        made.type, made.shape = ir.TensorType(target), value.shape
        place_after(value, cast)
        self._casts.append((cast, PRECISIONS[value.dtype], readers))
        return made

    @property
    def casts(self) -> tuple[InsertedCast, ...]:
        """The casts that were put in, by the names that everything has in the end."""
        return tuple(_inserted(cast, source, readers) for cast, source, readers in self._casts)

    def _restore_output_names(self, outputs: list[tuple[ir.Graph, int, ir.DataType]]) -> None:
        for (value, dtype), variant in self._variants.items():
            if variant is value or is_weight(value) or value.producer() is None:
                continue
            exported = any(graph.outputs[index] is variant for graph, index, _ in outputs)
            if exported and not value.is_graph_output():
                name, inner = value.name, PRECISIONS[value.dtype or dtype]
                value.name = self._names.fresh(f"{name}_{inner}")
                variant.name = name

    def _drop_idle_casts(self, order: list[ir.Node]) -> None:
        """Remove the model's own casts between floats that have nothing left to change, unless named."""
        for node in order:
            if not ops.casts_between_floats(node) or node.graph is None or node.name in self._pinned:
                continue
            value, result = node.inputs[0], node.outputs[0]
            if value is None or value.dtype != result.dtype or result.is_graph_output():
                continue
            result.replace_all_uses_with(value)
            node.graph.remove(node, safe=True)
            self.folded.append(node.name or "")


def place_after(value: ir.Value, node: ir.Node) -> None:
    """Put ``node`` right after whatever makes ``value``."""
    maker, graph = value.producer(), value.graph
    if maker is not None and maker.graph is not None:
        maker.graph.insert_after(maker, node)
        return
    assert isinstance(graph, ir.Graph)
    if len(graph):
        graph.insert_before(graph[0], node)
    else:
        graph.append(node)


def _inserted(cast: ir.Node, source: Precision, readers: list[ir.Node]) -> InsertedCast:
    value, made = cast.inputs[0], cast.outputs[0]
    assert value is not None
    assert made.dtype is not None
    users = tuple(dict.fromkeys(node.name or "" for node in readers))
    name, target = cast.name or "", PRECISIONS[made.dtype]
    return InsertedCast(name, value.name or "", source, target, module_of(cast), users)


def _converted(
    source: ir.Value, into: ir.Value, precision: Precision, found: Scan, clamp: float | None
) -> ConvertedWeight:
    size = found.size * (into.dtype or ir.DataType.FLOAT).itemsize
    lost = 0 if clamp else found.to_inf
    return ConvertedWeight(
        source.name or "",
        into.name or "",
        precision,
        found.size,
        int(size),
        lost,
        found.to_zero,
        found.to_subnormal,
    )
