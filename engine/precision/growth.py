"""Which modules lose most: the FP32 graph and the shadow side by side in one run, compared where modules meet.

The graph itself reduces each pair of tensors to two norms, right where the second of them is made, so that memory stays
that of the two graphs run one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from engine.graph import files
from engine.graph.fresh import Names
from engine.precision import prepare, rehearsal
from engine.precision.ranges import behind
from engine.precision.selectors import module_of
from engine.precision.shadow import ROUND, build_shadow
from engine.samples import Array


@dataclass(frozen=True)
class Growth:
    """A module's largest relative error (L2) among what it reads and among what it hands on.

    ``after`` is infinite where the rounded tensor ``value`` is not finite.
    """

    module: str
    value: str
    before: float
    after: float

    @property
    def added(self) -> float:
        return self.after - self.before


def measure(
    lowered: ir.Model, original: ir.Model, path: Path, feeds: Mapping[str, Array], most: int
) -> tuple[Growth, ...]:
    """The ``most`` modules that add most error, the worst first. A node without a module stands for itself.

    ``original`` is the graph that was lowered; ``path`` is written beside the weights of both, and removed.
    """
    shadow, exact = build_shadow(lowered), original.clone()
    prepare.prepare(exact)
    modules = _Modules(exact)
    pairs = _beside(shadow, exact, modules.meeting)
    try:
        files.save(shadow, path)
        outputs = rehearsal.run_shadow(path, feeds, as_written=True)
    finally:
        path.unlink(missing_ok=True)
    errors = {
        value: error
        for value, names in pairs.items()
        if (error := _relative(*(float(outputs[name]) for name in names))) is not None
    }
    return modules.growth(errors)[:most]


def _relative(difference: float, norm: float) -> float | None:
    """None where the reference itself has no norm: a mask of float minima."""
    if not math.isfinite(norm):
        return None
    if not math.isfinite(difference):
        return math.inf
    return difference / norm if norm else (math.inf if difference else 0.0)


class _Modules:
    """Which values pass from one module to another, by their name in the original graph."""

    def __init__(self, model: ir.Model) -> None:
        self.reads: dict[str, set[str]] = {}
        self.makes: dict[str, set[str]] = {}
        for node in model.graph:
            module = _module(node)
            for value in node.outputs:
                users = [user for user, _ in value.uses()]
                if value.dtype != ir.DataType.FLOAT or not value.name:
                    continue
                others = {_module(user) for user in users} - {module}
                for other in others:
                    self.reads.setdefault(other, set()).add(value.name)
                if others or value.is_graph_output():
                    self.makes.setdefault(module, set()).add(value.name)
        self.meeting = set().union(*self.makes.values())

    def growth(self, errors: Mapping[str, float]) -> tuple[Growth, ...]:
        found = []
        for module, made in self.makes.items():
            before = max((errors[name] for name in self.reads.get(module, ()) if name in errors), default=0.0)
            after = max(((errors[name], name) for name in sorted(made) if name in errors), default=None)
            if after is not None and after[0] > before:
                found.append(Growth(module, after[1], before, after[0]))
        return tuple(sorted(found, key=lambda item: -item.added))


def _module(node: ir.Node) -> str:
    return module_of(node) or node.name or node.op_type


def _beside(shadow: ir.Model, exact: ir.Model, wanted: set[str]) -> dict[str, tuple[str, str]]:
    """Move the nodes of ``exact`` into ``shadow``, each before its counterpart of the same name.

    Returns for each wanted value the names of two outputs: norm of the difference, norm of the FP32 value.
    """
    graph, names = shadow.graph, Names(shadow)
    inputs = {value.name: value for value in graph.inputs}
    for value in exact.graph.inputs:
        if value.name in inputs:
            for node, index in list(value.uses()):
                node.replace_input_with(index, inputs[value.name])
    twins = {node.name: node for node in graph if ROUND not in node.metadata_props}
    moved = [(node, twins.get(node.name), [value.name for value in node.outputs]) for node in exact.graph]
    _move(graph, exact, names)
    place = {node: index for index, node in enumerate(graph)}
    pairs: dict[str, tuple[str, str]] = {}
    latest, before = -1, None
    for node, twin, outputs in moved:
        late = twin is None or place[twin] < latest
        if twin is not None and not late:
            graph.insert_before(twin, node)
            latest = place[twin]
        elif before is not None:
            graph.insert_after(before, node)
        else:
            graph.insert_before(graph[0], node)
        before = node
        for one, other, name in zip(node.outputs, twin.outputs if twin else (), outputs, strict=False):
            if name in wanted:
                rounded = behind(other)
                at = node if late else rounded.producer()
                assert at is not None
                pairs[name] = _norms(graph, names, at, rounded, one)
    return pairs


def _move(graph: ir.Graph, exact: ir.Model, names: Names) -> None:
    """Give everything in ``exact`` a name of its own, take its nodes out and its weights over."""
    weights, everything = list(exact.graph.initializers.values()), list(prepare.values(exact))
    for node in prepare.nodes(exact):
        node.name = names.fresh(f"{node.name}.fp32")
    exact.graph.outputs.clear()
    exact.graph.initializers.clear()
    exact.graph.remove(list(exact.graph))
    for value in everything:
        if value.name:
            value.name = names.fresh(f"{value.name}.fp32")
    for value in weights:
        graph.register_initializer(value)


def _norms(graph: ir.Graph, names: Names, at: ir.Node, rounded: ir.Value, value: ir.Value) -> tuple[str, str]:
    """Put the norms of the difference and of ``value`` behind ``at``."""
    off = ir.Node("", "Sub", [rounded, value], name=names.fresh("growth.Sub"))
    graph.insert_after(at, off)
    made = []
    for item in (off.outputs[0], value):
        node = ir.Node(
            "", "ReduceL2", [item], [ir.AttrInt64("keepdims", 0)], name=names.fresh("growth.ReduceL2")
        )
        graph.insert_after(off, node)
        made.append(node.outputs[0])
    for item in (off.outputs[0], *made):
        item.name, item.type = names.fresh("growth"), ir.TensorType(ir.DataType.FLOAT)
    for item in made:
        item.shape = ir.Shape(())
        graph.outputs.append(item)
    return made[0].name or "", made[1].name or ""
