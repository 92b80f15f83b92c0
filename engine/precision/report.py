"""What lowering did, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from engine.precision.formats import Precision
from engine.recipe import IoPolicy, NodeType
from engine.values import Issue

Boundary = IoPolicy


@dataclass(frozen=True)
class KeptWide:
    """A node that stayed FP32 though a narrower type was asked, and why."""

    node: str
    op: str
    module: str
    asked: Precision
    reason: str


@dataclass(frozen=True)
class InsertedCast:
    """A Cast that lowering put in; ``consumers`` are the nodes that it serves."""

    name: str
    value: str
    source: Precision
    target: Precision
    module: str
    consumers: tuple[str, ...]


@dataclass(frozen=True)
class ConstantChange:
    """A constant that the narrow type cannot hold.

    ``action``: ``clamped`` (a mask or bound, moved to ``became``), ``kept-wide`` (``consumers`` stay
    FP32) or ``rounded`` (an override insists on the narrow type; ``became`` is what it now is).
    """

    value: str
    type: Precision
    action: Literal["clamped", "kept-wide", "rounded"]
    was: float
    became: float
    count: int
    reason: str
    consumers: tuple[str, ...]
    module: str


@dataclass(frozen=True)
class ConvertedWeight:
    """One tensor stored in another type: how many values became infinite, zero or subnormal by it."""

    value: str
    stored: str
    type: Precision
    count: int
    bytes: int
    to_inf: int
    to_zero: int
    to_subnormal: int


@dataclass(frozen=True)
class OverrideTaken:
    """The nodes that one override of the recipe took."""

    selector: str
    type: NodeType
    because: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class LoweringReport:
    """Everything that lowering decided. ``node_types`` holds the final type of every float node.

    ``followed`` are nodes that only move data and took the type of their neighbours instead of the base.
    """

    base: Precision
    io: Boundary
    node_types: Mapping[str, Precision]
    overrides: tuple[OverrideTaken, ...]
    casts: tuple[InsertedCast, ...]
    kept_wide: tuple[KeptWide, ...]
    followed: tuple[str, ...]
    constants: tuple[ConstantChange, ...]
    weights: tuple[ConvertedWeight, ...]
    folded_casts: tuple[str, ...]

    @property
    def weight_bytes(self) -> int:
        """Bytes of all converted tensors as stored."""
        return sum(weight.bytes for weight in self.weights)

    def issues(self) -> tuple[Issue, ...]:
        """What a reader of the issue log must know."""
        return (
            *map(_constant_issue, self.constants),
            *(issue for reason in _reasons(self.kept_wide) if (issue := _wide_issue(reason, self.kept_wide))),
            *(_overflow_issue(weight) for weight in self.weights if weight.to_inf),
            *(_folded_issue(name) for name in self.folded_casts),
        )


def _constant_issue(change: ConstantChange) -> Issue:
    at = ", ".join(change.consumers[:3]) + (" ..." if len(change.consumers) > 3 else "")
    many = f" ({change.count} values)" if change.count > 1 else ""
    caveat = "; a row that is masked throughout comes out differently" if "mask" in change.reason else ""
    fixes = {
        "clamped": f"clamped to {change.became:g}{caveat}",
        "kept-wide": f"{at} stay FP32",
        "rounded": "",
    }
    return Issue(
        "lower",
        "numeric",
        f"constant {change.value} = {change.was:g}{many} does not fit {change.type.upper()}",
        cause=change.reason,
        fix=fixes[change.action],
        evidence=f"used by {at}" + (f" in {change.module}" if change.module else ""),
        disposition="open" if change.action == "rounded" else "fixed",
    )


def _reasons(kept: tuple[KeptWide, ...]) -> list[str]:
    return list(dict.fromkeys(item.reason for item in kept))


def _wide_issue(reason: str, kept: tuple[KeptWide, ...]) -> Issue | None:
    if reason.startswith("constant "):
        return None  # already told by the constant itself
    nodes = [item.node for item in kept if item.reason == reason]
    shown = ", ".join(nodes[:5]) + (" ..." if len(nodes) > 5 else "")
    return Issue("lower", "numeric", f"{len(nodes)} node(s) stay FP32", cause=reason, evidence=shown)


def _overflow_issue(weight: ConvertedWeight) -> Issue:
    return Issue(
        "lower",
        "numeric",
        f"{weight.to_inf} of {weight.count} values of {weight.value} overflow in {weight.type.upper()}",
        cause="an override asks for the narrow type where the weight does not fit",
        fix="",
        disposition="open",
    )


def _folded_issue(name: str) -> Issue:
    return Issue(
        "lower",
        "numeric",
        f"the model's own cast {name} was removed",
        cause="the recipe decides the types; the cast had nothing left to change",
        fix="name its layer in precision.overrides where the model meant to compute in FP32",
    )
