"""ScatterElements and ScatterND with a reduction: each update is compared with each place it could go to."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part

KINDS = ("float32", "float16", "bfloat16", "float64", "int32", "int64")
REDUCE = {"add": ("Sum", "Add"), "mul": ("Prod", "Mul"), "max": ("Max", "Max"), "min": ("Min", "Min")}
Shape = tuple[Any, ...]


def apply(graph: gs.Graph, match: Captured) -> None:
    kind = match.dtypes["data"]
    if kind not in KINDS:
        raise RefusedError(f"data is {kind}; TensorRT reduces {', '.join(KINDS)} only")
    made = _elements if graph.nodes[0].op == "ScatterElements" else _slices
    made(Part(graph), graph.nodes[0], match)


def _elements(add: Part, node: gs.Node, match: Captured) -> None:
    shape, part = match.shapes["data"], match.shapes["indices"]
    data, indices, updates = node.inputs
    at = match.attributes["axis"] % len(shape)
    pads = np.zeros((2, len(shape)), np.int64)
    for axis, (whole, some) in enumerate(zip(shape, part, strict=True)):
        if axis == at or (whole == some and whole is not None):
            continue
        if not (isinstance(whole, int) and isinstance(some, int)):
            raise RefusedError(f"axis {axis} of data ({whole}) and of indices ({some}) need not be the same")
        pads[1, axis] = whole - some
    after = np.arange(1, len(shape) - at + 1)
    indices = _not_negative(add, indices, match, _size(add, data, shape, at))
    hits = add("Equal", _unsqueeze(add, indices, [at]), _unsqueeze(add, _range(add, data, shape, at), after))
    made, combine = _reduced(add, hits, _unsqueeze(add, updates, [at]), at + 1, match)
    if pads.any():
        made = add("Pad", made, pads.reshape(-1), _neutral(match))
    add.finish({"output": add(combine, data, made)})


def _slices(add: Part, node: gs.Node, match: Captured) -> None:
    """Data as [places, rest], updates as [updates, rest], each index as the number of a place."""
    shape, (data, indices, updates) = match.shapes["data"], node.inputs
    depth = match.shapes["indices"][-1]
    if not isinstance(depth, int):
        raise RefusedError("the last axis of indices is dynamic")
    inner, rest = shape[1:depth], shape[depth:]
    if not all(isinstance(size, int) for size in (*inner, *rest)):
        raise RefusedError(f"data has dynamic axes after the first: {list(shape)}")
    width, steps = int(np.prod(rest)), np.cumprod([1, *inner[::-1]])[::-1].astype(np.int64)
    first = _size(add, data, shape, 0)
    sizes = first if depth == 1 else _joined(add, first, np.array(inner, np.int64))
    indices = _not_negative(add, indices, match, sizes)
    if depth > 1:
        indices = add("ReduceSum", add("Mul", indices, steps), np.array([-1]), keepdims=0)
    flat = add("Reshape", indices, np.array([1, -1]))
    if isinstance(shape[0], int):
        places = np.arange(shape[0] * int(steps[0]), dtype=np.int64)[:, None]
    else:
        count = add("Mul", first, np.array([steps[0]]))
        places = _unsqueeze(add, _counted(add, count), [1])
    hits = add("Equal", flat, places)
    if width != 1:
        hits = _unsqueeze(add, hits, [2])
        updates = add("Reshape", updates, np.array([1, -1, width]))
    else:
        updates = add("Reshape", updates, np.array([1, -1]))
    made, combine = _reduced(add, hits, updates, 1, match)
    if len(shape) > 1:
        made = add("Reshape", made, np.array([d if isinstance(d, int) else -1 for d in shape]))
    add.finish({"output": add(combine, data, made)})


def _reduced(
    add: Part, hits: gs.Tensor, updates: gs.Tensor, axis: int, match: Captured
) -> tuple[gs.Tensor, str]:
    reduce, combine = REDUCE[match.attributes["reduction"]]
    spread = add("Where", hits, updates, _neutral(match))
    if match.opset < 18 and reduce != "Sum":
        return add(f"Reduce{reduce}", spread, axes=[axis], keepdims=0), combine
    return add(f"Reduce{reduce}", spread, np.array([axis]), keepdims=0), combine


def _neutral(match: Captured) -> np.ndarray:
    """What the reduction of no update gives."""
    reduction, kind = match.attributes["reduction"], np.dtype(match.dtypes["data"])
    if reduction in ("add", "mul"):
        return np.array(int(reduction == "mul"), kind)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return np.array(limits.min if reduction == "max" else limits.max, kind)
    return np.array(-np.inf if reduction == "max" else np.inf, kind)


def _not_negative(add: Part, indices: gs.Tensor, match: Captured, size: gs.Tensor | np.ndarray) -> gs.Tensor:
    if match.dtypes["indices"] != "int64":
        indices = add.cast(indices, "int64")
    below = add("Less", indices, np.array(0, np.int64))
    return add("Where", below, add("Add", indices, size), indices)


def _size(add: Part, data: gs.Tensor, shape: Shape, axis: int) -> gs.Tensor | np.ndarray:
    """The size of an axis as a tensor of one element."""
    if isinstance(shape[axis], int):
        return np.array([shape[axis]])
    return add("Gather", add("Shape", data), np.array([axis]))


def _range(add: Part, data: gs.Tensor, shape: Shape, axis: int) -> gs.Tensor | np.ndarray:
    if isinstance(shape[axis], int):
        return np.arange(shape[axis])
    return _counted(add, _size(add, data, shape, axis))


def _counted(add: Part, count: gs.Tensor) -> gs.Tensor:
    stop = add("Squeeze", count, np.array([0]))
    return add("Range", np.array(0), stop, np.array(1))


def _joined(add: Part, first: gs.Tensor | np.ndarray, rest: np.ndarray) -> gs.Tensor | np.ndarray:
    if isinstance(first, np.ndarray):
        return np.concatenate([first, rest])
    return add("Concat", first, rest, axis=0)


def _unsqueeze(add: Part, value: gs.Tensor | np.ndarray, axes: Any) -> gs.Tensor | np.ndarray:
    if isinstance(value, np.ndarray):
        return np.expand_dims(value, tuple(int(axis) for axis in axes))
    return add("Unsqueeze", value, np.array(axes, np.int64))
