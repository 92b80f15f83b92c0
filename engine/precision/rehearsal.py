"""Run a shadow on CPU, and find where low precision leaves its range."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import onnx_ir as ir

from engine import runtime
from engine.graph import files
from engine.graph.fresh import Names
from engine.precision import sums
from engine.precision.formats import PRECISIONS, Precision
from engine.precision.ops import moves_data
from engine.precision.ranges import State, Watch, behind, instrument, mask_values, state_of
from engine.precision.selectors import module_of
from engine.precision.shadow import ROUND, build_shadow
from engine.precision.sums import Sum
from engine.samples import Array

if TYPE_CHECKING:
    import onnxruntime

Kind = Literal["overflow", "underflow", "invalid"]
_SIGN_KEEPING = frozenset({"Add", "Max", "Min", "Relu"})


@dataclass(frozen=True)
class Seen:
    """One value of one run: range before rounding, and what it holds afterwards. ``type`` is its own type."""

    node: str
    op: str
    module: str
    value: str
    type: Precision
    low: float
    high: float
    has_nan: bool
    has_inf: bool


@dataclass(frozen=True)
class Culprit:
    """A node whose inputs were fine and whose low-precision output is not; ``underflow``: all of it became zero."""

    node: str
    op: str
    module: str
    value: str
    kind: Kind
    low: float
    high: float


@dataclass(frozen=True)
class Probe:
    """Ranges of every float in the main graph, in topological order, and the nodes that broke first.

    ``culprits`` are where infinities or NaNs begin; ``affected`` holds every node whose output has any.
    A culprit is where a symptom starts, which is not always the layer to change.
    """

    seen: tuple[Seen, ...]
    culprits: tuple[Culprit, ...]
    affected: tuple[str, ...]
    sums: tuple[Sum, ...] = ()

    @property
    def first(self) -> Culprit | None:
        return self.culprits[0] if self.culprits else None


def run_shadow(path: Path, feeds: Mapping[str, Array], as_written: bool = False) -> dict[str, Array]:
    """Run a shadow file; floats come back as FP32, under the names of the lowered graph's outputs."""
    return run_open(open_shadow(path, as_written), feeds)


def open_shadow(path: Path, as_written: bool = False) -> onnxruntime.InferenceSession:
    return runtime.session(path, prepack=False, as_written=as_written)


def run_open(opened: onnxruntime.InferenceSession, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """:func:`run_shadow` of a file that is open already."""
    return {
        name: value.astype(np.float32) if value.dtype.kind == "f" else value
        for name, value in runtime.run(opened, _as_fp32(opened, feeds)).items()
    }


def _as_fp32(opened: onnxruntime.InferenceSession, feeds: Mapping[str, Array]) -> dict[str, Array]:
    floats = {item.name for item in opened.get_inputs() if item.type == "tensor(float)"}
    return {name: value.astype(np.float32) if name in floats else value for name, value in feeds.items()}


def probe(
    lowered: ir.Model, path: Path, feeds: Mapping[str, Array], unrounded: Collection[str] = ()
) -> Probe:
    """One instrumented run of the shadow of ``lowered``, which is written to ``path``.

    ``path`` lies beside the lowered graph's weights. Subgraphs run but are not looked into: an If or
    Loop is judged as one node. The graph reduces every tensor to three numbers where it is made, so
    that memory stays that of a plain run.
    """
    shadow = build_shadow(lowered, unrounded)
    names = Names(shadow)
    watches = instrument(shadow, names)
    summed = sums.watch(lowered, shadow, names)
    files.save(shadow, path)
    outputs = run_shadow(path, feeds, as_written=True)
    masks = mask_values(watches, outputs)
    states = {watch.value: state_of(watch, outputs, masks) for watch in watches}

    def largest(node: ir.Node) -> float:
        state = states[node.outputs[0]]
        return math.nan if state.nan else max(abs(state.low), abs(state.high))

    return replace(_judge(lowered, watches, states), sums=sums.read(summed, outputs, largest))


def _judge(lowered: ir.Model, watches: Collection[Watch], states: Mapping[ir.Value, State]) -> Probe:
    types = {value.name: value.dtype for node in lowered.graph for value in node.outputs}
    seen: list[Seen] = []
    culprits: list[Culprit] = []
    for watch in watches:
        node, state = watch.value.producer(), states[watch.value]
        if node is None:
            continue
        name = behind(watch.value).name or ""
        about = (node.name or "", node.op_type, module_of(node), name)
        dtype = types.get(name) or ir.DataType.FLOAT
        infinite = state.above or state.below
        seen.append(Seen(*about, PRECISIONS[dtype], state.low, state.high, state.nan, infinite))
        inputs = [
            states[root] for value in node.inputs if value is not None and (root := _root(value)) in states
        ]
        kind = _fault(node, state, inputs) if watch.rounds else None
        if kind:
            culprits.append(Culprit(*about, kind, state.low, state.high))
    broken = {item.node: None for item in seen if item.type != "fp32" and (item.has_nan or item.has_inf)}
    return Probe(tuple(seen), tuple(culprits), tuple(broken))


def _fault(node: ir.Node, state: State, inputs: Collection[State]) -> Kind | None:
    if any(item.nan for item in inputs):
        return None
    above = any(item.above or item.mask_above for item in inputs)
    below = any(item.below or item.mask_below for item in inputs)
    if node.op_type not in _SIGN_KEEPING and not moves_data(node):
        above = below = above or below
    if (state.above and not above) or (state.below and not below):
        return "overflow"
    if state.nan and not any(item.above or item.below for item in inputs):
        return "invalid"
    return "underflow" if state.vanishes and not state.nan else None


def _root(value: ir.Value) -> ir.Value:
    """The value behind the casts that the shadow added."""
    while (
        (maker := value.producer()) is not None
        and ROUND in maker.metadata_props
        and maker.inputs[0] is not None
    ):
        value = maker.inputs[0]
    return value
