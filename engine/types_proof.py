"""Is the precision that was asked the precision that TensorRT was given? Read from the parsed network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.fused_plan import FusedLayer, types_of_nodes

_PLAN_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "int8", "fp8": "float8"}
_NETWORK_TYPES = {"FLOAT": "fp32", "HALF": "fp16", "BF16": "bf16", "INT8": "int8", "FP8": "fp8", "INT4": "int4"}
_CODES = ("int8", "fp8", "int4")


def is_quantised(kind: str) -> bool:
    return kind in _CODES


@dataclass(frozen=True)
class TypesProof:
    """``checked`` float tensors were found in the network; ``unseen`` were folded away or renamed there.

    ``wrong`` lists each tensor whose type is another one: (node, tensor, asked, found).
    """

    checked: int
    unseen: int
    by_type: Mapping[str, int]
    wrong: tuple[tuple[str, str, str, str], ...]

    @property
    def text(self) -> str:
        if not self.checked and not self.unseen:
            return "the graph has no float tensor"
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.by_type.items()))
        hidden = f"; {self.unseen} are not visible there" if self.unseen else ""
        return f"{self.checked} float tensors in the parsed network have the asked type ({kinds}){hidden}"


def prove(asked: Sequence[Mapping[str, Any]], network: Mapping[str, Any]) -> TypesProof:
    """Compare the lowered graph's typed tensors (``types.json``) with the parsed network's layers."""
    types = {
        tensor["name"]: tensor["dtype"]
        for layer in network["layers"]
        for tensor in layer["outputs"]
        if tensor
    }
    checked, unseen, by_type, wrong = 0, 0, dict[str, int](), []
    for node in asked:
        for output in node["outputs"]:
            dtype = types.get(output["name"])
            if dtype is None:
                unseen += 1
                continue
            found = _NETWORK_TYPES.get(dtype, dtype.lower())
            if found == output["type"]:
                checked += 1
                by_type[found] = by_type.get(found, 0) + 1
            else:
                wrong.append((node["node"], output["name"], output["type"], found))
    return TypesProof(checked, unseen, by_type, tuple(wrong))


@dataclass(frozen=True)
class PlanProof:
    """What the fused plan shows of one asked type: how many nodes' fused layers read, hold or write it.

    ``hidden`` nodes sit in a fused layer with no tensor of that type at its border, so the plan cannot
    tell; ``absent`` nodes were folded away or are not named in the plan. ``wide`` are nodes of a quantised type all of
    whose layers read other types only: they run in their float type. ``apart`` counts INT4 nodes whose weights a
    kernel of its own restores: the engine holds them in INT4, and yet they are read in the float type.
    """

    asked: str
    nodes: int
    shown: int
    hidden: int
    absent: int
    wide: tuple[str, ...] = ()
    apart: int = 0

    @property
    def shows(self) -> bool:
        """Whether the plan bears the type out: of a quantised one for every node, as its pairs are for nothing else."""
        if self.asked in _CODES:
            return self.shown == self.nodes
        return self.shown > 0 and self.hidden == 0

    @property
    def text(self) -> str:
        if self.asked in _CODES:
            rest = f", {self.absent} not named in the plan" if self.absent else ""
            inside = self.hidden - len(self.wide)
            rest += f", {inside} in regions that the plan does not open" if inside else ""
            rest += f", {self.apart} of them by way of a kernel that restores all weights" if self.apart else ""
            read = f"are in fused layers that read {self.asked}"
            what = "have weights held in int4" if self.asked == "int4" else read
            return f"{self.shown} of {self.nodes} nodes {what}{rest}"
        rest = f", {self.hidden} inside layers of other types" if self.hidden else ""
        rest += f", {self.absent} not named in the plan" if self.absent else ""
        return f"{self.shown} of {self.nodes} nodes are in fused layers that carry {_PLAN_TYPES[self.asked]}{rest}"


def prove_plan(asked: Sequence[Mapping[str, Any]], layers: Sequence[FusedLayer]) -> dict[str, PlanProof]:
    """Look for every asked type at the border of its nodes' fused layers; by ``base, fp16`` and so on."""
    homes = types_of_nodes(layers)
    groups: dict[tuple[str, str], list[str]] = {}
    behind = {node["node"]: node.get("behind", ()) for node in asked}
    for node in asked:
        name = f"overrides[{node['override']}]" if node["override"] >= 0 else "base"
        if node["type"] != "pair":
            groups.setdefault((name, node["type"]), []).append(node["node"])
    found = {}
    for (name, kind), members in groups.items():
        if kind in _CODES:
            found[f"{name}, {kind}"] = _quantised(kind, members, behind, layers)
            continue
        present = [homes[node] for node in members if node in homes]
        shown = sum(_PLAN_TYPES[kind] in home.inputs | home.outputs for home in present)
        hidden, absent = len(present) - shown, len(members) - len(present)
        found[f"{name}, {kind}"] = PlanProof(kind, len(members), shown, hidden, absent)
    return found


def _quantised(
    kind: str, members: Sequence[str], behind: Mapping[str, Sequence[str]], layers: Sequence[FusedLayer]
) -> PlanProof:
    """A quantised node is shown where a layer with it reads codes; of INT4, where its weights are held in it."""
    present = {node for layer in layers for node in layer.nodes}
    regions = {node for layer in layers if layer.is_region for node in layer.nodes}  # of these nothing can be told
    there = [name for name in members if name in present]
    unread = [name for name in there if not any(_reads(layer, name, kind, behind[name]) for layer in layers)]
    wide = [name for name in unread if name not in regions]
    apart = sum(
        not any(name in layer.nodes and not set(behind[name]).isdisjoint(layer.nodes) for layer in layers)
        for name in there if kind == "int4" and name not in unread
    )  # fmt: skip
    absent = len(members) - len(there)
    return PlanProof(kind, len(members), len(there) - len(unread), len(unread), absent, tuple(wide), apart)


def _reads(layer: FusedLayer, node: str, kind: str, behind: Sequence[str]) -> bool:
    if kind == "int4":
        held = any(tensor.dtype == "int4" for tensor in (*layer.inputs, *layer.constants))
        return held and not set(behind).isdisjoint(layer.nodes)
    if node not in layer.nodes:
        return False
    return any(tensor.dtype == _PLAN_TYPES[kind] for tensor in layer.inputs)
