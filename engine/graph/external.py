"""External weight files: every tensor must lie inside its file, before any tool maps it."""

from __future__ import annotations

import math
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import _get_all_tensors, uses_external_data

from engine.errors import StepError


def check(path: Path) -> int:
    """Number of external tensors of the graph at ``path``. Raises StepError at the first that is not whole."""
    count = 0
    for tensor in _get_all_tensors(_read(path)):
        if not uses_external_data(tensor):
            continue
        count += 1
        fault = _fault(tensor, path)
        if fault:
            raise StepError(
                fault,
                klass="tooling",
                cause="a partial copy, or the graph was moved without its weights",
                fix=f"put the whole file beside {path.name}",
                evidence=str(path),
            )
    return count


def _read(path: Path) -> onnx.ModelProto:
    try:
        return onnx.load(path, load_external_data=False)
    except (DecodeError, OSError) as error:
        raise StepError(
            f"{path.name} is not an ONNX file: {error}", klass="tooling", evidence=str(path)
        ) from error


def _fault(tensor: onnx.TensorProto, path: Path) -> str:
    fields = {item.key: item.value for item in tensor.external_data}
    location = fields.get("location", "")
    if not location or Path(location).is_absolute() or ".." in Path(location).parts:
        return f"tensor '{tensor.name}': external location '{location}' is outside the folder of {path.name}"
    needed = _needed(tensor)
    try:
        start, length = int(fields.get("offset", 0)), int(fields.get("length", needed))
    except ValueError:
        return f"tensor '{tensor.name}': offset or length is no number"
    if start < 0 or length < needed:
        return f"tensor '{tensor.name}': offset {start:,} and length {length:,}, its shape needs {needed:,} bytes"
    file = path.parent / location
    size = file.stat().st_size if file.is_file() else -1
    if size >= start + length:
        return ""
    what = f"{size:,} bytes" if size >= 0 else "not there"
    return f"external data file {file.name}: {what}, tensor '{tensor.name}' needs bytes [{start:,}, {start + length:,})"


def _needed(tensor: onnx.TensorProto) -> int:
    """Bytes that the declared type and shape take; sub-byte types are packed."""
    bits = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}
    name = onnx.TensorProto.DataType.Name(tensor.data_type)
    width = int(bits.get(name) or 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    return (math.prod(int(size) for size in tensor.dims) * width + 7) // 8
