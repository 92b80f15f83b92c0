"""DFT over a fixed length as a product with a constant matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules import fourier
from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part, array_of


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
    weights = fourier.matrix(taken, length, parts, inverse, onesided)
    _product(part, weights.astype(match.dtypes["input"]), rank, axis, taken < size)


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


def _product(part: Part, weights: np.ndarray, rank: int, axis: int, cut: bool) -> None:
    taken, parts, outputs, out_parts = weights.shape
    signal: Any = part.input(0)
    if cut:
        ends = [np.array([number]) for number in (0, taken, axis)]
        signal = part("Slice", signal, *ends)
    order = [*(i for i in range(rank - 1) if i != axis), axis, rank - 1]
    lead = [0] * (rank - 2)  # 0 keeps a size as it is
    moved = signal if order == sorted(order) else part("Transpose", signal, perm=order)
    flat = part("Reshape", moved, np.array([*lead, taken * parts]))
    product = part("MatMul", flat, weights.reshape(taken * parts, outputs * out_parts))
    pairs = np.array([*lead, outputs, out_parts])
    if order == sorted(order):
        part.result(0, "Reshape", product, pairs)
    else:
        part.result(
            0, "Transpose", part("Reshape", product, pairs), perm=[order.index(i) for i in range(rank)]
        )
