"""External weight files: every tensor must lie inside its file, before any tool maps it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import _get_all_tensors, uses_external_data

from engine.errors import StepError, quoted
from engine.graph.weights import needed
from engine.values import Issue


@dataclass(frozen=True, order=True)
class _Span:
    """The bytes of one tensor in its file."""

    file: Path
    start: int
    length: int
    tensor: str
    itemsize: int


def check(path: Path) -> int:
    """Number of external tensors of the graph at ``path``. Raises StepError at the first that is not whole."""
    spans = []
    for tensor in _external(read(path)):
        found = _span(tensor, path)
        if isinstance(found, str):
            raise _damaged(found, path)
        spans.append(found)
    overlap = _overlap(spans)
    if overlap:
        raise _damaged(overlap, path)
    return len(spans)


def misaligned(path: Path, step: str) -> list[Issue]:
    """Tensors that do not start at a multiple of their element's size. Readable, but not by every tool."""
    spans = [span for tensor in _external(read(path)) if isinstance(span := _span(tensor, path), _Span)]
    names = [f"{span.tensor} at byte {span.start:,}" for span in spans if span.start % span.itemsize]
    if not names:
        return []
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")
    return [Issue(step, "tooling", f"misaligned external weights ({len(names)})", evidence=shown,
                  cause="a tool that maps the file cannot use them in place")]  # fmt: skip


def locations(path: Path) -> list[str]:
    """Names of the weight files of the graph at ``path``, in order."""
    return sorted({_fields(tensor).get("location", "") for tensor in _external(read(path))})


def read(path: Path) -> onnx.ModelProto:
    """The graph without its external weights. Raises StepError when the file is no ONNX."""
    try:
        return onnx.load(path, load_external_data=False)
    except (DecodeError, OSError) as error:
        raise StepError(
            f"{path.name} is not an ONNX file: {error}", klass="tooling", evidence=str(path)
        ) from error


def _external(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    return (tensor for tensor in _get_all_tensors(model) if uses_external_data(tensor))


def _damaged(fault: str, path: Path) -> StepError:
    return StepError(
        fault,
        klass="tooling",
        cause="a partial copy, or the graph was moved without its weights",
        fix=f"put the whole file beside {path.name}",
        evidence=str(path),
    )


def _fields(tensor: onnx.TensorProto) -> Mapping[str, str]:
    return {item.key: item.value for item in tensor.external_data}


def _span(tensor: onnx.TensorProto, path: Path) -> _Span | str:
    """Where the tensor lies, or in words why it cannot lie there."""
    fields = _fields(tensor)
    location = fields.get("location", "")
    outside = f"tensor {quoted(tensor.name)}: external location {quoted(location)} is outside the folder of {path.name}"
    if not location or Path(location).is_absolute() or ".." in Path(location).parts:
        return outside
    size = needed(tensor)
    try:
        start, length = int(fields.get("offset", 0)), int(fields.get("length", size))
    except ValueError:
        return f"tensor {quoted(tensor.name)}: offset or length is no number"
    if start < 0 or length != size:
        return f"tensor {quoted(tensor.name)}: offset {start:,} and length {length:,}, its shape needs {size:,} bytes"
    file = path.parent / location
    if not file.resolve().is_relative_to(path.parent.resolve()):
        return f"{outside}: it is a link to {file.resolve()}"
    there = file.stat().st_size if file.is_file() else -1
    if there < start + length:
        what = f"{there:,} bytes" if there >= 0 else "not there"
        return (f"external data file {file.name}: {what}, tensor {quoted(tensor.name)} needs bytes"
                f" [{start:,}, {start + length:,})")  # fmt: skip
    return _Span(file, start, length, tensor.name, _itemsize(tensor))


def _itemsize(tensor: onnx.TensorProto) -> int:
    return int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


def _overlap(spans: list[_Span]) -> str:
    """Two tensors that share a part of their bytes; the very same bytes are one weight with two names."""
    distinct = {(span.file, span.start, span.length): span for span in spans if span.length}
    for one, other in pairwise(sorted(distinct.values())):
        if one.file == other.file and other.start < one.start + one.length:
            return (f"external data file {one.file.name}: tensor {quoted(one.tensor)} has bytes [{one.start:,},"
                    f" {one.start + one.length:,}) and tensor {quoted(other.tensor)} [{other.start:,},"
                    f" {other.start + other.length:,}): they overlap")  # fmt: skip
    return ""
