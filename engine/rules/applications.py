"""What applying a rule came to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from engine.rules.interval import Known
from engine.rules.match import Match
from engine.rules.verdict import Proof

Prover = Callable[[Match, ir.Model, ir.Model, Known], Proof]


@dataclass(frozen=True)
class Application:
    """One accepted match: its root node and PyTorch module, the nodes taken out and put in, its proof.

    ``proof`` is None where the caller asked for none, and where that of the rule's first application is for all of
    them.
    """

    node: str
    module: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    proof: Proof | None


@dataclass(frozen=True)
class Refusal:
    """A match that was left as it is, and why."""

    node: str
    module: str
    why: str


@dataclass(frozen=True)
class Applications:
    """What one rule did to one graph. Node counts are of all graphs, subgraphs included."""

    rule: str
    accepted: tuple[Application, ...]
    refused: tuple[Refusal, ...]
    nodes_before: int
    nodes_after: int
