"""What became of each file. Plain when written as JSON (engine.plain)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["builds", "parses", "refused", "failed", "unsound"]


@dataclass(frozen=True)
class Used:
    """One rule in one file. Node counts are of the whole graph, before its first and after its last use.

    ``cases`` proofs were run and ``max_abs`` is the largest difference that they saw.
    """

    rule: str
    times: int
    nodes_before: int
    nodes_after: int
    cases: int
    max_abs: float
    at: tuple[str, ...]


@dataclass(frozen=True)
class Tried:
    """A rule that could have mended a node, and why it does not fit there."""

    rule: str
    why: str


@dataclass(frozen=True)
class Remaining:
    """What the toolchain still refuses. ``node`` and ``op`` are None where it names none.

    ``others`` counts the rules that hold the operator, where none of them is near to fitting.
    """

    node: str | None
    op: str | None
    text: str
    raw: str
    rules: tuple[Tried, ...] = ()
    others: int = 0


@dataclass(frozen=True)
class Whole:
    """The rewritten graph against the original, run as a whole. ``why`` says why it was not compared."""

    cases: int = 0
    numbers: int = 0
    max_abs: float = 0.0
    runtimes: tuple[str, ...] = ()
    why: str = ""
    different: bool = False


@dataclass(frozen=True)
class Rewritten:
    """One file. ``why`` is set where it was not built or not written; ``output`` is None in that last case."""

    file: str
    output: str | None
    verdict: Verdict
    why: str = ""
    changed: bool = False
    rounds: int = 0
    used: tuple[Used, ...] = ()
    remaining: tuple[Remaining, ...] = ()
    whole: Whole | None = None
    notes: tuple[str, ...] = ()
