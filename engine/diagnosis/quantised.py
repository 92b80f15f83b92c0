"""From a quantised graph that misses its limits to the nodes that must stay in the float type.

First without quantisation: what the float type breaks is found as in any other graph. Then each quantised node once
more on quantised operands, in one run beside the FP32 graph, ranks the nodes, and rehearsals find a minimal set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from engine import runtime
from engine.diagnosis import find as floats
from engine.diagnosis import groups
from engine.diagnosis.find import MOST, Found
from engine.diagnosis.margin import Margin
from engine.diagnosis.search import TooMany, minimal
from engine.diagnosis.trials import Sample, Trials
from engine.graph import files
from engine.graph.fresh import Names
from engine.precision import selectors
from engine.precision.formats import is_weight
from engine.precision.prepare import nodes, prepare
from engine.precision.selectors import Assignment
from engine.quantize import insert
from engine.recipe import QUANTS, Override, QuantType
from engine.samples import Array

_SHARE = 0.5  # of the quantised nodes: where more would have to be wide, no few of them are the cause


def find(trials: Trials, taken: Sequence[Sample]) -> Found:
    """Search a minimal set of quantised nodes to leave in the float type, and of others to keep in FP32."""
    start = {sample.shape: trials.margin((), [sample]) for sample in taken}
    before = max(start.values(), key=lambda margin: margin.ratio)
    if before.good:
        return Found("fine", before, before, rehearsals=trials.count)
    trials.wider = trials.floats
    search = _Search(trials, taken)
    if not search.widest().good:
        unquantised = tuple(item for item in trials.overrides if item.type not in QUANTS)
        plain = trials.again(unquantised, trials.floats, "fp32")
        first = floats.find(plain, taken)
        trials.count += plain.count
        if first.verdict == "fine":
            return replace(search.run(), before=before, rehearsals=trials.count)
        if first.verdict not in ("found", "kinds"):
            return replace(first, before=before, rehearsals=trials.count)
        wide = tuple(Override("fp32", "diagnosis", node=selectors.exactly(name)) for name in first.nodes)
        kept = trials.again((*trials.overrides, *wide), trials.base, trials.floats)
        after = kept.margin((), taken)
        if after.good:
            trials.count += kept.count
            return replace(first, before=before, after=after, rehearsals=trials.count)
        found = replace(_Search(kept, taken, first.nodes).run(), before=before)
        trials.count += kept.count
        return replace(found, rehearsals=trials.count)
    return replace(search.run(), before=before, rehearsals=trials.count)


class _Search:
    def __init__(self, trials: Trials, taken: Sequence[Sample], also: tuple[str, ...] = ()) -> None:
        self._trials, self._taken, self._also = trials, taken, also
        report, quantised, _ = trials.lowered(trials.overrides)
        insisted = {name for item in report.overrides if item.type in QUANTS for name in item.nodes}
        self._kinds = quantised.nodes
        self._names = tuple(name for name in quantised.nodes if name not in insisted)
        self._held = insisted | {name for name, kind in report.node_types.items() if kind != trials.floats}
        self._ranked: tuple[Ranked, ...] = ()
        self._model = files.load(trials.graph)
        prepare(self._model)
        bad = (item for item in taken if not trials.margin((), [item]).good)
        self._failing = sorted(bad, key=floats.cost)

    def widest(self) -> Margin:
        """The cheapest failing sample with nothing quantised but what an override insists on."""
        return self._trials.margin(self._names, self._failing[:1])

    def run(self) -> Found:
        trials, taken, failing = self._trials, self._taken, self._failing
        before = trials.margin((), failing[:1])
        widest = self.widest()
        if not widest.good:
            return Found("overrides", before, widest)
        used = failing[:1]
        try:
            wanted = floats.settled(trials, taken, used, self._minimal)
        except TooMany:
            kinds = groups.choose(
                groups.groups(self._model, self._names, self._held, trials.wider),
                lambda wide: trials.margin(wide, floats.failing_first(taken, used)),
            )
            names = tuple(sorted(frozenset().union(*(group.nodes for group in kinds))))
            return Found(
                "kinds" if kinds else "spread", before, trials.margin(names, taken) if kinds else None, names,
                of=len(self._names), lines=tuple(group.override for group in kinds), wider=trials.wider,
                also=self._also,
            )  # fmt: skip
        order = {node.name or "": index for index, node in enumerate(nodes(self._model))}
        kept = tuple(sorted(wanted, key=lambda name: order[name]))
        top = tuple((item.node, item.score) for item in self._ranked[:10])
        return Found(
            "found", before, trials.margin(kept, taken), kept, (), len(self._names), 0, top,
            wider=trials.wider, also=self._also,
        )  # fmt: skip

    def _minimal(self, used: Sequence[Sample]) -> tuple[str, ...]:
        if not self._trials.margin(self._names, used[-1:]).good:
            raise TooMany("all of them are not enough")
        path = self._trials.graph.with_name(".ranking.onnx")
        kinds = {name: self._kinds[name] for name in self._names}
        self._ranked = rank(self._model, kinds, self._trials, path, used[-1].inputs)
        chosen = minimal(
            [item.node for item in self._ranked],
            lambda names: self._trials.margin(names, used).good,
            MOST, int(_SHARE * len(self._ranked)) + 2,
        )  # fmt: skip
        return tuple(chosen)


@dataclass(frozen=True)
class Ranked:
    """A quantised node and the relative error (L2) of its result on quantised operands."""

    node: str
    score: float


def rank(
    model: ir.Model, kinds: Mapping[str, QuantType], trials: Trials, path: Path, feeds: Mapping[str, Array]
) -> tuple[Ranked, ...]:
    """The nodes of ``kinds``, the most harmful first. ``model`` is the prepared FP32 graph; ``path`` is written and
    removed.
    """
    twin = model.clone()
    names, norms = Names(twin), dict[str, tuple[str, str]]()
    twins: dict[str, QuantType] = {}
    for node in [item for item in nodes(twin) if (item.name or "") in kinds]:
        if node.graph is not twin.graph:
            continue
        copy = ir.Node(node.domain, node.op_type, list(node.inputs), dict(node.attributes),
                       name=names.fresh(f"{node.name}.twin"), metadata_props=dict(node.metadata_props))  # fmt: skip
        made, own = copy.outputs[0], node.outputs[0]
        made.name, made.type, made.shape = names.fresh(f"{own.name}.twin"), own.type, own.shape
        twin.graph.append(copy)
        twins[copy.name or ""] = kinds[node.name or ""]
        norms[node.name or ""] = _norms(twin.graph, names, made, own, _with_bias(own))
    float_types = dict.fromkeys(twins, trials.floats)
    insert.quantise(twin, Assignment(trials.floats, float_types, quantised=twins), trials.ranges)
    try:
        files.save(twin, path)
        outputs = runtime.run(runtime.session(path, prepack=False), feeds)
    finally:
        path.unlink(missing_ok=True)
    scores = {name: _ratio(outputs, pair) for name, pair in norms.items()}
    found = [Ranked(name, scores.get(name, 0.0)) for name in kinds]
    return tuple(sorted(found, key=lambda item: -item.score))  # stable: graph order among equals


def _with_bias(value: ir.Value) -> ir.Value:
    """The sum with a bias where that is all that reads ``value``: what a product and its bias cancel counts for
    nothing, and the error of the product is all that is left of it.
    """
    users = [node for node, _ in value.uses()]
    if len(users) != 1 or users[0].op_type != "Add":
        return value
    return users[0].outputs[0] if any(item and is_weight(item) for item in users[0].inputs) else value


def _norms(
    graph: ir.Graph, names: Names, mine: ir.Value, its: ir.Value, reference: ir.Value
) -> tuple[str, str]:
    """Two further outputs: the norm of the difference and that of the reference."""
    difference = _node(graph, names, "Sub", [mine, its])
    found = []
    for value in (difference, reference):
        norm = _node(graph, names, "ReduceL2", [value], keepdims=0)
        norm.shape = ir.Shape(())
        graph.outputs.append(norm)
        found.append(norm.name or "")
    return found[0], found[1]


def _node(graph: ir.Graph, names: Names, op: str, inputs: list[ir.Value], **attributes: int) -> ir.Value:
    attrs = {key: ir.AttrInt64(key, number) for key, number in attributes.items()}
    node = ir.Node("", op, inputs, attrs, name=names.fresh(f"{inputs[0].name}.{op}"))
    node.outputs[0].name = names.fresh(f"{inputs[0].name}.{op}")
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    graph.append(node)
    return node.outputs[0]


def _ratio(outputs: Mapping[str, Array], pair: tuple[str, str]) -> float:
    difference, norm = (float(np.asarray(outputs[name])) for name in pair)
    if not math.isfinite(difference) or not math.isfinite(norm):
        return math.inf
    return difference / norm if norm else (math.inf if difference else 0.0)
