"""TfIdfVectorizer of integers: every window of the sequence is compared with every n-gram of the pool."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part


def apply(graph: gs.Graph, match: Captured) -> None:
    given, length = match.attributes, match.shapes["X"][-1]
    if given["mode"] not in ("TF", b"TF"):
        raise RefusedError(f"mode is {given['mode']}; only TF is known")
    if not given["pool_int64s"]:
        raise RefusedError("the pool holds no integers")
    if not isinstance(length, int):
        raise RefusedError(f"the length of the sequence is dynamic ({length})")
    indexes = given["ngram_indexes"]
    if len(set(indexes)) < len(indexes):
        raise RefusedError("ngram_indexes holds a number twice")
    add, value = Part(graph), graph.nodes[0].inputs[0]
    counts, known = [], []
    for size, grams, ids in _pool(given):
        if given["min_gram_length"] <= size <= given["max_gram_length"] and len(ids):
            windows = _windows(length, size, given["max_skip_count"])
            if len(windows):
                grams = grams.astype(match.dtypes["X"])
                counts.append(_counted(add, value, windows, grams, match))
                known += ids
    if not counts:
        raise RefusedError("no n-gram of the pool fits into the sequence")
    last = len(match.shapes["X"]) - 1
    column = add("Concat", *counts, axis=last) if len(counts) > 1 else counts[0]
    missing = [index for index in range(max(indexes) + 1) if index not in known]
    if missing:
        some = add("Gather", column, np.zeros(len(missing), np.int64), axis=last)
        column = add("Concat", column, add("Sub", some, some), axis=last)
    add.finish({"Y": add("Gather", column, np.argsort([*known, *missing]), axis=last)})


def _pool(given: dict) -> list[tuple[int, np.ndarray, list[int]]]:
    """For each length n: n, the n-grams as [count, n], and their places in the output."""
    starts, pool, made, place = given["ngram_counts"], np.array(given["pool_int64s"]), [], 0
    for size, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), start=1):
        grams = pool[start:end].reshape(-1, size)
        made.append((size, grams, list(given["ngram_indexes"][place : place + len(grams)])))
        place += len(grams)
    return made


def _windows(length: int, size: int, skips: int) -> np.ndarray:
    """[windows, n]: the places of each window, of all distances; single numbers count once."""
    found = []
    for distance in range(1, (skips if size > 1 else 0) + 2):
        starts = np.arange(max(length - distance * (size - 1), 0))
        found.append(starts[:, None] + distance * np.arange(size))
    return np.concatenate(found)


def _counted(
    add: Part, value: gs.Tensor, windows: np.ndarray, grams: np.ndarray, match: Captured
) -> gs.Tensor:
    rank = len(match.shapes["X"])
    batch = [-1] if rank > 1 else []
    seen = add("Gather", value, windows, axis=rank - 1)
    seen = add("Reshape", seen, np.array([*batch, 1, *windows.shape]))
    same = add.cast(add("Equal", seen, grams[:, None, :]), "float32")
    whole = _reduced(add, "ReduceMin", same, rank + 1, match.opset < 18)
    return _reduced(add, "ReduceSum", whole, rank, match.opset < 13)


def _reduced(add: Part, op: str, value: gs.Tensor, axis: int, attribute: bool) -> gs.Tensor:
    if attribute:
        return add(op, value, axes=[axis], keepdims=0)
    return add(op, value, np.array([axis]), keepdims=0)
