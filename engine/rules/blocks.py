"""Scales and zero points of QuantizeLinear and DequantizeLinear, laid out to broadcast with the tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.rules.quantized import Shape, real
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part, array_of


def laid_out(part: Part, scale: Any, x: Shape, axis: int, block: int) -> Any:
    """``scale`` as float32 for a tensor of shape ``x``: one number, one an index, or one a block of ``axis``."""
    given = scale.shape
    scale = real(part, scale)
    known = array_of(scale)
    rank = len(given) if given is not None else None
    if rank is None or x is None:
        raise RefusedError("the rank of the input or of its scale is not known from the graph")
    if rank == 0 or (rank == 1 and given[0] == 1 and not block):
        return known.reshape(()) if known is not None else scale
    axis %= len(x)
    if block:
        size = x[axis]
        if not isinstance(size, int):
            raise RefusedError(
                f"the size of axis {axis}, which is cut into blocks, is not known from the graph"
            )
        places = np.arange(size) // block
        return (
            known.take(places, axis) if known is not None else _real(part("Gather", scale, places, axis=axis))
        )
    lay = [1] * len(x)
    lay[axis] = -1
    return known.reshape(lay) if known is not None else _real(part("Reshape", scale, np.array(lay)))


def _real(made: Any) -> Any:
    made.dtype = np.float32
    return made
