"""Does TensorRT do what each node says? Modes of the parsed network's layers against the nodes' attributes.

Importers have taken one mode for another without a word (GridSample's ``linear`` as nearest): same shapes,
other numbers. Read from the parsed network, so that no GPU is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Wrong:
    """One property of a layer that is not what its node says."""

    node: str
    op: str
    name: str
    asked: Any
    found: Any


@dataclass(frozen=True)
class ModesProof:
    """``checked`` nodes have a layer with the modes that they ask for; ``unseen`` have none of that kind there."""

    checked: int
    unseen: int
    wrong: tuple[Wrong, ...]

    @property
    def text(self) -> str:
        if not self.checked and not self.unseen:
            return "no node whose mode could be compared"
        hidden = f"; {self.unseen} are not visible there" if self.unseen else ""
        return f"{self.checked} nodes have the asked mode in the parsed network{hidden}"


def prove(asked: Sequence[Mapping[str, Any]], network: Mapping[str, Any]) -> ModesProof:
    """Compare the ``mode`` of the lowered graph's nodes (``types.json``) with the layers that carry their names.

    A node may become several layers, or layers of another kind; then it counts as unseen, not as wrong.
    """
    layers: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for layer in network["layers"]:
        layers.setdefault((layer["metadata"], layer["type"]), []).append(layer["properties"])
    checked, unseen, wrong = 0, 0, list[Wrong]()
    for node in asked:
        if "mode" not in node:
            continue
        found = layers.get((f"[ONNX Layer: {node['node']}]", node["mode"]["layer"]), [])
        if len(found) != 1:
            unseen += 1
            continue
        faults = [
            Wrong(node["node"], node["op"], name, value, found[0][name])
            for name, value in node["mode"]["properties"].items()
            if found[0].get(name) is not None and found[0][name] != value
        ]
        wrong += faults
        checked += not faults
    return ModesProof(checked, unseen, tuple(wrong))
