"""Where two computations of the same model part: the first tensor that differs, found with one instrumented run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from engine import runtime
from engine.graph import files, provenance
from engine.samples import Array

_JUMP = 8.0  # a tensor this much further off than all that it is computed from is where it begins
_ROUNDING = 1e-6  # relative error that rounding alone may bring


@dataclass(frozen=True)
class Divergence:
    """``expected`` and ``got`` are, as text, what tensor ``value`` holds at ``index``, where they are furthest apart.

    ``error`` is the Euclidean norm of the difference over that of the reference. ``after`` names the nearest
    earlier tensors that agree.
    """

    value: str
    node: str
    op: str
    module: str
    source: str
    error: float
    index: tuple[int, ...]
    expected: str
    got: str
    after: tuple[str, ...]


def tap(path: Path, feeds: Mapping[str, Array], names: Collection[str]) -> dict[str, Array]:
    """Run the graph at ``path`` once; the values called ``names`` that it computes, and its outputs."""
    model = files.load(path)
    there = {value.name: value for node in model.graph for value in node.outputs if value.name}
    outputs = {value.name for value in model.graph.outputs}
    for name in names:
        if name in there and name not in outputs:
            model.graph.outputs.append(there[name])
    tapped = path.with_name(f".{path.stem}-tapped.onnx")
    try:
        files.save(model, tapped)
        return runtime.run(runtime.session(tapped), feeds)
    finally:
        tapped.unlink(missing_ok=True)


def first(path: Path, reference: Mapping[str, Array], got: Mapping[str, Array]) -> Divergence | None:
    """The first tensor of the graph at ``path``, in the order of its nodes, at which ``got`` leaves ``reference``.

    Tensors are matched by name and shape. Rounding grows from node to node: the place is where the error
    jumps, not where it passes some number.
    """
    model = files.load(path)
    errors: dict[str, float] = {}  # of every value; one that cannot be compared has the worst of its inputs
    before: dict[str, frozenset[str]] = {}
    for node in model.graph:
        names = [value.name for value in node.inputs if value is not None and value.name in errors]
        inherited = max((errors[name] for name in names if name), default=0.0)
        agreeing: frozenset[str] = frozenset().union(*(before.get(name or "", ()) for name in names))
        for value in node.outputs:
            name = value.name or ""
            if not _comparable(reference.get(name), got.get(name)):
                errors[name], before[name] = inherited, agreeing
                continue
            errors[name], before[name] = _error(reference[name], got[name]), frozenset([name])
            if errors[name] > _JUMP * max(inherited, _ROUNDING):
                return _describe(node, name, reference[name], got[name], errors[name], agreeing)
    return None


def _comparable(one: Array | None, other: Array | None) -> bool:
    return one is not None and other is not None and one.shape == other.shape and one.size > 0


def _error(wanted: Array, actual: Array) -> float:
    first, second = _finite(wanted, actual)
    norm = float(np.linalg.norm(first))
    difference = float(np.linalg.norm(first - second))
    return difference / norm if norm else (0.0 if difference == 0.0 else float(np.finfo(np.float64).max))


def _finite(wanted: Array, actual: Array) -> tuple[Any, Any]:
    """Both as FP64; where both hold the same infinity, or both a NaN, both are zero."""
    first, second = wanted.astype(np.float64), actual.astype(np.float64)
    same = ~np.isfinite(first) & ((first == second) | (np.isnan(first) & np.isnan(second)))
    pair = (np.where(same, 0.0, side) for side in (first, second))
    first, second = (np.nan_to_num(side, nan=1e150, posinf=1e150, neginf=-1e150) for side in pair)
    return first, second


def _describe(
    node: ir.Node, name: str, wanted: Array, actual: Array, error: float, agreeing: Collection[str]
) -> Divergence:
    first, second = _finite(wanted, actual)
    index = np.unravel_index(int(np.abs(first - second).argmax()), wanted.shape)
    props = node.metadata_props
    return Divergence(
        name, node.name or "", node.op_type, props.get(provenance.MODULE, ""), props.get(provenance.SOURCE, ""),
        error, tuple(int(place) for place in index), f"{float(wanted[index]):.7g}", f"{float(actual[index]):.7g}",
        tuple(sorted(agreeing)),
    )  # fmt: skip
