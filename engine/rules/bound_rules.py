"""What each operator does to bounds: tables by operator type, used by :mod:`engine.rules.bounds`."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from engine.rules.constants import dims_of, small_array, tensor_of
from engine.rules.interval import Interval, UnboundedError

LONGEST_AXIS = 2**24  # elements of a dynamic axis; attention over more would need 10**14 scores
_ROUNDING = {
    ir.DataType.FLOAT: 2.0**-23,
    ir.DataType.FLOAT16: 2.0**-10,
    ir.DataType.DOUBLE: 2.0**-52,
    ir.DataType.BFLOAT16: 2.0**-7,
}


def input_of(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None:
        raise UnboundedError(f"{node.op_type} ({node.name}) lacks input {index}")
    return value


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
    low = math.exp(inputs[0].low) * 0.999 if inputs[0].low > -80.0 else 0.0
    return Interval(low, math.exp(min(inputs[0].high, 700.0)) * 1.001)


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
        dims = dims_of(input_of(node, index))
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
    dims = dims_of(input_of(node, 0))
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
    dims = dims_of(input_of(node, 0))
    known = dims is not None and all(isinstance(size, int) for size in dims)
    terms = float(math.prod(_numbers(dims or ()))) if known else float(LONGEST_AXIS)
    reach = inputs[0].size * terms * _slack(node, terms)
    return Interval(-reach, reach)


# the result holds what the first input holds
MOVES = frozenset(
    [
        "Reshape",
        "Transpose",
        "Squeeze",
        "Unsqueeze",
        "Slice",
        "Expand",
        "Identity",
        "Flatten",
        "Tile",
        "Gather",
        "GatherElements",
        "GatherND",
        "Split",
        "Cast",
        "ReduceMax",
        "ReduceMin",
        "DepthToSpace",
        "SpaceToDepth",
    ]
)
_TRUTH = "And Or Not Xor Equal Greater GreaterOrEqual Less LessOrEqual IsNaN IsInf"
# bounded whatever comes in
FREE = {op: Interval(0.0, 1.0) for op in _TRUTH.split()}
FREE |= {op: Interval(0.0, 2.0**63) for op in ("Shape", "Size")}
# bounded where the input is known to hold no NaN
SATURATING = {op: Interval(0.0, 1.001) for op in ("Softmax", "Sigmoid")}
SATURATING |= {op: Interval(-1.001, 1.001) for op in ("Tanh", "Erf", "Sin", "Cos")}
RULES: dict[str, Callable[[ir.Node, list[Interval]], Interval]] = {
    "Abs": _absolute,
    "Add": _add,
    "Clip": _union,
    "Concat": _union,
    "Div": _divide,
    "Exp": _exp,
    "Gelu": _with_zero,
    "Gemm": _gemm,
    "LayerNormalization": _layer_norm,
    "MatMul": _matmul,
    "Max": _union,
    "Min": _union,
    "Mul": _multiply,
    "Neg": _negate,
    "Pow": _pow,
    "Range": _union,
    "Reciprocal": _reciprocal,
    "ReduceMean": _mean,
    "ReduceSum": _total,
    "Relu": _relu,
    "Sqrt": _sqrt,
    "Sub": _subtract,
    "Trilu": _with_zero,
    "Where": _union,
}
# which inputs the bound depends on; the first one where nothing is said
READS = {
    op: slice(None) for op in ("Add", "Clip", "Concat", "Div", "Gemm", "LayerNormalization", "MatMul", "Max")
}
READS |= {op: slice(None) for op in ("Min", "Mul", "Range", "Sub")} | {"Where": slice(1, 3)}
