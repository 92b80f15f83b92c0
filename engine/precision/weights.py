"""Weights in another type without holding them in memory: counted and converted chunk by chunk."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import onnx_ir as ir

from engine.errors import StepError
from engine.precision.formats import DTYPES, LIMITS, PRECISIONS, Precision
from engine.samples import Array

_NORMAL, _TO_INF = (np.float32(x).view(np.uint32) for x in (2.0**-14, 65520.0))
_REBIAS = np.uint32(0x1000 - 1 - (112 << 23) & 0xFFFFFFFF)  # just under half a unit, and FP16's exponent
_UPPER = 1 if sys.byteorder == "little" else 0  # which half of a 32-bit number has its sign
_CHUNK = 1 << 16  # values; small enough for a core's cache, which makes counting twice as fast


@dataclass(frozen=True)
class Scan:
    """What a type does to a tensor's finite values, by count; ``low``/``high`` are those past its range.

    ``low`` is the smallest value that would become -inf and ``high`` the largest that would become
    +inf, 0 where there is none. ``least`` is the smallest magnitude among them.
    """

    size: int
    to_inf: int = 0
    to_zero: int = 0
    to_subnormal: int = 0
    low: float = 0.0
    high: float = 0.0
    least: float = 0.0

    @property
    def extreme(self) -> float:
        """The value farthest outside the range."""
        return self.low if -self.low >= self.high else self.high


class ConvertedTensor(ir.LazyTensor):
    """A tensor in another type, converted when it is written and never kept.

    Finite values whose magnitude exceeds the type's range are set to +-``clamp`` if that is given.
    """

    __slots__ = ("_clamp", "_source")

    def __init__(self, source: ir.TensorProtocol, target: Precision, clamp: float | None = None) -> None:
        self._source, self._clamp = source, clamp
        super().__init__(self._whole, DTYPES[target], ir.Shape(source.shape.numpy()), name=source.name)

    @property
    def source(self) -> ir.TensorProtocol:
        return self._source

    def _whole(self) -> ir.TensorProtocol:
        array = np.concatenate([*self._parts(), np.empty(0, self.dtype.numpy())])
        return ir.Tensor(array.reshape(self.shape.numpy()), dtype=self.dtype, name=self.name)

    def _parts(self) -> Iterator[Array]:
        target = PRECISIONS[self.dtype]
        for chunk in chunks(self._source):
            yield convert(chunk, target, self._clamp)

    def tofile(self, file: IO[bytes]) -> None:
        for part in self._parts():
            file.write(part.astype(part.dtype.newbyteorder("<"), copy=False).tobytes())


def convert(array: Array, target: Precision, clamp: float | None = None) -> Array:
    """Round to nearest even; finite values past the range go to +-``clamp`` if given, else to infinity."""
    with np.errstate(over="ignore", under="ignore"):
        wide = array.astype(np.float32, copy=False)
        if clamp is not None:
            outside = (np.abs(wide) >= LIMITS[target].to_inf) & np.isfinite(wide)
            wide = np.where(outside, np.copysign(np.float32(clamp), wide), wide)
        return _halves(wide) if target == "fp16" else wide.astype(DTYPES[target].numpy())


def _halves(wide: Array) -> Array:
    """``wide.astype(np.float16)``, bit for bit, in integer steps over the array: numpy converts one by one."""
    bits = np.ascontiguousarray(wide).reshape(-1).view(np.uint32)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    subnormal = np.flatnonzero(magnitude < _NORMAL)
    if subnormal.size * 8 > bits.size or magnitude.max(initial=0) >= _TO_INF:
        return wide.astype(np.float16)
    kept = bits >> np.uint32(13)
    kept &= np.uint32(1)  # a tie goes to the even neighbour
    kept += bits
    kept += _REBIAS
    kept >>= np.uint32(13)
    half = kept.astype(np.uint16)
    half |= bits.view(np.uint16)[_UPPER::2] & np.uint16(0x8000)
    found: Array = half.view(np.float16)
    found[subnormal] = bits[subnormal].view(np.float32).astype(np.float16)
    return found.reshape(wide.shape)


def scan(tensor: ir.TensorProtocol, target: Precision) -> Scan:
    """Count what ``target`` would do to the values of a FP32, FP16 or BF16 tensor; streams it once."""
    limits = LIMITS[target]
    inf_bits, zero_bits, normal_bits = (
        np.float32(x).view(np.uint32) for x in (limits.to_inf, limits.to_zero, limits.smallest_normal)
    )
    infinite = np.float32(np.inf).view(np.uint32)
    size = to_inf = to_zero = to_subnormal = 0
    low = high = least = 0.0
    for chunk in chunks(tensor):
        wide = chunk.astype(np.float32, copy=False)
        bits = wide.view(np.uint32) & np.uint32(0x7FFFFFFF)
        size += bits.size
        small = int(np.count_nonzero(bits < normal_bits))
        if small:
            zeros = int(np.count_nonzero(bits == 0))
            lost = int(np.count_nonzero(bits <= zero_bits)) - zeros
            to_zero += lost
            to_subnormal += small - zeros - lost
        if bits.size and bits.max() >= inf_bits:
            past = wide[(bits >= inf_bits) & (bits < infinite)].astype(np.float64)
            if past.size:
                to_inf += past.size
                low, high = min(low, float(past.min())), max(high, float(past.max()))
                nearest = float(np.abs(past).min())
                least = min(least, nearest) if least else nearest
    return Scan(size, to_inf, to_zero, to_subnormal, low, high, least)


def chunks(tensor: ir.TensorProtocol, length: int = _CHUNK) -> Iterator[Array]:
    """The tensor's values in order, flat, ``length`` at a time; one on disk is read, not mapped, so that nothing
    piles up.
    """
    if not isinstance(tensor, ir.ExternalTensor):
        flat = tensor.numpy().reshape(-1)
        for start in range(0, flat.size, length):
            yield flat[start : start + length]
        return
    dtype = tensor.dtype.numpy()
    with open(tensor.path, "rb") as file:
        file.seek(tensor.offset or 0)
        for start in range(0, tensor.size, length):
            wanted = min(length, tensor.size - start)
            data = file.read(wanted * dtype.itemsize)
            if len(data) != wanted * dtype.itemsize:
                raise StepError(
                    f"weight file {tensor.path} ends inside tensor {tensor.name!r}", klass="tooling"
                )
            yield np.frombuffer(data, dtype)
