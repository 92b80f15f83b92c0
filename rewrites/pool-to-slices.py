"""MaxPool, AveragePool and LpPool along one axis after the other: one strided slice for each tap."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part

KINDS = ("float32", "float16", "bfloat16", "float64")
EIGHT_BITS = ("int8", "uint8")  # exact in float32


class Axis(NamedTuple):
    """One spatial axis: ``extra`` is what ceil_mode adds behind the padding."""

    size: int | None
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    extra: int

    def places(self) -> np.ndarray:
        """[windows, taps]: where each tap lies, the padding in front taken for negative."""
        assert self.size is not None
        full = self.size + self.before + self.after + self.extra
        starts = np.arange(0, full - self.dilation * (self.kernel - 1), self.stride) - self.before
        return starts[:, None] + self.dilation * np.arange(self.kernel)

    def counts(self, with_pads: bool) -> np.ndarray:
        """How many taps of each window count."""
        if self.size is None:
            return np.array([self.kernel])
        low, high = (-self.before, self.size + self.after) if with_pads else (0, self.size)
        taps = self.places()
        return np.asarray(((taps >= low) & (taps < high)).sum(axis=1))


def apply(graph: gs.Graph, match: Captured) -> None:
    node, kind, shape = graph.nodes[0], match.dtypes["X"], match.shapes["X"]
    if kind not in (*KINDS, *EIGHT_BITS):
        raise RefusedError(f"X is {kind}; TensorRT pools {', '.join(KINDS)} only")
    axes, add, value = _axes(match, shape), Part(graph), node.inputs[0]
    if kind in EIGHT_BITS:
        value, kind = add.cast(value, "float32"), "float32"
    elif (
        len(node.outputs) == 1
        and all(axis.dilation == 1 for axis in axes)
        and match.attributes.get("p", 2) in (1, 2)
    ):
        raise RefusedError("TensorRT takes a pool without dilations as it is")
    results = {}
    if len(node.outputs) > 1:
        result, results["Indices"] = _with_indices(add, value, axes, match, np.dtype(kind))
    else:
        result = POOLS[node.op](add, value, axes, match, np.dtype(kind))
    results["Y"] = result if kind == match.dtypes["X"] else add.cast(result, match.dtypes["X"])
    add.finish(results)


def _axes(match: Captured, shape: tuple[Any, ...]) -> list[Axis]:
    count, given = len(shape) - 2, match.attributes
    kernel = given["kernel_shape"]
    strides = given.get("strides") or [1] * count
    dilations = given.get("dilations") or [1] * count
    pads, auto = given.get("pads") or [0] * 2 * count, given.get("auto_pad") or "NOTSET"
    auto = auto.decode() if isinstance(auto, bytes) else auto
    made = []
    for i, size in enumerate(shape[2:]):
        known = size if isinstance(size, int) else None
        before, after, reach = pads[i], pads[i + count], dilations[i] * (kernel[i] - 1) + 1
        if auto.startswith("SAME"):
            total = 0 if strides[i] == 1 else None
            if known is None and total is None:
                raise RefusedError(
                    f"axis {i + 2} of X is dynamic ({size}), and with it the padding of {auto}"
                )
            windows = -(-known // strides[i]) if known is not None else 0
            total = reach - 1 if known is None else max((windows - 1) * strides[i] + reach - known, 0)
            small, large = total // 2, total - total // 2
            before, after = (small, large) if auto == "SAME_UPPER" else (large, small)
        elif auto == "VALID":
            before = after = 0
        extra = 0
        if given.get("ceil_mode") and strides[i] > 1 and auto == "NOTSET":
            if known is None:
                raise RefusedError(f"axis {i + 2} of X is dynamic ({size}), and with it what ceil_mode adds")
            windows = -(-(known + before + after - reach) // strides[i]) + 1
            if (windows - 1) * strides[i] >= known + before:
                windows -= 1  # it would start in the padding
            extra = max((windows - 1) * strides[i] + reach - known - before - after, 0)
        made.append(Axis(known, kernel[i], strides[i], dilations[i], before, after, extra))
    return made


def _pad(add: Part, value: gs.Tensor, axes: list[Axis], fill: np.ndarray) -> gs.Tensor:
    pads = [0, 0, *(axis.before for axis in axes), 0, 0, *(axis.after + axis.extra for axis in axes)]
    return add("Pad", value, np.array(pads), fill) if any(pads) else value


def _with_indices(
    add: Part, value: gs.Tensor, axes: list[Axis], match: Captured, kind: np.dtype
) -> tuple[gs.Tensor, gs.Tensor]:
    """Windows side by side along a last axis; the greatest of each, and where in the whole of X the first lies."""
    batch, channels, *sizes = match.shapes["X"]
    if not all(isinstance(size, int) for size in (channels, *sizes)):
        raise RefusedError("X has dynamic axes after the first, and the indices count over all of them")
    source = value
    value = _pad(add, value, axes, np.array(-np.inf, kind))
    windows = [axis.places() for axis in axes]
    for number, (axis, places) in enumerate(zip(axes, windows, strict=True)):
        value = add("Gather", value, places + axis.before, axis=2 + 2 * number)
    rank, shape = len(axes), [len(places) for places in windows]
    order = [0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 3 + 2 * rank, 2)]
    taps = int(np.prod([axis.kernel for axis in axes]))
    spread = add("Reshape", add("Transpose", value, perm=order), np.array([-1, channels, *shape, taps]))
    best = add("ArgMax", spread, axis=-1, keepdims=0)
    outermost = match.attributes["storage_order"] == 0
    steps = np.cumprod([1, *(sizes[:0:-1] if outermost else sizes[:-1])])
    steps = steps[::-1] if outermost else steps
    # the place of a tap is that of its window's start plus that of the tap within the window
    start = sum(np.ix_(*[p[:, 0] * s for p, s in zip(windows, steps, strict=True)]), np.zeros((), np.int64))
    inside = sum(
        np.ix_(*[(p[0] - p[0, 0]) * s for p, s in zip(windows, steps, strict=True)]), np.zeros((), np.int64)
    )
    maps = np.arange(channels).reshape(-1, *[1] * rank) * int(np.prod(sizes)) + start
    indices = add("Add", add("Gather", inside.reshape(-1), best), maps)
    if batch != 1:
        first = np.arange(batch) if isinstance(batch, int) else _counted(add, source)
        stride = np.array(channels * int(np.prod(sizes)))
        if isinstance(first, np.ndarray):
            offset = (first * stride).reshape(-1, *[1] * (rank + 1))
        else:
            offset = add("Reshape", add("Mul", first, stride), np.array([-1, *[1] * (rank + 1)]))
        indices = add("Add", indices, offset)
    maxima = _pool(add, source, axes, "Max", np.array(ml_dtypes.finfo(kind).min, kind))
    return maxima, indices


def _counted(add: Part, value: gs.Tensor) -> gs.Tensor:
    size = add("Gather", add("Shape", value), np.array(0))
    return add("Range", np.array(0), size, np.array(1))


def _pool(add: Part, value: gs.Tensor, axes: list[Axis], op: str, fill: np.ndarray) -> gs.Tensor:
    value = _pad(add, value, axes, fill)
    for at, axis in enumerate(axes, start=2):
        if axis.kernel == 1 and axis.stride == 1:
            continue
        taps = []
        for tap in range(axis.kernel):
            left = (axis.kernel - 1 - tap) * axis.dilation
            start, end = (
                np.array([tap * axis.dilation]),
                np.array([-left if left else np.iinfo(np.int64).max]),
            )
            taps.append(add("Slice", value, start, end, np.array([at]), np.array([axis.stride])))
        value = add(op, *taps) if len(taps) > 1 else taps[0]
    return value


def _max(add: Part, value: gs.Tensor, axes: list[Axis], match: Captured, kind: np.dtype) -> gs.Tensor:
    return _pool(add, value, axes, "Max", np.array(ml_dtypes.finfo(kind).min, kind))


def _average(add: Part, value: gs.Tensor, axes: list[Axis], match: Captured, kind: np.dtype) -> gs.Tensor:
    with_pads = bool(match.attributes["count_include_pad"])
    if not with_pads and any(axis.size is None and axis.before + axis.after for axis in axes):
        raise RefusedError("an axis with padding is dynamic, and with it the numbers that each mean is of")
    count = np.ones(())
    for axis in axes:
        count = count[..., None] * axis.counts(with_pads)
    divisor = np.array(count.flat[0], kind) if np.all(count == count.flat[0]) else count.astype(kind)
    return add("Div", _pool(add, value, axes, "Sum", np.array(0, kind)), divisor)


def _norm(add: Part, value: gs.Tensor, axes: list[Axis], match: Captured, kind: np.dtype) -> gs.Tensor:
    p, size = match.attributes["p"], add("Abs", value)
    if p != 1:
        size = add("Mul", size, size) if p == 2 else add("Pow", size, np.array(p, kind))
    total = _pool(add, size, axes, "Sum", np.array(0, kind))
    if p == 1:
        return total
    return add("Sqrt", total) if p == 2 else add("Pow", total, np.array(1 / p, kind))


POOLS = {"MaxPool": _max, "AveragePool": _average, "LpPool": _norm}
