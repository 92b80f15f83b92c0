"""Weights of a graph file: is every one whole, and are its values such as trained weights have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx.external_data_helper import _get_all_tensors, uses_external_data

from engine.errors import quoted
from engine.graph.faults import Fault
from engine.values import Disposition, Issue

_LOOK = "look at the checkpoint"
ZERO_TAIL = 4096  # bytes of zeros at the end of a weight that look like padding: a page of a file
_CHUNK = 1 << 20  # elements
# float type -> unsigned type of its bits, mask without the sign, exponent of all ones, largest subnormal
_BITS: dict[ir.DataType, tuple[Any, int, int, int]] = {
    ir.DataType.FLOAT: (np.uint32, 0x7FFFFFFF, 0x7F800000, 0x007FFFFF),
    ir.DataType.DOUBLE: (np.uint64, (1 << 63) - 1, 0x7FF << 52, (1 << 52) - 1),
    ir.DataType.FLOAT16: (np.uint16, 0x7FFF, 0x7C00, 0x03FF),
    ir.DataType.BFLOAT16: (np.uint16, 0x7FFF, 0x7F80, 0x007F),
}
_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
_PACKED = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}  # bits; several elements a byte


def needed(tensor: onnx.TensorProto) -> int:
    """Bytes that the declared type and shape take; sub-byte types are packed."""
    name = onnx.TensorProto.DataType.Name(tensor.data_type)
    width = _PACKED.get(name) or 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return (math.prod(int(size) for size in tensor.dims) * int(width) + 7) // 8


def faults(model: onnx.ModelProto) -> Iterator[Fault]:
    """Tensors inside the file whose data does not fill their shape exactly."""
    for tensor in _get_all_tensors(model):
        name = f"tensor {quoted(tensor.name)}" if tensor.name else "the tensor of a Constant node"
        if tensor.data_type not in onnx.TensorProto.DataType.values() or tensor.data_type == 0:
            yield Fault(f"{name} has the type number {tensor.data_type}, which nobody knows",
                        fix="write the file again")  # fmt: skip
        elif any(size < 0 for size in tensor.dims):
            yield Fault(f"{name} has the shape {list(tensor.dims)}", fix="write the file again")
        elif tensor.data_type != onnx.TensorProto.STRING and not uses_external_data(tensor):
            there, wanted, unit = _lengths(tensor)
            if there != wanted:
                yield Fault(
                    f"{name} holds {there:,} {unit}, its type and shape {list(tensor.dims)} take {wanted:,}",
                    "the shape was changed without the data, or the file was cut",
                    "write the file again from the model",
                )


def _lengths(tensor: onnx.TensorProto) -> tuple[int, int, str]:
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data), needed(tensor), "bytes"
    name = onnx.TensorProto.DataType.Name(tensor.data_type)
    elements = math.prod(int(size) for size in tensor.dims)
    if name.startswith("COMPLEX"):
        elements *= 2
    wanted = (elements * _PACKED[name] + 7) // 8 if name in _PACKED else elements
    return sum(len(getattr(tensor, field)) for field in _FIELDS), wanted, "numbers"


@dataclass(frozen=True)
class Scan:
    """What is odd about one weight's values: counts, and bytes of zeros at its end."""

    nan: int = 0
    inf: int = 0
    subnormal: int = 0
    zero_tail: int = 0


def scan(tensor: ir.TensorProtocol) -> Scan:
    """Read the whole tensor once, a piece at a time."""
    if tensor.dtype not in _BITS or tensor.size == 0:
        return Scan()
    kind, unsigned, infinite, subnormal = _BITS[tensor.dtype]
    bits = np.ascontiguousarray(tensor.numpy()).reshape(-1).view(kind)
    nan = inf = small = 0
    for start in range(0, bits.size, _CHUNK):
        piece = bits[start : start + _CHUNK] & kind(unsigned)
        if piece.max() >= infinite:
            nan += int((piece > infinite).sum())
            inf += int((piece == infinite).sum())
        small += int(np.count_nonzero(piece <= subnormal) - np.count_nonzero(piece == 0))
    tail = _zero_tail(bits) * bits.itemsize if len(tensor.shape) > 1 else 0
    return Scan(nan, inf, small, tail if tail >= ZERO_TAIL else 0)


def _zero_tail(bits: npt.NDArray[Any]) -> int:
    """Elements of +0 at the end."""
    zeros = 0
    for stop in range(bits.size, 0, -_CHUNK):
        piece = bits[max(0, stop - _CHUNK) : stop]
        last = np.flatnonzero(piece)
        if last.size:
            return zeros + int(piece.size - 1 - last[-1])
        zeros += int(piece.size)
    return zeros


def oddities(model: ir.Model, step: str) -> tuple[dict[str, int], list[Issue]]:
    """Counts over all weights, and the issues that they are."""
    found = {
        value.name or "?": scan(value.const_value)
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None
    }
    alone = {value.name for graph in model.graphs() for value in graph.initializers.values()
             if value.const_value is not None and value.const_value.size == 1}  # fmt: skip
    nan = [f"{name} ({item.nan:,})" for name, item in found.items() if item.nan]
    # A single -inf is how masks are written.
    inf = [f"{name} ({item.inf:,})" for name, item in found.items() if item.inf and name not in alone]
    small = [f"{name} ({item.subnormal:,})" for name, item in found.items() if item.subnormal]
    tails = [f"{name} ({item.zero_tail:,} bytes)" for name, item in found.items() if item.zero_tail]
    padded = f"they end in {ZERO_TAIL:,} bytes of zeros or more, as after a partial copy"
    kinds: tuple[tuple[str, str, str, list[str], Disposition], ...] = (
        ("weights with NaN", "training diverged, or the file is damaged", _LOOK, nan, "open"),
        ("weights with inf", "a mask, training that diverged, or a damaged file", _LOOK, inf, "open"),
        (
            "weights that look zero-padded",
            padded,
            "compare the file with its origin, or pin its sha256",
            tails,
            "open",
        ),
        ("weights with subnormal values", "a GPU may take them for 0", "", small, "noted"),
        ("int64 constants beyond int32", "some layers compute in int32", "", _wide(model), "noted"),
    )
    issues = [
        Issue(step, "numeric", f"{what} ({len(names)})", cause, fix, _shown(names), disposition)
        for what, cause, fix, names, disposition in kinds
        if names
    ]
    scans = found.values()
    counts = {kind: sum(getattr(item, kind) for item in scans) for kind in ("nan", "inf", "subnormal")}
    return counts, issues


def _wide(model: ir.Model) -> list[str]:
    """Slice takes the largest int64 for "to the end"; every importer knows that."""
    names = []
    for value in _constants(model):
        tensor = value.const_value
        if tensor is None or tensor.dtype != ir.DataType.INT64 or tensor.size == 0:
            continue
        if all(user.op_type == "Slice" for user in value.consumers()):
            continue
        numbers = tensor.numpy()
        worst = max(int(numbers.max()), int(numbers.min()), key=abs)
        if not -(2**31) <= worst < 2**31:
            names.append(f"{value.name} = {worst}")
    return names


def _constants(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        yield from graph.initializers.values()
    for node in model.graph.all_nodes():
        if node.op_type == "Constant":
            yield from node.outputs


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
