"""MaxPool, AveragePool and LpPool along one axis after the other: one strided slice for each tap."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.parts import Parts
from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError

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

    def counts(self, with_pads: bool) -> np.ndarray:
        """How many taps of each window count."""
        if self.size is None:
            return np.array([self.kernel])
        low, high = (-self.before, self.size + self.after) if with_pads else (0, self.size)
        full = self.size + self.before + self.after + self.extra
        starts = np.arange(0, full - self.dilation * (self.kernel - 1), self.stride) - self.before
        taps = starts[:, None] + self.dilation * np.arange(self.kernel)
        return np.asarray(((taps >= low) & (taps < high)).sum(axis=1))


def apply(graph: gs.Graph, match: Captured) -> None:
    node, kind, shape = graph.nodes[0], match.dtypes["X"], match.shapes["X"]
    if len(node.outputs) > 1:
        raise RefusedError("the indices of the maxima are asked for")
    if kind not in (*KINDS, *EIGHT_BITS):
        raise RefusedError(f"X is {kind}; TensorRT pools {', '.join(KINDS)} only")
    axes, add, value = _axes(match, shape), Parts(graph), node.inputs[0]
    if kind in EIGHT_BITS:
        value, kind = add.cast(value, "float32"), "float32"
    elif all(axis.dilation == 1 for axis in axes) and match.attributes.get("p", 2) in (1, 2):
        raise RefusedError("TensorRT takes a pool without dilations as it is")
    result = POOLS[node.op](add, value, axes, match, np.dtype(kind))
    add.finish({"Y": result if kind == match.dtypes["X"] else add.cast(result, match.dtypes["X"])})


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


def _pool(add: Parts, value: gs.Tensor, axes: list[Axis], op: str, fill: np.ndarray) -> gs.Tensor:
    pads = [0, 0, *(axis.before for axis in axes), 0, 0, *(axis.after + axis.extra for axis in axes)]
    if any(pads):
        value = add("Pad", value, np.array(pads), fill)
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


def _max(add: Parts, value: gs.Tensor, axes: list[Axis], match: Captured, kind: np.dtype) -> gs.Tensor:
    return _pool(add, value, axes, "Max", np.array(ml_dtypes.finfo(kind).min, kind))


def _average(add: Parts, value: gs.Tensor, axes: list[Axis], match: Captured, kind: np.dtype) -> gs.Tensor:
    with_pads = bool(match.attributes["count_include_pad"])
    if not with_pads and any(axis.size is None and axis.before + axis.after for axis in axes):
        raise RefusedError("an axis with padding is dynamic, and with it the numbers that each mean is of")
    count = np.ones(())
    for axis in axes:
        count = count[..., None] * axis.counts(with_pads)
    divisor = np.array(count.flat[0], kind) if np.all(count == count.flat[0]) else count.astype(kind)
    return add("Div", _pool(add, value, axes, "Sum", np.array(0, kind)), divisor)


def _norm(add: Parts, value: gs.Tensor, axes: list[Axis], match: Captured, kind: np.dtype) -> gs.Tensor:
    p, size = match.attributes["p"], add("Abs", value)
    if p != 1:
        size = add("Mul", size, size) if p == 2 else add("Pow", size, np.array(p, kind))
    total = _pool(add, size, axes, "Sum", np.array(0, kind))
    if p == 1:
        return total
    return add("Sqrt", total) if p == 2 else add("Pow", total, np.array(1 / p, kind))


POOLS = {"MaxPool": _max, "AveragePool": _average, "LpPool": _norm}
