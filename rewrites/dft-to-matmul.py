"""DFT over a fixed length as a product with a constant matrix, after one butterfly where that halves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules import fourier
from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part, array_of

# the result, still to be reshaped to the shape beside it, from the signal and the leading sizes
Product = Callable[[Part, Any, list[int]], tuple[Any, np.ndarray]]


def apply(graph: gs.Graph, match: Captured) -> None:
    """Replace the one DFT of ``graph``; the axis moves beside the complex parts and back."""
    part = Part(graph)
    shape = match.shapes["input"]
    if shape is None:
        raise RefusedError("the rank of the signal is not known from the graph")
    rank, parts = len(shape), shape[-1]
    axis = _number(part, match, 2, "axis", 1 if match.opset < 20 else -2) % rank
    if axis == rank - 1 or parts not in (1, 2):
        raise RefusedError(f"axis {axis} of a signal with {parts} parts is no signal")
    size = shape[axis]
    if not isinstance(size, int):
        raise RefusedError(f"the length of the transform, axis {axis} of the signal, is dynamic ({size})")
    inverse, onesided = bool(match.attributes["inverse"]), bool(match.attributes["onesided"])
    if onesided and not inverse and parts == 2:
        raise RefusedError("a one-sided transform is defined for real signals only")
    length = _number(part, match, 1, "dft_length", 2 * (size - 1) if inverse and onesided else size)
    if length < 1:
        raise RefusedError(f"a transform of {length} points has no result")
    taken = min(size, length // 2 + 1 if inverse and onesided else length)
    kind = np.dtype(match.dtypes["input"])
    if parts == 2 and not onesided and taken == length and length % 2 == 0:
        product = _halves(length // 2, inverse, kind)
    else:
        product = _whole(fourier.matrix(taken, length, parts, inverse, onesided).astype(kind))
    _beside(part, product, rank, axis, taken if taken < size else None)


def _number(part: Part, match: Captured, index: int, name: str, default: int) -> int:
    """A whole number that is an input in newer opsets; it must be constant."""
    given = part.input(index)
    if given is None:
        found = match.attributes.get(name)
        return default if found is None else int(found)
    known = array_of(given)
    if known is None:
        raise RefusedError(f"{name} is computed in the graph; the matrix needs it as a constant")
    return int(known.reshape(()))


def _beside(part: Part, product: Product, rank: int, axis: int, cut: int | None) -> None:
    """Bring the axis beside the complex parts, and back afterwards."""
    signal: Any = part.input(0)
    if cut is not None:
        ends = [np.array([number]) for number in (0, cut, axis)]
        signal = part("Slice", signal, *ends)
    order = [*(i for i in range(rank - 1) if i != axis), axis, rank - 1]
    lead = [0] * (rank - 2)  # 0 keeps a size as it is
    if order == sorted(order):
        part.result(0, "Reshape", *product(part, signal, lead))
        return
    value, shape = product(part, part("Transpose", signal, perm=order), lead)
    part.result(0, "Transpose", part("Reshape", value, shape), perm=[order.index(i) for i in range(rank)])


def _whole(weights: np.ndarray) -> Product:
    taken, parts, outputs, out_parts = weights.shape

    def product(part: Part, signal: Any, lead: list[int]) -> tuple[Any, np.ndarray]:
        flat = part("Reshape", signal, np.array([*lead, taken * parts]))
        found = part("MatMul", flat, weights.reshape(taken * parts, outputs * out_parts))
        return found, np.array([*lead, outputs, out_parts])

    return product


def _halves(count: int, inverse: bool, kind: np.dtype[Any]) -> Product:
    """Sums of both halves give the even results, turned differences the odd ones, by one matrix of half the length.

    That is half the multiplications, and what cancels is rounded where an FFT rounds it. In float32 an inverse is
    divided at the end, as FFTs do it; sums in float16 might overflow before that.
    """
    turned = fourier.turns(2, count, 2 * count, 1 if inverse else -1)[1]
    straight = np.stack([turned.real, turned.real], axis=-1).astype(kind)
    crossed = np.stack([-turned.imag, turned.imag], axis=-1).astype(kind)
    late = inverse and kind == np.float32
    scale = count if late else 0.5 if inverse else 1
    weights = (fourier.matrix(count, count, 2, inverse, False) * scale).astype(kind)

    def product(part: Part, signal: Any, lead: list[int]) -> tuple[Any, np.ndarray]:
        at = len(lead)
        pairs = part("Reshape", signal, np.array([*lead, 2, count, 2]))
        first, second = (part("Gather", pairs, np.array([index]), axis=at) for index in range(2))
        difference = part("Sub", first, second)
        swapped = part("Gather", difference, np.array([1, 0]), axis=at + 2)
        odd = part("Add", part("Mul", difference, straight), part("Mul", swapped, crossed))
        both = part("Concat", part("Add", first, second), odd, axis=at)
        found = part(
            "MatMul", part("Reshape", both, np.array([*lead, 2, 2 * count])), weights.reshape(2 * count, -1)
        )
        found = part("Div", found, kind.type(2 * count)) if late else found
        found = part("Reshape", found, np.array([*lead, 2, count, 2]))
        woven = part("Transpose", found, perm=[*range(at), at + 1, at, at + 2])
        return woven, np.array([*lead, 2 * count, 2])

    return product
