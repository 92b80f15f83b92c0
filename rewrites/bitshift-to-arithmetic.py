"""BitShift as a product with, or a floored quotient by, a power of two."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Operand, Part

WORK = {
    "int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32",
    "int32": "int32", "uint32": "int64", "int64": "int64",
}  # fmt: skip


def apply(graph: gs.Graph, match: Captured) -> None:
    dtype = match.dtypes["X"]
    if dtype not in WORK:
        raise RefusedError(f"X is {dtype}; no wider integer type holds its products")
    kind, work, add = np.iinfo(dtype), np.dtype(WORK[dtype]), Part(graph)
    node = graph.nodes[0]
    left = node.attrs["direction"] == "LEFT"
    x, y = (value if dtype == work.name else add.cast(value, work.name) for value in node.inputs)
    count = match.constants.get("Y")
    make = _left if left else _right
    shifted = make(add, x, y, None if count is None else count.astype(np.int64), kind, work)
    add.finish({"Z": shifted if dtype == work.name else add.cast(shifted, dtype)})


def _left(
    add: Part, x: gs.Tensor, y: gs.Tensor, count: np.ndarray | None, kind: np.iinfo, work: np.dtype
) -> gs.Tensor:
    with np.errstate(over="ignore"):  # the top bit of the working type is its smallest number
        powers = np.array([*(np.int64(1) << np.arange(kind.bits)), 0]).astype(work)
    factor: Operand
    if count is None:
        index = add("Where", _outside(add, y, kind.bits, work), np.array(kind.bits, work), y)
        factor = add("Gather", powers, index)
    else:
        factor = powers[np.where((count < 0) | (count >= kind.bits), kind.bits, count)]
    product = add("Mul", x, factor)  # wraps around in the working type
    if kind.dtype == work:
        return product
    size, half = np.array(2**kind.bits, work), np.array(2 ** (kind.bits - 1), work)
    if kind.min == 0:
        return add("Mod", product, size)
    return add("Sub", add("Mod", add("Add", product, half), size), half)


def _right(
    add: Part, x: gs.Tensor, y: gs.Tensor, count: np.ndarray | None, kind: np.iinfo, work: np.dtype
) -> gs.Tensor:
    """From ``limit`` on nothing is left but the sign."""
    limit = kind.bits - 1 if kind.min else kind.bits
    powers = (np.int64(1) << np.arange(limit)).astype(work)
    outside: Operand
    divisor: Operand
    if count is None:
        outside = _outside(add, y, limit, work)
        divisor = add("Gather", powers, add("Where", outside, np.array(0, work), y))
    else:
        outside = (count < 0) | (count >= limit)
        divisor = powers[np.where(outside, 0, count)]
    if kind.min:  # Div rounds towards zero
        quotient = add("Div", add("Sub", x, add("Mod", x, divisor)), divisor)
        nothing: Operand = None
    else:
        quotient = add("Div", x, divisor)
        nothing = np.array(0, work)
    if count is not None and not np.any(outside):
        return quotient
    if nothing is None:
        negative = add("Less", x, np.array(0, work))
        nothing = add("Where", negative, np.array(-1, work), np.array(0, work))
    return add("Where", outside, nothing, quotient)


def _outside(add: Part, y: gs.Tensor, limit: int, work: np.dtype) -> gs.Tensor:
    low = add("Less", y, np.array(0, work))
    return add("Or", low, add("Greater", y, np.array(limit - 1, work)))
