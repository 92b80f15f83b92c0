"""Weights in a quantised type without holding them in memory: one pass for the scales, one while writing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import IO

import numpy as np
import onnx_ir as ir

from engine.precision.formats import QUANTISED, QuantType
from engine.precision.quantizable import Weight
from engine.precision.weights import chunks
from engine.quantize import grid
from engine.samples import Array

_CHUNK = 1 << 20  # values that are looked at together, at least one row or block of rows


def largest(weight: Weight, block: int | None = None) -> Array:
    """Largest finite magnitude of each output channel, shape [channels]; with ``block`` of each block of values along
    the summed dimension, the weight's shape with that dimension divided by the block.
    """
    shape = weight.shape
    parts = []
    for rows in _rows(weight, block or 1):
        magnitude = np.abs(rows)
        magnitude[~np.isfinite(magnitude)] = np.inf
        if block is None:
            others = tuple(axis for axis in range(len(shape)) if axis != weight.channel)
            parts.append(magnitude.max(axis=others))
        else:
            cut = list(magnitude.shape)
            cut[weight.summed : weight.summed + 1] = [cut[weight.summed] // block, block]
            parts.append(magnitude.reshape(cut).max(axis=weight.summed + 1))
    if block is None and weight.channel != 0:
        found: Array = np.max(parts, axis=0)
        return found
    return np.concatenate(parts)


def _rows(weight: Weight, multiple: int) -> Iterator[Array]:
    """The weight in pieces of whole rows, a number of them that ``multiple`` divides where rows are summed over."""
    shape = weight.shape
    width = math.prod(shape[1:])
    step = multiple if weight.summed == 0 else 1
    count = max(1, _CHUNK // max(1, width * step)) * step
    assert weight.value.const_value is not None
    for part in chunks(weight.value.const_value, count * width):
        yield part.astype(np.float32).reshape(-1, *shape[1:])


class QuantisedTensor(ir.LazyTensor):
    """A weight divided by its scales and rounded when it is written, never kept.

    ``scales`` has shape [channels], or with ``block`` that of the weight with the summed dimension divided.
    """

    __slots__ = ("_block", "_kind", "_scales", "_weight")

    def __init__(self, weight: Weight, scales: Array, kind: QuantType, block: int | None, name: str) -> None:
        self._weight, self._scales, self._kind, self._block = weight, scales, kind, block
        super().__init__(self._whole, QUANTISED[kind], ir.Shape(weight.shape), name=name)

    def _whole(self) -> ir.TensorProtocol:
        return ir.Tensor(np.concatenate(list(self._parts())), dtype=self.dtype, name=self.name)

    def _parts(self) -> Iterator[Array]:
        weight, start = self._weight, 0
        for rows in _rows(weight, self._block or 1):
            yield grid.quantise(rows, self._spread(start, rows.shape), self._kind)
            start += rows.shape[0]

    def _spread(self, start: int, shape: tuple[int, ...]) -> Array:
        """The scales of some rows, so that they broadcast."""
        weight, stop = self._weight, start + shape[0]
        if self._block is None:
            scales = self._scales[start:stop] if weight.channel == 0 else self._scales
            wide = [1] * len(shape)
            wide[weight.channel] = -1
            return scales.reshape(wide)
        if weight.summed == 0:
            start, stop = start // self._block, stop // self._block
        spread: Array = np.repeat(self._scales[start:stop], self._block, axis=weight.summed)
        return spread

    def tofile(self, file: IO[bytes]) -> None:
        for part in self._parts():
            flat = part.reshape(-1)
            if self._kind == "int4":  # two to a byte, the first in the lower half; a part has whole blocks
                nibbles = flat.astype(np.int8).view(np.uint8) & np.uint8(0x0F)
                flat = nibbles[0::2] | (nibbles[1::2] << np.uint8(4))
            file.write(flat.tobytes())
