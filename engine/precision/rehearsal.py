"""Run a shadow on CPU, and find where low precision leaves its range."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import onnx_ir as ir

from engine import runtime
from engine.graph import files
from engine.precision.formats import LIMITS, LOW, PRECISIONS, Precision, is_float, is_weight
from engine.precision.ops import moves_data
from engine.precision.prepare import Names
from engine.precision.selectors import module_of
from engine.precision.shadow import ROUND, build_shadow
from engine.samples import Array

if TYPE_CHECKING:
    import onnxruntime

_SENTINEL = 1e30  # an FP32 value this far out is a mask, not a result
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
    """A node whose inputs were fine and whose low-precision output is not."""

    node: str
    op: str
    module: str
    value: str
    kind: Literal["overflow", "invalid"]
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

    @property
    def first(self) -> Culprit | None:
        return self.culprits[0] if self.culprits else None


def run_shadow(path: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Run a shadow file; floats come back as FP32, under the names of the lowered graph's outputs."""
    opened = runtime.session(path, prepack=False)
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
    Loop is judged as one node. The graph reduces every tensor to three numbers itself, so that memory
    stays that of a plain run.
    """
    shadow = build_shadow(lowered, unrounded)
    watches = _instrument(shadow)
    files.save(shadow, path)
    outputs = run_shadow(path, feeds)
    masks = _mask_values(watches, outputs)
    states = {watch.value: _state(watch, outputs, masks) for watch in watches}
    return _judge(lowered, shadow, watches, states)


@dataclass(frozen=True)
class _Watch:
    """Names of the three reductions of one value; ``rounds`` is the type it is rounded to behind it."""

    value: ir.Value
    rounds: ir.DataType | None
    low: str
    high: str
    total: str


@dataclass(frozen=True)
class _State:
    """What a value holds after rounding. ``high``/``low`` are before rounding."""

    low: float = 0.0
    high: float = 0.0
    nan: bool = False
    above: bool = False
    below: bool = False
    mask_above: bool = False
    mask_below: bool = False


def _instrument(shadow: ir.Model) -> list[_Watch]:
    graph, names = shadow.graph, Names(shadow)
    watches = []
    watched = [value for node in graph if ROUND not in node.metadata_props for value in node.outputs]
    watched += [value for value in (*graph.inputs, *graph.initializers.values())]
    for value in dict.fromkeys(watched):
        if not is_float(value) or (is_weight(value) and not value.uses()):
            continue
        rounded = value.dtype if value.dtype in LOW else _rounding(value)
        source = _widened(value, graph, names)
        results = []
        for op in ("ReduceMin", "ReduceMax", "ReduceSum"):
            node = ir.Node(
                "",
                op,
                [source],
                {"keepdims": ir.AttrInt64("keepdims", 0)},
                name=names.unique(f"{op}.{value.name}"),
            )
            made = node.outputs[0]
            made.name = names.unique(f"{value.name}.{op}")
            made.type, made.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(())
            graph.append(node)
            graph.outputs.append(made)
            results.append(made.name)
        watches.append(_Watch(value, rounded, *results))
    return watches


def _rounding(value: ir.Value) -> ir.DataType | None:
    for node, _ in value.uses():
        if node.metadata_props.get(ROUND) == "down":
            return node.outputs[0].dtype
    return None


def _widened(value: ir.Value, graph: ir.Graph, names: Names) -> ir.Value:
    """The FP32 form of a narrow value: the result of the cast behind it, which a table of weights has only here."""
    if value.dtype not in LOW:
        return value
    for node, _ in value.uses():
        if ROUND in node.metadata_props:
            return node.outputs[0]
    attributes = {"to": ir.AttrInt64("to", ir.DataType.FLOAT.value)}
    name = names.unique(f"{value.name}.weight")
    up = ir.Node("", "Cast", [value], attributes, name=name, metadata_props={ROUND: "weight"})
    up.outputs[0].name = names.unique(f"{value.name}.wide")
    up.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    graph.append(up)
    return up.outputs[0]


def _mask_values(watches: Collection[_Watch], outputs: Mapping[str, Array]) -> frozenset[float]:
    """Extremes of the constants that lie beyond FP16: a value equal to one of them is no result."""
    ends = [
        float(outputs[name])
        for watch in watches
        if is_weight(watch.value)
        for name in (watch.low, watch.high)
    ]
    return frozenset(end for end in ends if abs(end) >= LIMITS["fp16"].to_inf)


def _state(watch: _Watch, outputs: Mapping[str, Array], masks: Collection[float]) -> _State:
    low, high, total = (float(outputs[name]) for name in (watch.low, watch.high, watch.total))
    if low > high or (math.isinf(low) and low > 0 and math.isinf(high) and high < 0):
        return _State()  # an empty tensor reduces to +inf, -inf
    edge = LIMITS[PRECISIONS[watch.rounds]].to_inf if watch.rounds else math.inf
    both = low == -math.inf and high == math.inf  # their sum is NaN without any NaN among them
    return _State(
        low=low,
        high=high,
        nan=math.isnan(low) or math.isnan(high) or (math.isnan(total) and not both),
        above=high >= edge,
        below=low <= -edge,
        mask_above=high >= _SENTINEL or high in masks,
        mask_below=low <= -_SENTINEL or low in masks,
    )


def _judge(
    lowered: ir.Model, shadow: ir.Model, watches: Collection[_Watch], states: Mapping[ir.Value, _State]
) -> Probe:
    types = {value.name: value.dtype for node in lowered.graph for value in node.outputs}
    seen: list[Seen] = []
    culprits: list[Culprit] = []
    for watch in watches:
        node, state = watch.value.producer(), states[watch.value]
        if node is None:
            continue
        name = _name(watch.value)
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


def _fault(node: ir.Node, state: _State, inputs: Collection[_State]) -> Literal["overflow", "invalid"] | None:
    if any(item.nan for item in inputs):
        return None
    above = any(item.above or item.mask_above for item in inputs)
    below = any(item.below or item.mask_below for item in inputs)
    if node.op_type not in _SIGN_KEEPING and not moves_data(node):
        above = below = above or below
    if (state.above and not above) or (state.below and not below):
        return "overflow"
    return "invalid" if state.nan and not any(item.above or item.below for item in inputs) else None


def _root(value: ir.Value) -> ir.Value:
    """The value behind the casts that the shadow added."""
    while (
        (maker := value.producer()) is not None
        and ROUND in maker.metadata_props
        and maker.inputs[0] is not None
    ):
        value = maker.inputs[0]
    return value


def _name(value: ir.Value) -> str:
    """The value's name in the lowered graph: what stands behind its rounding has it."""
    current = value
    if value.producer() is not None:
        while following := [
            node for node, _ in current.uses() if node.metadata_props.get(ROUND) in {"down", "up"}
        ]:
            current = following[0].outputs[0]
    return current.name or ""
