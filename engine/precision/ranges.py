"""The range of every float of a shadow, by three reductions that the graph computes itself."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from engine.graph.fresh import Names
from engine.precision.casts import place_after
from engine.precision.formats import LIMITS, LOW, PRECISIONS, is_float, is_weight
from engine.precision.shadow import ROUND
from engine.samples import Array

_SENTINEL = 1e30  # an FP32 value this far out is a mask, not a result


@dataclass(frozen=True)
class Watch:
    """Names of the three reductions of one value; ``rounds`` is the type it is rounded to behind it."""

    value: ir.Value
    rounds: ir.DataType | None
    low: str
    high: str
    total: str


@dataclass(frozen=True)
class State:
    """What a value holds after rounding. ``high``/``low`` are before rounding."""

    low: float = 0.0
    high: float = 0.0
    nan: bool = False
    above: bool = False
    below: bool = False
    mask_above: bool = False
    mask_below: bool = False
    vanishes: bool = False


def instrument(shadow: ir.Model, names: Names) -> list[Watch]:
    """Let the graph reduce each of its floats right where it is made, so that none lives longer for it."""
    graph = shadow.graph
    watches = []
    watched = [value for node in graph if ROUND not in node.metadata_props for value in node.outputs]
    watched += [value for value in (*graph.inputs, *graph.initializers.values())]
    for value in dict.fromkeys(watched):
        if not is_float(value) or (is_weight(value) and not value.uses()):
            continue
        rounded = value.dtype if value.dtype in LOW else _rounding(value)
        source = _widened(value, names)
        results = []
        for op in ("ReduceMin", "ReduceMax", "ReduceSum"):
            node = ir.Node(
                "",
                op,
                [source],
                {"keepdims": ir.AttrInt64("keepdims", 0)},
                name=names.fresh(f"{op}.{value.name}"),
            )
            made = node.outputs[0]
            made.name = names.fresh(f"{value.name}.{op}")
            made.type, made.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(())
            place_after(source, node)
            graph.outputs.append(made)
            results.append(made.name)
        watches.append(Watch(value, rounded, *results))
    return watches


def _rounding(value: ir.Value) -> ir.DataType | None:
    for node, _ in value.uses():
        if node.metadata_props.get(ROUND) == "down":
            return node.outputs[0].dtype
    return None


def _widened(value: ir.Value, names: Names) -> ir.Value:
    """The FP32 form of a narrow value: the result of the cast behind it, which a table of weights has only here."""
    if value.dtype not in LOW:
        return value
    for node, _ in value.uses():
        if ROUND in node.metadata_props:
            return node.outputs[0]
    attributes = {"to": ir.AttrInt64("to", ir.DataType.FLOAT.value)}
    name = names.fresh(f"{value.name}.weight")
    up = ir.Node("", "Cast", [value], attributes, name=name, metadata_props={ROUND: "weight"})
    up.outputs[0].name = names.fresh(f"{value.name}.wide")
    up.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    place_after(value, up)
    return up.outputs[0]


def mask_values(watches: Collection[Watch], outputs: Mapping[str, Array]) -> frozenset[float]:
    """Extremes of the constants that lie beyond FP16: a value equal to one of them is no result."""
    ends = [
        float(outputs[name])
        for watch in watches
        if is_weight(watch.value)
        for name in (watch.low, watch.high)
    ]
    return frozenset(end for end in ends if abs(end) >= LIMITS["fp16"].to_inf)


def state_of(watch: Watch, outputs: Mapping[str, Array], masks: Collection[float]) -> State:
    low, high, total = (float(outputs[name]) for name in (watch.low, watch.high, watch.total))
    if low > high or (math.isinf(low) and low > 0 and math.isinf(high) and high < 0):
        return State()  # an empty tensor reduces to +inf, -inf
    edge = LIMITS[PRECISIONS[watch.rounds]].to_inf if watch.rounds else math.inf
    both = low == -math.inf and high == math.inf  # their sum is NaN without any NaN among them
    return State(
        low=low,
        high=high,
        nan=math.isnan(low) or math.isnan(high) or (math.isnan(total) and not both),
        above=high >= edge,
        below=low <= -edge,
        mask_above=high >= _SENTINEL or high in masks,
        mask_below=low <= -_SENTINEL or low in masks,
        vanishes=0 < max(abs(low), abs(high)) <= LIMITS[PRECISIONS[watch.rounds]].to_zero
        if watch.rounds
        else False,
    )


def behind(value: ir.Value) -> ir.Value:
    """What is read of ``value`` in the shadow: the value behind its rounding, named as in the lowered graph."""
    current = value
    if value.producer() is not None:
        while following := [
            node for node, _ in current.uses() if node.metadata_props.get(ROUND) in {"down", "up"}
        ]:
            current = following[0].outputs[0]
    return current
