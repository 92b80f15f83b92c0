"""Bounds on what a tensor can hold, from the graph alone: interval arithmetic from inputs and weights.

``of(value)`` returns [low, high] such that every element lies inside for *every* input, rounding of the
element type included, or raises UnboundedError with the node that spoils it. A floating-point graph input
spoils it, for it may hold NaN. Axes of size 0 and dynamic axes of more than LONGEST_AXIS elements are left aside. Bounds are loose where
that is safe; they are meant for yes or no.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from engine.rules.constants import Array, dims_of, element_type, small_array, tensor_of

LONGEST_AXIS = 2**24  # elements of a dynamic axis; attention over more would need 10**14 scores
_ROUNDING = {ir.DataType.FLOAT: 2.0**-23, ir.DataType.FLOAT16: 2.0**-10, ir.DataType.DOUBLE: 2.0**-52,
             ir.DataType.BFLOAT16: 2.0**-7}  # fmt: skip
_FLAG = "produces 0 or 1"


class UnboundedError(Exception):
    """No finite bound follows from the graph; the text names the node and the reason."""


@dataclass(frozen=True)
class Interval:
    """Every element lies in [low, high]; both are finite."""

    low: float
    high: float

    @property
    def size(self) -> float:
        return max(abs(self.low), abs(self.high))


def of(value: ir.Value, known: dict[ir.Value, Interval] | None = None) -> Interval:
    """Bounds of ``value``; ``known`` memoises across calls on one graph."""
    known = {} if known is None else known
    stack = [value]
    while stack:
        top = stack[-1]
        if top in known:
            stack.pop()
            continue
        node = top.producer()
        open_inputs = [v for v in _needed(node) if v not in known] if node else []
        if open_inputs and tensor_of(top) is None:
            stack += open_inputs
            continue
        known[top] = _bound(top, node, known)
        stack.pop()
    return known[value]


def _needed(node: ir.Node) -> list[ir.Value]:
    """The inputs whose bounds the node's bound depends on."""
    if node.op_type in _FREE:
        return []
    picked = {"Where": slice(1, 3), "Concat": slice(None), "Max": slice(None), "Min": slice(None),
              "Add": slice(None), "Sub": slice(None), "Mul": slice(None), "Div": slice(None), "MatMul": slice(None),
              "Gemm": slice(None), "Range": slice(None), "LayerNormalization": slice(None),
              "Clip": slice(None)}.get(node.op_type, slice(0, 1))  # fmt: skip
    return [value for value in node.inputs[picked] if value is not None]


def _bound(value: ir.Value, node: ir.Node | None, known: dict[ir.Value, Interval]) -> Interval:
    tensor = tensor_of(value)
    if tensor is not None:
        return _of_array(tensor.numpy(), value.name or "a constant")
    dtype = element_type(value)
    if node is None:
        return _of_input(value, dtype)
    if node.domain != "" or not any(node.op_type in table for table in (_RULES, _FREE, _SATURATING, _MOVES)):
        raise UnboundedError(f"nothing is known about {node.op_type} ({node.name})")
    return _fitted(_raw(node, known), dtype, node)


def _raw(node: ir.Node, known: dict[ir.Value, Interval]) -> Interval:
    if node.op_type in _FREE:
        return _FREE[node.op_type]
    if node.op_type in _SATURATING:
        return _SATURATING[node.op_type]
    if node.op_type in _MOVES:
        return known[_input(node, 0)]
    return _RULES[node.op_type](node, [known[v] for v in _needed(node)])


def _input(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None:
        raise UnboundedError(f"{node.op_type} ({node.name}) lacks input {index}")
    return value


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


def _slack(node: ir.Node, terms: float) -> float:
    """Factor that covers the rounding of a sum of ``terms`` products in the node's type."""
    dtype = node.outputs[0].dtype
    unit = _ROUNDING.get(dtype, 2.0**-7) if dtype is not None else 2.0**-7
    return math.exp(min((terms + 2) * unit, 50.0))


def _spread(values: list[float]) -> Interval:
    return Interval(min(values), max(values))


def _products(a: Interval, b: Interval) -> Interval:
    return _spread([a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high])


def _union(node: ir.Node, inputs: list[Interval]) -> Interval:
    return Interval(min(i.low for i in inputs), max(i.high for i in inputs))


def _add(node: ir.Node, inputs: list[Interval]) -> Interval:
    return Interval(inputs[0].low + inputs[1].low, inputs[0].high + inputs[1].high)


def _subtract(node: ir.Node, inputs: list[Interval]) -> Interval:
    return Interval(inputs[0].low - inputs[1].high, inputs[0].high - inputs[1].low)


def _multiply(node: ir.Node, inputs: list[Interval]) -> Interval:
    if node.inputs[0] is node.inputs[1]:
        return Interval(0.0, inputs[0].size ** 2)
    return _products(inputs[0], inputs[1])


def _divide(node: ir.Node, inputs: list[Interval]) -> Interval:
    below = inputs[1]
    if below.low <= 0.0 <= below.high:
        raise UnboundedError(f"{node.op_type} ({node.name}) may divide by zero")
    return _products(inputs[0], Interval(1.0 / below.high, 1.0 / below.low))


def _sqrt(node: ir.Node, inputs: list[Interval]) -> Interval:
    if inputs[0].low < 0:
        raise UnboundedError(f"Sqrt ({node.name}) may see a negative number")
    return Interval(math.sqrt(inputs[0].low), math.sqrt(inputs[0].high))


def _reciprocal(node: ir.Node, inputs: list[Interval]) -> Interval:
    return _divide(node, [Interval(1.0, 1.0), inputs[0]])


def _exp(node: ir.Node, inputs: list[Interval]) -> Interval:
    return Interval(0.0, math.exp(min(inputs[0].high, 700.0)) * 1.001)


def _pow(node: ir.Node, inputs: list[Interval]) -> Interval:
    power = small_array(node.inputs[1], 1)
    if power is None or float(power.reshape(())) not in (2.0, 3.0):
        raise UnboundedError(f"Pow ({node.name}) with another power than 2 or 3")
    exponent = int(power.reshape(()))
    return _spread([0.0, inputs[0].low ** exponent, inputs[0].high ** exponent])


def _negate(node: ir.Node, inputs: list[Interval]) -> Interval:
    return Interval(-inputs[0].high, -inputs[0].low)


def _absolute(node: ir.Node, inputs: list[Interval]) -> Interval:
    return Interval(0.0, inputs[0].size)


def _with_zero(node: ir.Node, inputs: list[Interval]) -> Interval:
    return Interval(min(inputs[0].low, 0.0), max(inputs[0].high, 0.0))


def _relu(node: ir.Node, inputs: list[Interval]) -> Interval:
    return Interval(max(inputs[0].low, 0.0), max(inputs[0].high, 0.0))


def _matmul(node: ir.Node, inputs: list[Interval]) -> Interval:
    """Weights: the largest sum of magnitudes of a column; otherwise terms times the largest product."""
    tensor = tensor_of(node.inputs[1])
    if tensor is not None and len(tensor.shape) == 2:
        array = tensor.numpy()
        columns = float(np.abs(array).sum(axis=-2, dtype=np.float64).max()) if array.size else 0.0
        reach = inputs[0].size * columns * _slack(node, float(array.shape[0]))
    else:
        terms = float(_terms(node))
        reach = inputs[0].size * inputs[1].size * terms * _slack(node, terms)
    return Interval(-reach, reach)


def _terms(node: ir.Node) -> int:
    """How many products a MatMul sums: the inner size, or the longest possible axis when it is dynamic."""
    for index, axis in ((0, -1), (1, -2)):
        dims = dims_of(_input(node, index))
        if dims and len(dims) >= 2 and isinstance(dims[axis], int):
            return int(dims[axis])  # type: ignore[arg-type]
    return LONGEST_AXIS


def _gemm(node: ir.Node, inputs: list[Interval]) -> Interval:
    if any(name in node.attributes for name in ("alpha", "beta", "transA")):
        raise UnboundedError(f"Gemm ({node.name}) with alpha, beta or transA")
    tensor = tensor_of(node.inputs[1])
    if tensor is None:
        raise UnboundedError(f"Gemm ({node.name}) without constant weights")
    turned = "transB" in node.attributes and node.attributes["transB"].as_int() == 1
    array = np.abs(tensor.numpy()).sum(axis=1 if turned else 0, dtype=np.float64)
    terms = float(tensor.shape[1 if turned else 0])  # type: ignore[arg-type]
    reach = inputs[0].size * float(array.max()) * _slack(node, terms) + (
        inputs[2].size if len(inputs) > 2 else 0.0
    )
    return Interval(-reach, reach)


def _numbers(dims: tuple[int | str | None, ...]) -> list[int]:
    return [size for size in dims if isinstance(size, int)]


def _layer_norm(node: ir.Node, inputs: list[Interval]) -> Interval:
    """A normalised row of n numbers holds none beyond sqrt(n), whatever came in, short of overflow."""
    dims = dims_of(_input(node, 0))
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else -1
    if dims is None or not all(isinstance(size, int) for size in dims[axis:]):
        raise UnboundedError(f"LayerNormalization ({node.name}) over a dynamic axis")
    count = math.prod(_numbers(dims[axis:]))
    epsilon = node.attributes["epsilon"].as_float() if "epsilon" in node.attributes else 1e-5
    stash = node.attributes["stash_type"].as_int() if "stash_type" in node.attributes else 1
    if epsilon <= 0 or stash != 1 or len(node.outputs) > 1:
        raise UnboundedError(f"LayerNormalization ({node.name}) with this epsilon, stash_type or outputs")
    if (2 * inputs[0].size) ** 2 * count * _slack(node, count) > float(np.finfo(np.float32).max):
        raise UnboundedError(f"the squares in LayerNormalization ({node.name}) may overflow")
    reach = math.sqrt(count) * 1.01 * inputs[1].size + (inputs[2].size if len(inputs) > 2 else 0.0)
    return Interval(-reach, reach)


def _mean(node: ir.Node, inputs: list[Interval]) -> Interval:
    if inputs[0].size * LONGEST_AXIS > float(np.finfo(np.float32).max):
        raise UnboundedError(f"the sum in {node.op_type} ({node.name}) may overflow")
    return inputs[0]


def _total(node: ir.Node, inputs: list[Interval]) -> Interval:
    dims = dims_of(_input(node, 0))
    known = dims is not None and all(isinstance(size, int) for size in dims)
    terms = float(math.prod(_numbers(dims or ()))) if known else float(LONGEST_AXIS)
    reach = inputs[0].size * terms * _slack(node, terms)
    return Interval(-reach, reach)


_MOVES = frozenset(("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Expand", "Identity", "Flatten", "Tile",
                    "Gather", "GatherElements", "GatherND", "Split", "Cast", "ReduceMax", "ReduceMin",
                    "Trilu", "DepthToSpace", "SpaceToDepth"))  # fmt: skip
_FREE = {
    op: Interval(0.0, 1.0)
    for op in (
        "And",
        "Or",
        "Not",
        "Xor",
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "IsNaN",
        "IsInf",
    )
}
_FREE |= {op: Interval(0.0, float(LONGEST_AXIS)) for op in ("Shape", "Size")}  # fmt: skip
# bounded whatever comes in, but only where that is known to hold no NaN: their inputs are looked at all the same
_SATURATING = {"Softmax": Interval(0.0, 1.001), "Sigmoid": Interval(0.0, 1.001), "Tanh": Interval(-1.001, 1.001),
               "Erf": Interval(-1.001, 1.001), "Sin": Interval(-1.001, 1.001), "Cos": Interval(-1.001, 1.001)}  # fmt: skip
_RULES: dict[str, Callable[[ir.Node, list[Interval]], Interval]] = {
    "Add": _add, "Sub": _subtract, "Mul": _multiply, "Div": _divide, "Neg": _negate, "Abs": _absolute,
    "Sqrt": _sqrt, "Reciprocal": _reciprocal, "Exp": _exp, "Pow": _pow, "Relu": _relu, "Gelu": _with_zero,
    "Where": _union, "Concat": _union, "Max": _union, "Min": _union, "Range": _union, "Clip": _union,
    "ReduceMean": _mean, "ReduceSum": _total,
    "MatMul": _matmul, "Gemm": _gemm, "LayerNormalization": _layer_norm,
}  # fmt: skip
