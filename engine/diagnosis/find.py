"""From a graph that misses its limits to the nodes that must stay wide."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from engine.diagnosis import groups, ranking
from engine.diagnosis.margin import Margin
from engine.diagnosis.search import TooMany, minimal, pruned
from engine.diagnosis.trials import Sample, Trials
from engine.diagnosis.units import Unit, units
from engine.graph import files
from engine.precision.prepare import nodes, prepare
from engine.recipe import FloatType, Override

Verdict = Literal["fine", "not precision", "overrides", "spread", "kinds", "found"]
MOST = 6  # tensors; past it an error is spread over the graph
_SHARE = 0.5  # of all tensors: a cause that is not among the worst of these is no single one


@dataclass(frozen=True)
class Found:
    """``verdict`` is what the rehearsals showed:

    * ``fine``: within the limits as it is; ``not precision``: outside them in FP32 too;
    * ``overrides``: outside them with all wide but what the recipe's overrides hold narrow;
    * ``spread``: more than MOST tensors would have to be wide, and no kinds of layers were enough;
    * ``kinds``: the same, but the layers of ``lines`` are enough, though perhaps not all of them are needed;
    * ``found``: ``nodes`` is a minimal set, in graph order, and ``tensors`` those that they keep wide.

    Margins are before, and with ``nodes`` in the type ``wider`` (and those of ``also``, of which ``nodes`` has none, in
    FP32). ``of`` is the number of narrow nodes that compute.
    """

    verdict: Verdict
    before: Margin
    after: Margin | None = None
    nodes: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    of: int = 0
    rehearsals: int = 0
    ranked: tuple[tuple[str, float], ...] = ()
    lines: tuple[Override, ...] = ()
    wider: FloatType = "fp32"
    also: tuple[str, ...] = ()


def find(trials: Trials, taken: Sequence[Sample]) -> Found:
    """Search a minimal set of nodes to keep in FP32 so that every sample meets the limits.

    A sample that passes already joins the search only when the nodes found for the others break it.
    """
    start = {sample.shape: trials.margin((), [sample]) for sample in taken}
    before = max(start.values(), key=lambda margin: margin.ratio)
    if before.good:
        return Found("fine", before, before, rehearsals=trials.count)
    report, _, _ = trials.lowered(trials.overrides)
    held = {name for item in report.overrides if item.type != "fp32" for name in item.nodes}
    narrow = {name for name, kind in report.node_types.items() if kind != "fp32"} - held
    model = files.load(trials.graph)
    prepare(model)
    candidates = units(model, narrow)
    everything = {name for unit in candidates for name in unit.nodes}
    failing = sorted((item for item in taken if not start[item.shape].good), key=cost)
    widest = trials.margin(everything, failing[:1])
    if not widest.good:
        single = trials.of((), failing[:1], base="fp32")
        verdict: Verdict = "overrides" if single.good else "not precision"
        return Found(verdict, before, widest if single.good else single, rehearsals=trials.count)
    search = _Search(trials, candidates, model)
    used = failing[:1]
    try:
        wanted = settled(trials, taken, used, search.run)
    except TooMany:
        kinds = groups.choose(
            groups.groups(model, narrow, held),
            lambda wide_nodes: trials.margin(wide_nodes, failing_first(taken, used)),
        )
        names = tuple(sorted(frozenset().union(*(group.nodes for group in kinds))))
        return Found(
            "kinds" if kinds else "spread", before, trials.margin(names, taken) if kinds else None, names,
            of=len(everything), rehearsals=trials.count, lines=tuple(group.override for group in kinds),
        )  # fmt: skip
    order = {name: index for index, name in enumerate(search.order)}
    kept = tuple(sorted(wanted, key=lambda name: order[name]))
    tensors = tuple(unit.value for unit in candidates if set(unit.nodes) <= set(kept))
    after = trials.margin(kept, taken)
    top = tuple((item.unit.value, item.score) for item in search.ranked[:10])
    return Found("found", before, after, kept, tensors, len(everything), trials.count, top)


def settled(
    trials: Trials,
    taken: Sequence[Sample],
    used: list[Sample],
    search: Callable[[Sequence[Sample]], tuple[str, ...]],
) -> tuple[str, ...]:
    """Nodes with which every sample passes. ``used`` is searched on, and grows by each one that they leave failing."""
    wanted = search(used)
    while worse := next((item for item in taken if not trials.margin(wanted, [item]).good), None):
        used.append(worse)
        wanted = search(used)
    return wanted


def failing_first(taken: Sequence[Sample], used: Sequence[Sample]) -> list[Sample]:
    """All samples, those that failed before the others: a trial stops at the first that fails."""
    return [*used, *(item for item in taken if item not in used)]


def cost(sample: Sample) -> int:
    return sum(value.size for value in sample.inputs.values())


class _Search:
    def __init__(self, trials: Trials, candidates: Sequence[Unit], model: ir.Model) -> None:
        self._trials, self._candidates, self._model = trials, candidates, model
        self.order = [node.name or "" for node in nodes(model)]
        self.ranked: tuple[ranking.Ranked, ...] = ()

    def run(self, taken: Sequence[Sample]) -> tuple[str, ...]:
        path = self._trials.graph.with_name(".ranking.onnx")
        self.ranked = ranking.rank(self._model, self._candidates, self._trials.floats, path, taken[-1].inputs)

        def passes(chosen: frozenset[Unit]) -> bool:
            names = itertools.chain.from_iterable(unit.nodes for unit in chosen)
            return self._trials.margin(names, taken).good

        chosen = minimal(
            [item.unit for item in self.ranked], passes, MOST, int(_SHARE * len(self.ranked)) + 2
        )
        names = tuple(dict.fromkeys(name for unit in chosen for name in unit.nodes))
        return pruned(names, lambda fewer: self._trials.margin(fewer, taken).good, 2 * len(names))
