"""BitwiseAnd, BitwiseOr, BitwiseXor and BitwiseNot in integer arithmetic."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part

WORK = {
    "int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32",
    "int32": "int32", "uint32": "int64", "int64": "int64",
}  # fmt: skip
RUNS = 3  # runs of ones in a constant mask that are taken one by one
TABLES = {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor}


def apply(graph: gs.Graph, match: Captured) -> None:
    node = graph.nodes[0]
    unary = node.op == "BitwiseNot"
    dtype = match.dtypes["X" if unary else "A"]
    if dtype not in WORK:
        raise RefusedError(f"{node.inputs[0].name} is {dtype}; no integer type of TensorRT holds its numbers")
    kind, work, add = np.iinfo(dtype), np.dtype(WORK[dtype]), Part(graph)
    wide = [value if dtype == work.name else add.cast(value, work.name) for value in node.inputs]
    if unary:
        made, name = add("Sub", np.array(-1 if kind.min else kind.max, work), wide[0]), "Y"
    else:
        made, name = _binary(add, node.op, wide, match, kind, work), "C"
    add.finish({name: made if dtype == work.name else add.cast(made, dtype)})


def _binary(
    add: Part, op: str, wide: list[gs.Tensor], match: Captured, kind: np.iinfo, work: np.dtype
) -> gs.Tensor:
    for name, other, value in (("B", "A", wide[0]), ("A", "B", wide[1])):
        mask = match.constants.get(name)
        if mask is not None and mask.size == 1 and mask.ndim <= len(match.shapes[other] or ()):
            number = int(mask.reshape(()))
            runs = _runs(number % 2**kind.bits, kind.bits)
            if len(runs) <= RUNS:
                return _masked(add, op, value, number, runs, kind, work)
    return _by_digits(add, op, wide, kind, work)


def _runs(mask: int, bits: int) -> list[tuple[int, int]]:
    """Runs of ones: lowest bit, and the bit after the highest."""
    text = f"0{mask:0{bits}b}0"[::-1]
    edges = [bit for bit in range(bits + 1) if text[bit] != text[bit + 1]]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _masked(
    add: Part, op: str, x: gs.Tensor, mask: int, runs: list[tuple[int, int]], kind: np.iinfo, work: np.dtype
) -> gs.Tensor:
    """The bits of ``x`` inside the mask, as sums of x mod 2**high - x mod 2**low; the rest follows from them."""
    inside = None
    for low, high in runs:
        run = _low_bits(add, x, high, kind, work)
        if low:
            run = add("Sub", run, _low_bits(add, x, low, kind, work))
        inside = run if inside is None else add("Add", inside, run)
    number = np.array(mask, work)
    if op == "BitwiseAnd":
        return inside if inside is not None else add("Sub", x, x)
    if inside is None:
        return x
    outside = add("Sub", x, inside)
    return add("Add", outside, number if op == "BitwiseOr" else add("Sub", number, inside))


def _low_bits(add: Part, x: gs.Tensor, bits: int, kind: np.iinfo, work: np.dtype) -> gs.Tensor:
    """The number that the lowest ``bits`` make, without a sign unless they are all."""
    if bits == kind.bits:
        return x
    if bits == np.iinfo(work).bits - 1:  # 2**bits is no number of the type
        top = add("Where", add("Less", x, np.array(0, work)), np.array(kind.min, work), np.array(0, work))
        return add("Sub", x, top)
    return add("Mod", x, np.array(2**bits, work))


def _by_digits(add: Part, op: str, wide: list[gs.Tensor], kind: np.iinfo, work: np.dtype) -> gs.Tensor:
    """Digits of four bits along a new last axis, each pair looked up in a table, and summed."""
    count = kind.bits // 4
    place = 16 ** np.arange(count, dtype=np.int64)
    weight = np.tile(place[:8], 2)[:count]
    digits = np.arange(16)
    pairs = TABLES[op](digits[:, None], digits).reshape(-1)
    signed = np.where(pairs > 7, pairs - 16, pairs)  # the highest digit holds the sign
    rows = [signed if kind.min and index == count - 1 else pairs for index in range(count)]
    table = np.concatenate([row * unit for row, unit in zip(rows, weight, strict=True)]).astype(work)
    split = []
    for value in wide:
        column = add("Unsqueeze", value, np.array([-1]))
        rest = add("Mod", column, place.astype(work))  # Div rounds towards zero
        shifted = add("Div", add("Sub", column, rest), place.astype(work))
        split.append(add("Mod", shifted, np.array(16, work)))
    row = add("Mul", split[0], np.array(16, work))
    index = add("Add", add("Add", row, split[1]), (256 * np.arange(count)).astype(work))
    found = add("Gather", table, index)
    if count <= 8:
        return add("ReduceSum", found, np.array([-1]), keepdims=0)
    # halves, for ONNX Runtime sums int64 in double precision
    halves = add.many("Split", 2, found, np.array([8, 8]), axis=-1)
    low, high = (add("ReduceSum", half, np.array([-1]), keepdims=0) for half in halves)
    return add("Add", add("Mul", high, np.array(2**32, work)), low)
