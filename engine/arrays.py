"""Arrays in .npz and .safetensors files: what is in them, without numpy; and one of them, with it.

Formats: ``.npz`` is a zip of ``.npy`` members (numpy.lib.format); safetensors starts with the length of a JSON
header as eight little-endian bytes. Nothing pickled is ever read.
"""

from __future__ import annotations

import ast
import json
import math
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

MAX_HEADER = 100_000_000  # bytes; what safetensors itself allows
MAX_NPY_HEADER = 65_535  # bytes; more only for types with thousands of fields
_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32", "I16": "int16",
          "I8": "int8", "U8": "uint8", "BOOL": "bool"}  # fmt: skip
_SIZES = {"float64": 8, "float32": 4, "float16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
          "uint8": 1, "bool": 1}  # fmt: skip
_CODES = {"f8": "float64", "f4": "float32", "f2": "float16", "i8": "int64", "i4": "int32", "i2": "int16",
          "i1": "int8", "u1": "uint8", "b1": "bool"}  # fmt: skip
_BROKEN = (zipfile.BadZipFile, zlib.error, json.JSONDecodeError, UnicodeDecodeError, SyntaxError, KeyError, TypeError,
           AttributeError, EOFError, RuntimeError, MemoryError)  # fmt: skip


@dataclass(frozen=True)
class Header:
    """``dtype`` is numpy's name, or the file's own word for a type that no input can have.

    ``start`` is where a safetensors array begins in its file.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int = 0

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * _SIZES.get(self.dtype, 0)


def headers(path: Path) -> dict[str, Header]:
    """Type and shape of every array by name. Raises ValueError with the reason for a broken file, or OSError."""
    try:
        return _npz(path) if path.suffix == ".npz" else _safetensors(path)
    except _BROKEN as error:
        raise ValueError(f"not a {path.suffix} file: {error}") from None


def _npz(path: Path) -> dict[str, Header]:
    found = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                with archive.open(name) as member:
                    found[name.removesuffix(".npy")] = _npy(member)
    return found


def _npy(stream: IO[bytes]) -> Header:
    magic = stream.read(8)
    if magic[:6] != b"\x93NUMPY":
        raise ValueError("a member is no .npy array")
    width = 2 if magic[6] == 1 else 4
    length = int.from_bytes(stream.read(width), "little")
    if length > MAX_NPY_HEADER:
        raise ValueError("a member's header is too long")
    fields = ast.literal_eval(stream.read(length).decode("utf-8"))
    code = str(fields["descr"])
    return Header(_CODES.get(code.lstrip("<>|="), code), tuple(int(size) for size in fields["shape"]))


def _safetensors(path: Path) -> dict[str, Header]:
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 0 < length <= min(MAX_HEADER, size - 8):
            raise ValueError("not a .safetensors file: the header does not fit into it")
        fields: dict[str, Any] = json.loads(stream.read(length))
    fields.pop("__metadata__", None)
    found = {}
    for name, item in fields.items():
        start, end = (int(place) + 8 + length for place in item["data_offsets"])
        header = Header(_NAMES.get(item["dtype"], str(item["dtype"])), tuple(map(int, item["shape"])), start)
        if not 8 + length <= start <= end <= size or (header.bytes and end - start != header.bytes):
            raise ValueError(f"'{name}' does not fit into the file: it was cut off")
        found[name] = header
    return found


def load(path: Path, key: str) -> Any:
    """One array. Raises ValueError or OSError; see :func:`headers`."""
    import numpy as np

    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            return archive[key]
    header = headers(path)[key]
    return np.memmap(path, np.dtype(header.dtype).newbyteorder("<"), "r", header.start, header.shape)


def misfit(header: Header, dtype: str, shape: tuple[int, ...]) -> str:
    """Why an array cannot give values of ``dtype`` with up to ``shape`` elements; empty when it can."""
    if header.dtype not in _SIZES:
        return f"its type is {header.dtype}, which no input can have"
    if (header.dtype.startswith("float")) != (dtype.startswith("float")):
        return f"its type is {header.dtype}; the input is {dtype}"
    if len(header.shape) != len(shape):
        return f"its shape is {list(header.shape)}; the input has {len(shape)} dimensions"
    if any(there < wanted for there, wanted in zip(header.shape, shape, strict=True)):
        return f"its shape is {list(header.shape)}; the largest shape needs {list(shape)}"
    return ""
