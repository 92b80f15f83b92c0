"""Products of 8-bit integers in float32, where every whole number up to 2**24 is exact.

A sum whose terms are bounded by 2**24 together is exact in whatever order it is added. Longer ones are cut
into pieces that keep the bound, and the pieces are added as 32-bit integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.rules.constants import Array
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import FLOAT, INT32, Part, array_of

EXACT = 2**24
Shape = Sequence[int | str | None] | None
RANGES = {"uint8": (0, 255), "int8": (-128, 127)}


def real(part: Part, value: Any) -> Any:
    """``value`` as float32. Constants are converted: TensorRT takes 8-bit ones before DequantizeLinear only."""
    known = array_of(value)
    if known is not None:
        return known.astype(np.float32)
    if value.dtype == np.float32:
        return value
    made = part("Cast", value, to=FLOAT)
    made.dtype = np.float32
    return made


def centred(part: Part, value: Any, zero: Any, lay: Sequence[int] | None = None) -> Any:
    """``value - zero`` as float32, computed beforehand where both are constant. ``lay`` reshapes ``zero``."""
    whole, offset = real(part, value), None if zero is None else real(part, zero)
    known = array_of(offset)
    if offset is None or (known is not None and not known.any()):
        return whole
    if lay is not None:
        offset = known.reshape(lay) if known is not None else part("Reshape", offset, np.array(lay))
    if known is not None and isinstance(whole, np.ndarray):
        return whole - offset
    return part("Sub", whole, offset)


def largest(dtype: str, zero: Any) -> int:
    """The largest distance that a value of this type can have from its zero point."""
    low, high = RANGES[dtype]
    if zero is None:
        return max(-low, high)
    known = array_of(zero)
    if known is None or not known.size:
        return high - low
    return max(int(known.max()) - low, high - int(known.min()))


def pieces(terms: Array, limit: int = EXACT) -> list[slice]:
    """Runs along axis 0 of ``terms`` (bounds of the terms, one column a sum) that each add up to the limit."""
    found, start, total = [], 0, np.zeros(terms.shape[1:])
    for index, row in enumerate(terms):
        if row.max(initial=0) > limit:
            raise RefusedError("one step of the sum can exceed 2**24 alone, where float32 is not exact")
        if (total + row).max(initial=0) > limit:
            found.append(slice(start, index))
            start, total = index, np.zeros(terms.shape[1:])
        total = total + row
    return [*found, slice(start, len(terms))]


def added(part: Part, products: Sequence[Any]) -> Any:
    """The sum of exact float products: the only one as it is, several as a 32-bit integer."""
    if len(products) == 1:
        return products[0]
    total = part("Cast", products[0], to=INT32)
    for product in products[1:]:
        total = part("Add", total, part("Cast", product, to=INT32))
    return total


def is_cut(total: Any) -> bool:
    """Whether ``added`` had several products, so that its result is an int32."""
    return bool(total.inputs[0].op == "Add")


def matmul(part: Part, first: tuple[Any, str, Any], second: tuple[Any, str, Any], inner: int | None) -> Any:
    """The exact product of two (value, type, zero point): float32, or int32 where the sum was cut."""
    (a, a_type, a_zero), (b, b_type, b_zero) = first, second
    left, right = centred(part, a, a_zero), centred(part, b, b_zero)
    if inner is None:
        raise RefusedError("the length of the sum is not known from the graph")
    known = array_of(right)
    axis = -2 if known is not None and known.ndim > 1 else 0
    terms = np.full((inner, 1), float(largest(b_type, b_zero)))
    if known is not None:
        terms = np.abs(np.moveaxis(known, axis, 0)).reshape(inner, -1).astype(np.float64)
    runs = pieces(terms * largest(a_type, a_zero))
    if len(runs) == 1:
        return part("MatMul", left, right)
    lefts = split(part, left, -1, runs)
    rank = len(b.shape)
    rights = split(part, right, -2 if rank > 1 else 0, runs)
    return added(part, [part("MatMul", one, two) for one, two in zip(lefts, rights, strict=True)])


def conv(part: Part, image: tuple[Any, str, Any], kernel: tuple[Any, str, Any], shape: Shape) -> Any:
    """The exact convolution of (value, type, zero point) twice: float32, or int32 where the sum was cut.

    ``shape`` is the kernel's. Attributes are those of the node that is replaced.
    """
    (x, x_type, x_zero), (w, w_type, w_zero) = image, kernel
    sizes = [size for size in shape or () if isinstance(size, int)]
    if shape is None or len(sizes) < len(shape):
        raise RefusedError("the kernel's shape is not known from the graph")
    left = centred(part, x, x_zero)
    right = centred(part, w, w_zero, [-1, *[1] * (len(sizes) - 1)])
    known = array_of(right)
    window = int(np.prod(sizes[2:], dtype=np.int64))
    terms = np.full((sizes[1], 1), window * float(largest(w_type, w_zero)))
    if known is not None:
        terms = np.abs(known).astype(np.float64).reshape(len(known), known.shape[1], -1).sum(-1).T
    runs = pieces(terms * largest(x_type, x_zero))
    attributes = dict(part.node.attrs)
    if len(runs) == 1:
        return part("Conv", left, right, **attributes)
    if attributes.get("group", 1) != 1:
        raise RefusedError("a sum in a group can exceed 2**24, where float32 is not exact")
    pairs = zip(split(part, left, 1, runs), split(part, right, 1, runs), strict=True)
    return added(part, [part("Conv", one, two, **attributes) for one, two in pairs])


def inner_size(first: Shape, second: Shape) -> int | None:
    """The number of products in each sum of a matrix product, where either side tells it."""
    for shape, axis in ((first, -1), (second, -2 if second is not None and len(second) > 1 else 0)):
        size = shape[axis] if shape else None
        if isinstance(size, int):
            return size
    return None


def split(part: Part, value: Any, axis: int, runs: Sequence[slice]) -> list[Any]:
    known = array_of(value)
    if known is not None:
        steps = np.moveaxis(known, axis, 0)
        return [np.moveaxis(steps[run], 0, axis) for run in runs]
    sizes = [run.stop - run.start for run in runs]
    if part.opset < 13:
        return part.many("Split", len(runs), value, axis=axis, split=sizes)
    return part.many("Split", len(runs), value, np.array(sizes, dtype=np.int64), axis=axis)


def per_row(zero: Any, rank: int | None) -> None:
    """Refuse the vector of one zero point or scale for each row: no evaluator computes that form."""
    if zero is None:
        return
    if zero.shape is None or rank is None:
        raise RefusedError(f"the shape of {zero.name} is not known from the graph")
    if len(zero.shape) == 1 and zero.shape[0] != 1:
        raise RefusedError(f"{zero.name} is a vector of one number a row, which no runtime here can check")
