"""Read the fused plan that TensorRT prints into a verbose, detailed build log: no GPU is needed for it.

Two forms are understood. TensorRT 10 and TensorRT-RTX print ``Name: ..., LayerType: ..., Inputs: [ {...} ],
Constants: [...], Outputs: [...], TacticName: ..., Metadata: [ONNX Layer: ...]``. Older ones print
``Layer(Kind): name, Tactic: ..., tensor[Type(shape)] -> tensor[Type(shape)]``, where ONNX nodes are known
only from the layer's name, and a ``{ForeignNode[first...last]}`` says nothing of the nodes in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# How logs write types -> names of ONNX types. Others are kept as written.
_TYPES = {
    "Float": "float32", "FP32": "float32", "Half": "float16", "FP16": "float16", "BFloat16": "bfloat16",
    "BF16": "bfloat16", "FP8": "float8", "FP4": "float4", "Int4": "int4", "INT4": "int4", "Int8": "int8",
    "INT8": "int8", "Int32": "int32", "INT32": "int32", "Int64": "int64", "INT64": "int64", "Bool": "bool",
    "BOOL": "bool", "UInt8": "uint8", "UINT8": "uint8",
}  # fmt: skip

_BEGIN = re.compile(r"(^|\s)(Engine Layer Information|Layers):\s*$")
_END = re.compile(r"^\s*(I/O Tensors|Bindings|Engine Metadata):?")
_LOG_PREFIX = re.compile(r"^(?:\[[^\]]*\]\s*)*(?:(?:Severity\.)?[A-Z_]{4,}:? )?")
_LAYER = re.compile(r"^Name: (?P<name>.*?), LayerType: (?P<kind>[^,]*)(?:, (?P<rest>.*))?$")
_OLD_LAYER = re.compile(r"^Layer\((?P<kind>[^)]*)\): (?P<name>.*?), Tactic: (?P<tactic>\S*?),(?P<rest>.*)$")
_OLD_TENSOR = re.compile(
    r"(?:^|, )(?P<name>.+?) ?[\[(](?P<type>[A-Z]\w*)(?P<shape>\([^)]*\)|\[[^\]]*\])[\])]"
)
_TENSOR = re.compile(r"\{ Name: (?P<name>.*?), (?P<rest>(?:Location|Dimensions): .*?) ?\}(?=[,\]\s]|$)")
_DIMENSIONS = re.compile(r"Dimensions: \[(?P<shape>[^\]]*)\]")
_TYPE = re.compile(r"(?:Format/)?Datatype: (?P<type>\w+)")
_TACTIC = re.compile(r"TacticName: (?P<tactic>.*?)(?=, [A-Z]\w+: |$)")
_NODE = re.compile(r"\[ONNX Layer: (?P<node>.*?)(?: \| (?P<stack>.*?))?\](?=\[|\s|$|\x1e)")
_PROFILE = re.compile(r" \[profile (?P<number>\d+)\]")
_NO_NODES = re.compile(r"ForeignNode\[|^Reformatting CopyNode")
_NO_NODE = re.compile(r"^\(Unnamed Layer|^shuffle_between")
# Kernels of fused attention: _gemm_mha_v2 and _gemv_mha_v1, and the older fmha_v2_... family.
_ATTENTION = re.compile(r"^_*(?:mye\d+)?_?(?:gem[mv]_mha_v\d|f?mha_v\d|fmha_)")


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of the plan; ``dtype`` is an ONNX type name, -1 in ``shape`` a dynamic dimension."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class FusedLayer:
    """One kernel launch or so: what it reads and writes and which ONNX ``nodes`` it stands for.

    What happens inside it, for instance sums in a wider type, the plan does not show.
    """

    name: str
    kind: str
    inputs: tuple[TensorInfo, ...] = ()
    outputs: tuple[TensorInfo, ...] = ()
    constants: tuple[TensorInfo, ...] = ()
    nodes: tuple[str, ...] = ()
    tactic: str = ""
    profile: int = 0

    @property
    def is_region(self) -> bool:
        """Whether it stands for a whole region of the graph in any number of kernels, of which it shows the border."""
        return "ForeignNode[" in self.name or self.kind == "Myelin"

    @property
    def is_attention(self) -> bool:
        """Whether a fused attention kernel was chosen; judged by the kernel, not by ONNX names."""
        return bool(_ATTENTION.match(self.tactic) or _ATTENTION.match(self.name))


@dataclass(frozen=True)
class FusedPlan:
    """The layers in the order printed, and how many lines among them could not be read."""

    layers: tuple[FusedLayer, ...]
    unknown_lines: int = 0


@dataclass(frozen=True)
class NodeTypes:
    """Types at the border of the fused layers that an ONNX node went into, and those layers' names."""

    inputs: frozenset[str]
    outputs: frozenset[str]
    layers: tuple[str, ...]


def read_plan(verbose_log: Path) -> FusedPlan:
    """Read the plan from a build log, line by line; no layers if the log has none."""
    with verbose_log.open(encoding="utf-8", errors="replace") as lines:
        return parse_plan(lines)


def parse_plan(lines: Iterable[str]) -> FusedPlan:
    """Take the layers out of a log's lines. Where several plans are printed, the last one counts."""
    layers: list[FusedLayer] = []
    unknown, inside = 0, False
    for raw in lines:
        line = raw.rstrip("\r\n")
        if _BEGIN.search(line):
            layers, unknown, inside = [], 0, True
            continue
        if not inside or not line.strip():
            continue
        bare = _LOG_PREFIX.sub("", line)
        layer = _parse_layer(bare)
        if layer is not None:
            layers.append(layer)
        elif _END.match(bare) or bare != line:
            inside = False
        else:
            unknown += 1
    return FusedPlan(tuple(layers), unknown)


def _parse_layer(line: str) -> FusedLayer | None:
    found = _LAYER.match(line)
    if found:
        return _new_layer(found["name"], found["kind"], found["rest"] or "")
    found = _OLD_LAYER.match(line)
    if found:
        return _old_layer(found["name"], found["kind"], found["tactic"], found["rest"])
    return None


def _new_layer(name: str, kind: str, rest: str) -> FusedLayer:
    tactic = _TACTIC.search(rest)
    profile = _PROFILE.search(f"{name} {rest}")
    _, _, metadata = rest.partition("Metadata:")
    return FusedLayer(
        name=name,
        kind=kind,
        inputs=_tensors(_bracketed(rest, "Inputs: [")),
        outputs=_tensors(_bracketed(rest, "Outputs: [")),
        constants=_tensors(_bracketed(rest, "Constants: [")),
        nodes=_unique(_PROFILE.sub("", found["node"]) for found in _NODE.finditer(metadata.strip())),
        tactic=tactic["tactic"] if tactic else "",
        profile=int(profile["number"]) if profile else 0,
    )


def _old_layer(name: str, kind: str, tactic: str, rest: str) -> FusedLayer:
    before, _, after = rest.rpartition(" -> ")
    parts = [] if _NO_NODES.search(name) else [p for p in name.split(" + ") if not _NO_NODE.match(p)]
    return FusedLayer(
        name=name,
        kind=kind,
        inputs=_old_tensors(before),
        outputs=_old_tensors(after),
        nodes=_unique(re.sub(r"^(?:PWN\()+|\)+$", "", p) if p.startswith("PWN(") else p for p in parts),
        tactic=tactic,
    )


def _bracketed(text: str, opening: str) -> str:
    """What stands between ``opening``, which ends in a bracket, and the bracket that closes it."""
    start = text.find(opening)
    if start < 0:
        return ""
    start += len(opening)
    depth = 1
    for position in range(start, len(text)):
        depth += {"[": 1, "]": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position]
    return text[start:]


def _tensors(text: str) -> tuple[TensorInfo, ...]:
    return tuple(_tensor(found["name"], found["rest"]) for found in _TENSOR.finditer(text))


def _tensor(name: str, rest: str) -> TensorInfo:
    shape, kind = _DIMENSIONS.search(rest), _TYPE.search(rest)
    return TensorInfo(name, _type_name(kind["type"] if kind else ""), _shape(shape["shape"] if shape else ""))


def _old_tensors(text: str) -> tuple[TensorInfo, ...]:
    found = _OLD_TENSOR.finditer(text.strip())
    return tuple(TensorInfo(f["name"], _type_name(f["type"]), _shape(f["shape"][1:-1])) for f in found)


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in re.findall(r"-?\d+", text))


def _type_name(written: str) -> str:
    return _TYPES.get(written, written)


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def summary(layers: Sequence[FusedLayer]) -> dict[str, Any]:
    """Counts: ``layers``, ``attention`` (fused ones), ``kinds`` (by kind), ``types`` (by output types)."""
    kinds = Counter(layer.kind for layer in layers)
    types = Counter("+".join(sorted({t.dtype for t in layer.outputs})) or "none" for layer in layers)
    return {
        "layers": len(layers),
        "kinds": dict(sorted(kinds.items())),
        "attention": sum(layer.is_attention for layer in layers),
        "types": dict(sorted(types.items())),
    }


def types_of_nodes(layers: Sequence[FusedLayer]) -> Mapping[str, NodeTypes]:
    """For each ONNX node of the plan the types at the border of its fused layers, constants among the inputs.

    A node absent from the result was folded away, or the plan does not say where it went.
    """
    homes: dict[str, list[FusedLayer]] = {}
    for layer in layers:
        for node in layer.nodes:
            homes.setdefault(node, []).append(layer)
    return {node: _node_types(found) for node, found in homes.items()}


def _node_types(layers: Sequence[FusedLayer]) -> NodeTypes:
    return NodeTypes(
        inputs=frozenset(t.dtype for layer in layers for t in (*layer.inputs, *layer.constants)),
        outputs=frozenset(t.dtype for layer in layers for t in layer.outputs),
        layers=tuple(layer.name for layer in layers),
    )
