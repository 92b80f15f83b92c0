"""STFT with fixed frames as one convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules import fourier
from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part, array_of


def apply(graph: gs.Graph, match: Captured) -> None:
    """The windowed sines and cosines are kernels, and the frame step is the stride."""
    part = Part(graph)
    signal, step, window, frame = (part.input(index) for index in range(4))
    shape = match.shapes["signal"]
    if shape is None:
        raise RefusedError("the rank of the signal is not known from the graph")
    parts = shape[2] if len(shape) == 3 else 1
    onesided = bool(match.attributes["onesided"])
    if parts not in (1, 2) or (parts == 2 and onesided):
        raise RefusedError(f"a signal of {parts} parts has no {'one-sided ' if onesided else ''}transform")
    length = _length(window, match.shapes.get("window"), frame)
    stride = array_of(step)
    if stride is None:
        raise RefusedError("frame_step is computed in the graph; a convolution needs it as a constant")
    basis = fourier.matrix(length, length, parts, False, onesided)  # [time, parts, bins, 2]
    bins = basis.shape[2]
    kernel = basis.transpose(2, 3, 1, 0).reshape(2 * bins, parts, length).astype(match.dtypes["signal"])
    moved = _channels(part, signal, len(shape), parts)
    found = part("Conv", moved, _weighted(part, kernel, window), strides=[int(stride.reshape(()))])
    frames = part("Transpose", found, perm=[0, 2, 1])
    part.result(0, "Reshape", frames, np.array([0, 0, bins, 2]))


def _length(window: Any, shape: Any, frame: Any) -> int:
    known = array_of(frame)
    if frame is not None and known is None:
        raise RefusedError("frame_length is computed in the graph; a convolution needs it as a constant")
    size = shape[0] if window is not None and shape else None
    length = size if known is None else int(known.reshape(()))
    if not isinstance(length, int) or (window is not None and size != length):
        raise RefusedError(f"the length of a frame is {length} and that of its window {size}")
    return length


def _channels(part: Part, signal: Any, rank: int, parts: int) -> Any:
    """[batch, parts, time]"""
    if rank == 2:
        return part("Unsqueeze", signal, np.array([1]))
    if parts == 1:
        return part("Reshape", signal, np.array([0, 1, -1]))
    return part("Transpose", signal, perm=[0, 2, 1])


def _weighted(part: Part, kernel: np.ndarray, window: Any) -> Any:
    known = array_of(window)
    if window is None:
        return kernel
    return part("Mul", kernel, window) if known is None else kernel * known
