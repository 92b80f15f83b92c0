"""Weights of LSTM, GRU and RNN as ONNX orders them: directions stacked, gates in another order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from engine.graph.bits import Array
from engine.graph.folded import Difference, Explained

_NAME = re.compile(r"(?P<cell>(?:.*\.)?)weight_ih_l(?P<layer>\d+)$")
# PyTorch has i f g o and r z n, ONNX i o f c and z r h.
_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


def find(tensors: Mapping[str, Array], model: ir.Model, free: Mapping[str, Array]) -> Iterator[Explained]:
    """Every recurrent layer whose packed weights are in the file, or of which some are and some differ."""
    nodes = [node for node in model.graph.all_nodes() if node.op_type in _GATES]
    taken: set[str] = set()
    for name in tensors:
        match = _NAME.fullmatch(name)
        if match is None or name.endswith("_reverse"):
            continue
        best: Explained | None = None
        for node in nodes:
            if node.name in taken:
                continue
            made = _layer(tensors, match["cell"], match["layer"], node, free)
            if made is not None and (best is None or len(made.differences) < len(best.differences)):
                best, taken_by = made, node.name or ""
                if not made.differences:
                    break
        if best is not None:
            taken.add(taken_by)
            yield best


def _layer(
    tensors: Mapping[str, Array], cell: str, layer: str, node: ir.Node, free: Mapping[str, Array]
) -> Explained | None:
    got = [value.name if value is not None else None for value in node.inputs[1:4]]
    arrays = [free.get(name) if name else None for name in got]
    kinds = ("weight_ih", "weight_hh", "bias")
    names: list[str] = []
    differences: list[Difference] = []
    for kind, array in zip(kinds, arrays, strict=False):
        parts = ("bias_ih", "bias_hh") if kind == "bias" else (kind,)
        own = [f"{cell}{part}_l{layer}{end}" for end in ("", "_reverse") for part in parts]
        own = [item for item in own if item in tensors]
        if not own:
            continue
        if any(len(tensors[item]) % len(_GATES[node.op_type]) for item in own):
            return None  # a cell of another kind
        turned = [_turned(tensors[item], node.op_type) for item in own]
        if array is None or array.dtype != turned[0].dtype:
            return None
        rows = 2 if kind == "bias" else 1
        stacked = [np.concatenate(turned[at : at + rows]) for at in range(0, len(turned), rows)]
        expected = np.stack(stacked)
        if expected.shape != array.shape:
            return None
        names += own
        if expected.tobytes() != array.tobytes():
            differences += _apart(own, tensors, array, node.op_type, str(got[kinds.index(kind)]), rows)
    if not names:
        return None
    if differences and len({item[0] for item in differences}) == len(names):
        return None  # nothing of it is alike: another layer's node
    good = tuple(item for item in names if item not in {difference[0] for difference in differences})
    into = f"{node.op_type} {node.name}"
    return Explained(good, "repacked", into, tuple(item for item in got if item), tuple(differences))


def _turned(tensor: Array, op: str) -> Array:
    """Rows of ``tensor`` in the order of ONNX's gates."""
    gates = np.split(tensor, len(_GATES[op]))
    return np.concatenate([gates[gate] for gate in _GATES[op]])


def _apart(
    own: list[str], tensors: Mapping[str, Array], array: Array, op: str, constant: str, rows: int
) -> Iterator[Difference]:
    """The parts that differ, in PyTorch's own order so that an element can be named."""
    back = np.argsort(_GATES[op])
    for index, name in enumerate(own):
        part = array[index // rows]
        part = np.split(part, rows)[index % rows]
        gates = np.split(part, len(back))
        turned = np.concatenate([gates[gate] for gate in back])
        if turned.tobytes() != tensors[name].tobytes():
            yield name, constant, tensors[name], turned
