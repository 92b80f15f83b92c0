"""Bounds on what a tensor can hold, from the graph alone: interval arithmetic from inputs and weights.

``of(value)`` returns [low, high] such that every element lies inside for *every* input, rounding of the
element type included, or raises UnboundedError with the node that spoils it. A floating-point graph input
spoils it, for it may hold NaN. Axes of size 0 and dynamic axes of more than bound_rules.LONGEST_AXIS
elements are left aside. Bounds are loose where that is safe; they are meant for yes or no.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from engine.rules.bound_rules import FREE, MOVES, READS, RULES, SATURATING, input_of
from engine.rules.constants import Array, element_type, tensor_of
from engine.rules.interval import Interval, Known, UnboundedError


def of(value: ir.Value, known: Known | None = None) -> Interval:
    """Bounds of ``value``; ``known`` memoises across calls on one graph, what has no bound included."""
    known = Known() if known is None else known
    stack: list[tuple[ir.Value, ir.Value | None]] = [(value, None)]  # with the value that needs it
    needs: dict[ir.Value, ir.Value | None] = {}
    while stack:
        top, needed_for = stack[-1]
        if top in known:
            stack.pop()
            continue
        needs.setdefault(top, needed_for)
        node = top.producer()
        open_inputs = [v for v in _needed(node) if v not in known] if node else []
        spoiled = next((v for v in open_inputs if v in known.unbounded), None)
        if open_inputs and tensor_of(top) is None and spoiled is None and top not in known.unbounded:
            stack += [(one, top) for one in open_inputs]
            continue
        try:
            known[top] = _bound_or_raise(top, node, known, spoiled)
        except UnboundedError as error:
            spoilt: ir.Value | None = top
            while spoilt is not None:  # and whatever waits for it
                known.unbounded[spoilt] = str(error)
                spoilt = needs.get(spoilt)
            raise
        stack.pop()
    return known[value]


def _bound_or_raise(top: ir.Value, node: ir.Node | None, known: Known, spoiled: ir.Value | None) -> Interval:
    """Raises UnboundedError for what was found to have no bound before, and where ``spoiled`` is needed."""
    if top in known.unbounded:
        raise UnboundedError(known.unbounded[top])
    if spoiled is not None and tensor_of(top) is None:
        raise UnboundedError(known.unbounded[spoiled])
    return _bound(top, node, known)


def _needed(node: ir.Node) -> list[ir.Value]:
    """The inputs whose bounds the node's bound depends on."""
    if node.op_type in FREE:
        return []
    picked = READS.get(node.op_type, slice(0, 1))
    return [value for value in node.inputs[picked] if value is not None]


def _bound(value: ir.Value, node: ir.Node | None, known: dict[ir.Value, Interval]) -> Interval:
    tensor = tensor_of(value)
    if tensor is not None:
        return _of_array(tensor.numpy(), value.name or "a constant")
    dtype = element_type(value)
    if node is None:
        return _of_input(value, dtype)
    if node.domain != "" or not any(node.op_type in table for table in (RULES, FREE, SATURATING, MOVES)):
        raise UnboundedError(f"nothing is known about {node.op_type} ({node.name})")
    return _fitted(_raw(node, known), dtype, node)


def _raw(node: ir.Node, known: dict[ir.Value, Interval]) -> Interval:
    if node.op_type in FREE:
        return FREE[node.op_type]
    if node.op_type in SATURATING:
        return SATURATING[node.op_type]
    if node.op_type in MOVES:
        return known[input_of(node, 0)]
    return RULES[node.op_type](node, [known[v] for v in _needed(node)])


def _of_array(array: Array, name: str) -> Interval:
    if array.size == 0:
        return Interval(0.0, 0.0)
    low, high = float(array.min()), float(array.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UnboundedError(f"the constant {name} holds NaN or infinity")
    return Interval(low, high)


def _of_input(value: ir.Value, dtype: ir.DataType | None) -> Interval:
    if dtype is None or dtype.is_floating_point():
        kind = "unknown type" if dtype is None else str(dtype.numpy())
        raise UnboundedError(f"it depends on the input {value.name} ({kind}), which may hold NaN")
    if dtype == ir.DataType.BOOL:
        return Interval(0.0, 1.0)
    info = np.iinfo(dtype.numpy())
    return Interval(float(info.min), float(info.max))


def _fitted(found: Interval, dtype: ir.DataType | None, node: ir.Node) -> Interval:
    """Round outward to the element type; a bound beyond its range may overflow."""
    if dtype is None:
        raise UnboundedError(f"the type of {node.op_type} ({node.name}) is unknown")
    if not dtype.is_floating_point():
        return _wrapped(found, dtype)
    kind = dtype.numpy()
    with np.errstate(over="ignore"):
        low, high = float(np.asarray(found.low).astype(kind)), float(np.asarray(found.high).astype(kind))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UnboundedError(f"{node.op_type} ({node.name}) may reach {found.size:.1e}, beyond {kind}")
    return Interval(low, high)


def _wrapped(found: Interval, dtype: ir.DataType) -> Interval:
    """Integers never become NaN or infinite; beyond their range they wrap to anything inside it."""
    if dtype == ir.DataType.BOOL:
        return Interval(0.0, 1.0)
    info = np.iinfo(dtype.numpy())
    inside = info.min <= found.low and found.high <= info.max
    return found if inside else Interval(float(info.min), float(info.max))
