"""The lock as frozen values. The fields repeat ``schemas/lock.schema.json``; a test keeps both in step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from engine.claims import Status
from engine.waivers import State

FORMAT = 1
Verdict = Literal["accepted", "accepted with waivers", "not accepted"]


@dataclass(frozen=True)
class LockedClaim:
    """``value`` is rounded; ``why`` is there where a claim has no figure."""

    limit: str
    outcome: Status
    value: float | None = None
    why: str | None = None


@dataclass(frozen=True)
class LockedEngine:
    """``toolchain`` is module and version; ``fused`` counts layers of the fused plan."""

    bytes: int
    fused: Mapping[str, int]
    fused_types: Mapping[str, int]
    network_layers: int
    toolchain: str
    types_checked: int
    target: str | None = None


@dataclass(frozen=True)
class LockedExport:
    exporter: str
    opset: int


@dataclass(frozen=True)
class LockedGraph:
    """sha256 of what TensorRT is given: the lowered graph, and its weights where they have a file."""

    sha256: str
    weights_sha256: str | None = None


@dataclass(frozen=True)
class LockedModel:
    """``files`` holds the sha256 of every file behind model and sample values."""

    files: Mapping[str, str]
    source: str
    what: str


@dataclass(frozen=True)
class LockedOverride:
    nodes: tuple[str, ...]
    selector: str
    type: str


@dataclass(frozen=True)
class LockedQuantised:
    """``scales`` are those of activations by tensor; ``kept`` the nodes that were to be quantised and are not."""

    kept: tuple[str, ...]
    method: str
    samples: int
    scales: Mapping[str, float]


@dataclass(frozen=True)
class LockedPrecision:
    """A node that stands neither in ``overrides`` nor in ``others`` has the type ``base``.

    ``others`` holds, by type, the nodes that got another type than base or override asked. ``names`` is
    the sha256 of the names of all typed nodes: two locks with the same one speak about the same nodes.
    """

    base: str
    casts: int
    counts: Mapping[str, int]
    names: str
    others: Mapping[str, tuple[str, ...]]
    overrides: tuple[LockedOverride, ...]
    quantised: LockedQuantised | None = None

    def types(self) -> dict[str, str]:
        """The type of every node that the lock names."""
        found = {node: item.type for item in self.overrides for node in item.nodes}
        return found | {node: kind for kind, nodes in self.others.items() for node in nodes}


@dataclass(frozen=True)
class LockedRecipe:
    """``digest`` is of what the recipe resolves to; ``language`` is the version of the recipe language."""

    digest: str
    language: int
    name: str


@dataclass(frozen=True)
class LockedRule:
    matches: int
    refused: int
    rule: str


@dataclass(frozen=True)
class LockedWaiver:
    claim: str
    expires: str
    owner: str
    state: State


@dataclass(frozen=True)
class Lock:
    """A part is None where the run did not get to its step."""

    claims: Mapping[str, LockedClaim]
    lock: int
    model: LockedModel
    ops: Mapping[str, Mapping[str, int]]
    packages: Mapping[str, str]
    portwright: str
    recipe: LockedRecipe
    rules: tuple[LockedRule, ...]
    verdict: Verdict
    waivers: tuple[LockedWaiver, ...]
    engine: LockedEngine | None = None
    export: LockedExport | None = None
    graph: LockedGraph | None = None
    precision: LockedPrecision | None = None
