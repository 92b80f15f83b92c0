"""Which values of a lowered graph never leave one fused layer of the build's plan, and so need not be rounded.

The plan names the ONNX nodes of each layer, not the tensors inside it. A value counts as inside when its node and
every node that reads it went into one and the same layer, whole. All others are rounded: a node split between layers
may hand the value from one to the other, and of a node that is not named nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from engine.fused_plan import FusedLayer
from engine.precision.formats import LOW

_BLIND = frozenset({"Shape", "Size"})  # they read no numbers
_Homes = frozenset[int]


@dataclass(frozen=True)
class Inside:
    """``values`` are inside one layer. The other values in a low type are rounded: ``border`` of them because they may
    pass from layer to layer or the graph hands them out, ``hidden`` because the plan does not show where they go.
    """

    values: frozenset[str]
    border: int
    hidden: int


def inside(model: ir.Model, layers: Sequence[FusedLayer]) -> Inside:
    """The values of ``model`` that are inside one layer. ``layers`` must be all of the plan: a layer left out may
    share a node with another one.
    """
    homes = _homes(layers)
    found, border, hidden = set[str](), 0, 0
    for node in model.graph:
        home = homes.get(node.name or "")
        for value in node.outputs:
            if value.dtype not in LOW or not value.name:
                continue
            readers = [user for user, _ in value.uses() if user.op_type not in _BLIND]
            lived = [homes.get(user.name or "") for user in readers]
            if not home or not all(lived):
                hidden += 1
            elif (
                readers
                and not value.is_graph_output()
                and _whole(home, layers)
                and all(one == home for one in lived)
            ):
                found.add(value.name)
            else:
                border += 1
    return Inside(frozenset(found), border, hidden)


def _homes(layers: Sequence[FusedLayer]) -> Mapping[str, _Homes]:
    """For each named node the numbers of its layers, where each of these is one kernel or may be taken for one."""
    found: dict[str, set[int]] = {}
    blurred = set[str]()
    for index, layer in enumerate(layers):
        for node in layer.nodes:
            found.setdefault(node, set()).add(index)
        if layer.is_region:
            blurred |= set(layer.nodes)
    return {node: frozenset(numbers) for node, numbers in found.items() if node not in blurred}


def _whole(home: _Homes, layers: Sequence[FusedLayer]) -> bool:
    """Whether a node lies in one layer only, once for each profile."""
    profiles = [layers[index].profile for index in home]
    return len(profiles) == len(set(profiles))
