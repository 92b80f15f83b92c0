"""Constants that the narrow type cannot hold: masks are clamped, everything else keeps its readers wide.

A mask (a huge value that only switches entries off) must stay finite after two of them were added, so
it is moved to half the range. A bound of Clip, Min or Max is moved to the largest finite value. Any
other constant past the range, and a tiny one whose loss would change a quotient, a root or a
logarithm, keeps the node that reads it in FP32, up to and including the division that it protects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import onnx_ir as ir

from engine.precision.formats import DTYPES, LIMITS, Precision, is_float, is_weight
from engine.precision.ops import is_blind, moves_data
from engine.precision.prepare import nodes, values
from engine.precision.report import ConstantChange
from engine.precision.selectors import Assignment, module_of
from engine.precision.sources import readers
from engine.precision.weights import Scan, convert, scan
from engine.samples import Array

_SENTINEL = 1e8
_SINGLE = 64  # a tensor of at most this many values is judged for tininess, a larger one is a weight
_TO_SOFTMAX = frozenset({"Add", "Sub", "Mul", "Min", "Max", "Clip"})
_SOFTMAXES = frozenset({"Softmax", "LogSoftmax", "Attention"})
_BOUNDS = frozenset({"Clip", "Min", "Max"})
_COMPARES = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_TINY_MATTERS = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Max", "Clip", "Reciprocal", "Log", "Sqrt"})
_ON_THE_WAY = frozenset({"Sqrt", "Pow", "Reciprocal", "Neg", "Max", "Clip"})
_PROTECTED = frozenset({"Reciprocal", "Log", "Sqrt", "Pow"})
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


def study(model: ir.Model, assignment: Assignment, wide: Collection[ir.Node]) -> Study:
    """Judge every constant against the types of its readers; ``wide`` are nodes that are FP32 anyway."""
    judge = _Judge(assignment)
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
                judge.judge(_Case(value, precision, scan(tensor, precision), tuple(narrow)))
    return judge.study


def constants_of(model: ir.Model) -> Iterator[tuple[ir.Value, ir.TensorProtocol]]:
    """Every float constant with its content: initializers, and the fill value of each ConstantOfShape."""
    for value in values(model):
        if is_weight(value) and is_float(value) and value.const_value is not None:
            yield value, value.const_value
    for node in nodes(model):
        if node.op_type == "ConstantOfShape" and is_float(node.outputs[0]) and "value" in node.attributes:
            yield node.outputs[0], node.attributes["value"].as_tensor()


@dataclass(frozen=True)
class _Case:
    """One constant, one type, and the nodes that would read it in that type."""

    value: ir.Value
    precision: Precision
    found: Scan
    members: tuple[ir.Node, ...]


class _Judge:
    """Fills a ``Study``, one case at a time."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self.study = Study()

    def judge(self, case: _Case) -> None:
        found, precision, name = case.found, case.precision, case.value.name
        self.study.scans[case.value, precision] = found
        if found.to_inf and (clamp := self._clamp(case)):
            limit = LIMITS[precision].largest
            self.study.clamps[case.value, precision] = clamp
            kind = "bound" if clamp == limit else "mask"
            reason = f"a {kind} beyond {precision.upper()}'s largest value {limit:g}"
            became = float(np.copysign(clamp, found.extreme))
            self._note(case, "clamped", case.members, reason, found.extreme, became)
        elif found.to_inf:
            reason = f"constant {name} reaches {found.extreme:g}, past {precision.upper()}'s range"
            self._keep(case, case.members, reason, found.extreme)
        elif found.size and found.size <= _SINGLE and found.to_zero + found.to_subnormal == found.size:
            self._judge_tiny(case)

    def _clamp(self, case: _Case) -> float:
        """The magnitude to move a mask or bound to, or 0 when the constant is neither."""
        limits, found = LIMITS[case.precision], case.found
        ends = readers(case.value, through=_TO_SOFTMAX)
        if not found.high and all(node and node.op_type in _SOFTMAXES for node in ends):
            return limits.largest / 2
        if found.least < _SENTINEL:
            return 0.0
        # Anywhere else the number itself may come out at the end, where -1e30 and -32752 are not the same.
        compared = all(node.op_type in _BOUNDS | _COMPARES for node in case.members)
        return limits.largest if compared else 0.0

    def _judge_tiny(self, case: _Case) -> None:
        touched = [node for node in case.members if node.op_type in _TINY_MATTERS]
        if not touched:
            return
        was = float(_content(case.value).reshape(-1)[0])
        loss = "becomes zero" if case.found.to_zero else "becomes subnormal"
        reason = f"constant {case.value.name} = {was:g} {loss} in {case.precision.upper()}"
        self._keep(case, [*touched, *(item for node in touched for item in _protected(node))], reason, was)

    def _keep(self, case: _Case, members: Iterable[ir.Node], reason: str, was: float) -> None:
        """Keep the members wide, but not where an override insists on the narrow type."""
        pinned = self._assignment.pinned
        movers = [node for node, _ in case.value.uses() if moves_data(node)]
        free = [node for node in dict.fromkeys([*members, *movers]) if (node.name or "") not in pinned]
        self.study.wide |= {node: reason for node in free if node not in self.study.wide}
        if free:
            self._note(case, "kept-wide", free, reason, was, was)
        asked = self._assignment.types
        held = [
            node
            for node in members
            if (name := node.name or "") in pinned
            and case.value in node.inputs
            and asked[name] == case.precision
        ]
        if held:
            became = float(convert(np.array([was], np.float32), case.precision).astype(np.float64)[0])
            self._note(case, "rounded", held, reason, was, became)

    def _note(
        self,
        case: _Case,
        action: Literal["clamped", "kept-wide", "rounded"],
        members: Collection[ir.Node],
        reason: str,
        was: float,
        became: float,
    ) -> None:
        names = tuple(node.name or "" for node in members)
        module = next((module_of(node) for node in members), "")
        count = case.found.to_inf or case.found.size
        name = case.value.name or ""
        self.study.changes.append(
            ConstantChange(name, case.precision, action, was, became, count, reason, names, module)
        )


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
                if _needs(following, path[-1]):
                    kept += [*path, following]
                if following.op_type in _ON_THE_WAY and len(path) < _REACH:
                    paths.append([*path, following])
    return kept


def _needs(node: ir.Node, maker: ir.Node) -> bool:
    """Whether a small value out of ``maker`` decides what ``node`` gives: a quotient, a root, a logarithm."""
    if node.op_type == "Mul":  # by 1 / root
        return maker.op_type in {"Reciprocal", "Pow"}
    if node.op_type != "Div":
        return node.op_type in _PROTECTED
    current = node.inputs[1]
    while current is not None and (made := current.producer()) is not None and moves_data(made):
        current = made.inputs[0]
    return current is not None and current.producer() is maker


def _content(value: ir.Value) -> Array:
    maker = value.producer()
    tensor = value.const_value if maker is None else maker.attributes["value"].as_tensor()
    assert tensor is not None
    return tensor.numpy().astype(np.float32)


def fill_value(
    node: ir.Node, dtype: ir.DataType, clamps: Mapping[tuple[ir.Value, Precision], float]
) -> ir.TensorProtocol:
    """The fill value of a ConstantOfShape in another type."""
    attribute = node.attributes.get("value")
    array = attribute.as_tensor().numpy() if attribute else np.zeros(1, np.float32)
    precision: Precision = next(name for name, known in DTYPES.items() if known == dtype)
    return ir.Tensor(convert(array, precision, clamps.get((node.outputs[0], precision))), dtype=dtype)
