"""Constants that the narrow type cannot hold: masks are clamped, everything else keeps its readers wide.

A mask (a huge value that only switches entries off) must stay finite after two of them were added, so
it is moved to half the range. A bound of Clip, Min or Max is moved to the largest finite value. Any
other constant past the range, and a tiny one whose loss would change a quotient, a root or a
logarithm, keeps the node that reads it in FP32, up to and including the division that it protects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from .formats import DTYPES, LIMITS, Precision, is_float, is_weight
from .ops import is_blind, moves_data
from .prepare import nodes, values
from .report import ConstantChange
from .selectors import Assignment, module_of
from .sources import Origins, readers
from .weights import Scan, convert, scan

_SENTINEL = 1e8
_SINGLE = 64  # a tensor of at most this many values is judged for tininess, a larger one is a weight
_TO_SOFTMAX = frozenset({"Add", "Sub", "Mul", "Min", "Max", "Clip"})
_BOUNDS = frozenset({"Clip", "Min", "Max"})
_SELECTS = frozenset({"Where", "Pad", "ScatterND", "ScatterElements"})
_COMPARES = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_TINY_MATTERS = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Max", "Clip", "Reciprocal", "Log", "Sqrt"})
_ON_THE_WAY = frozenset({"Sqrt", "Pow", "Reciprocal", "Neg", "Max", "Clip"})
_PROTECTED = frozenset({"Div", "Reciprocal", "Log", "Sqrt", "Pow"})
_REACH = 4  # nodes between an epsilon and the division that it protects


@dataclass
class Study:
    """What the constants of a graph ask for.

    ``wide`` maps nodes to the reason why they stay FP32, ``clamps`` a constant and a type to the
    magnitude that values past the range are moved to.
    """

    wide: dict[ir.Node, str] = field(default_factory=dict)
    clamps: dict[tuple[ir.Value, Precision], float] = field(default_factory=dict)
    changes: list[ConstantChange] = field(default_factory=list)
    scans: dict[tuple[ir.Value, Precision], Scan] = field(default_factory=dict)


def study(model: ir.Model, assignment: Assignment, origins: Origins, wide: Collection[ir.Node]) -> Study:
    """Judge every constant against the types of its readers; ``wide`` are nodes that are FP32 anyway."""
    result = Study()
    for value, tensor in constants_of(model):
        members = [node for node in readers(value) if node is not None and not is_blind(node)]
        asked: dict[Precision, list[ir.Node]] = {}
        for node in members:
            if node not in wide:
                asked.setdefault(assignment.types.get(node.name or "", "fp32"), []).append(node)
        for node, _ in value.uses():  # one that only moves data may be narrow before a wide reader
            if moves_data(node) and node not in wide:
                asked.setdefault(assignment.types.get(node.name or "", "fp32"), members)
        for precision, narrow in asked.items():
            if precision != "fp32":
                _judge(result, value, scan(tensor, precision), precision, narrow, assignment, origins)
    return result


def constants_of(model: ir.Model) -> Iterator[tuple[ir.Value, ir.TensorProtocol]]:
    """Every float constant with its content: initializers, and the fill value of each ConstantOfShape."""
    for value in values(model):
        if is_weight(value) and is_float(value) and value.const_value is not None:
            yield value, value.const_value
    for node in nodes(model):
        if node.op_type == "ConstantOfShape" and is_float(node.outputs[0]) and "value" in node.attributes:
            yield node.outputs[0], node.attributes["value"].as_tensor()


def _judge(
    result: Study,
    value: ir.Value,
    found: Scan,
    precision: Precision,
    members: list[ir.Node],
    assignment: Assignment,
    origins: Origins,
) -> None:
    result.scans[value, precision] = found
    if found.to_inf:
        clamp = _clamp(value, found, precision, members, origins)
        if clamp:
            result.clamps[value, precision] = clamp
            kind = "bound" if clamp == LIMITS[precision].largest else "mask"
            reason = f"a {kind} beyond {precision.upper()}'s largest value {LIMITS[precision].largest:g}"
            became = float(np.copysign(clamp, found.extreme))
            result.changes.append(
                _change(value, precision, "clamped", found.extreme, became, found.to_inf, reason, members)
            )
            return
        reason = f"constant {value.name} reaches {found.extreme:g}, past {precision.upper()}'s range"
        _keep(result, value, precision, members, assignment, reason, found.extreme, found.to_inf)
    elif found.size <= _SINGLE and found.to_zero + found.to_subnormal == found.size:
        _judge_tiny(result, value, found, precision, members, assignment)


def _clamp(
    value: ir.Value, found: Scan, precision: Precision, members: Iterable[ir.Node], origins: Origins
) -> float:
    """The magnitude to move a mask or bound to, or 0 when the constant is neither."""
    limits = LIMITS[precision]
    ends = readers(value, through=_TO_SOFTMAX)
    if not found.high and all(node and node.op_type in {"Softmax", "LogSoftmax"} for node in ends):
        return limits.largest / 2
    if found.least < _SENTINEL:
        return 0.0
    direct = readers(value, moves=False)
    picked = all(node is not None and node.op_type in _SELECTS for node in direct)
    if not picked and not all(_only_switches(node, value, origins) for node in members):
        return 0.0
    bound = not picked and any(node.op_type in _BOUNDS for node in members)
    return limits.largest if bound else limits.largest / 2


def _only_switches(node: ir.Node, value: ir.Value, origins: Origins) -> bool:
    if node.op_type in _BOUNDS | _COMPARES | {"Add", "Sub"}:
        return True
    others = [item for item in node.inputs if item is not None and item is not value]
    return node.op_type == "Mul" and all(map(origins.from_integers, others))


def _judge_tiny(
    result: Study,
    value: ir.Value,
    found: Scan,
    precision: Precision,
    members: Iterable[ir.Node],
    assignment: Assignment,
) -> None:
    array = _content(value)
    was = float(array.reshape(-1)[0])
    if not np.any(array):
        return
    touched = [node for node in members if node.op_type in _TINY_MATTERS]
    if not touched:
        return
    loss = "becomes zero" if found.to_zero else "becomes subnormal"
    reason = f"constant {value.name} = {was:g} {loss} in {precision.upper()}"
    protected = [item for node in touched for item in _protected(node)]
    _keep(result, value, precision, list(dict.fromkeys(touched + protected)), assignment, reason, was, found.size)


def _protected(node: ir.Node) -> list[ir.Node]:
    """The nodes from an epsilon's reader to the division, root or logarithm that needs it."""
    paths = [[node]]
    kept: list[ir.Node] = []
    while paths:
        path = paths.pop()
        for output in path[-1].outputs:
            for following in readers(output):
                if following is None or following in path:
                    continue
                if following.op_type in _PROTECTED and _divides_by(following, path[-1]):
                    kept += [*path, following]
                if following.op_type in _ON_THE_WAY and len(path) < _REACH:
                    paths.append([*path, following])
    return kept


def _divides_by(node: ir.Node, maker: ir.Node) -> bool:
    """Whether ``maker`` is the denominator, if ``node`` is a division at all."""
    if node.op_type != "Div":
        return True
    current = node.inputs[1]
    while current is not None and (made := current.producer()) is not None and moves_data(made):
        current = made.inputs[0]
    return current is not None and current.producer() is maker


def _keep(
    result: Study,
    value: ir.Value,
    precision: Precision,
    members: Iterable[ir.Node],
    assignment: Assignment,
    reason: str,
    was: float,
    count: int,
) -> None:
    insisted = [node for node in members if (node.name or "") in assignment.pinned]
    movers = [node for node, _ in value.uses() if moves_data(node) and (node.name or "") not in assignment.pinned]
    free = list(dict.fromkeys([*(node for node in members if node not in insisted), *movers]))
    for node in free:
        result.wide.setdefault(node, reason)
    if free:
        result.changes.append(_change(value, precision, "kept-wide", was, was, count, reason, free))
    held = [node for node in insisted if value in node.inputs and assignment.types[node.name or ""] == precision]
    if held:
        became = float(convert(np.float32([was]), precision).astype(np.float64)[0])
        result.changes.append(_change(value, precision, "rounded", was, became, count, reason, held))


def _change(
    value: ir.Value,
    precision: Precision,
    action: str,
    was: float,
    became: float,
    count: int,
    reason: str,
    consumers: Iterable[ir.Node],
) -> ConstantChange:
    members = list(consumers)
    names = tuple(node.name or "" for node in members)
    module = module_of(members[0]) if members else ""
    return ConstantChange(value.name or "", precision, action, was, became, count, reason, names, module)  # type: ignore[arg-type]


def _content(value: ir.Value) -> np.ndarray:  # type: ignore[type-arg]
    maker = value.producer()
    tensor = value.const_value if maker is None else maker.attributes["value"].as_tensor()
    assert tensor is not None
    return tensor.numpy().astype(np.float32)


def fill_value(
    node: ir.Node, dtype: ir.DataType, clamps: Mapping[tuple[ir.Value, Precision], float]
) -> ir.Tensor:
    """The fill value of a ConstantOfShape in another type."""
    attribute = node.attributes.get("value")
    array = attribute.as_tensor().numpy() if attribute else np.zeros(1, np.float32)
    precision: Precision = next(name for name, known in DTYPES.items() if known == dtype)
    return ir.Tensor(convert(array, precision, clamps.get((node.outputs[0], precision))), dtype=dtype)
