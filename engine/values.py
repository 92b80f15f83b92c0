"""Small frozen values that travel along the route. Everything here is plain JSON when written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "failed", "not-run"]
IssueClass = Literal["op", "shape", "numeric", "export", "tooling"]
Disposition = Literal["fixed", "open", "noted"]


@dataclass(frozen=True)
class Artifact:
    """A file that a step wrote: path relative to the output folder, sha256 hex digest, size in bytes."""

    path: str
    digest: str
    bytes: int


@dataclass(frozen=True)
class Issue:
    """One entry of the conversion issue log: something that broke or was found, and what became of it."""

    step: str
    klass: IssueClass
    symptom: str
    cause: str = ""
    fix: str = ""
    evidence: str = ""
    disposition: Disposition = "noted"


@dataclass(frozen=True)
class StepResult:
    """What one step did. ``facts`` repeat exactly on a rerun; ``measurements`` (times, errors) may not.

    ``seconds`` is wall time; ``peak_bytes`` the peak resident memory of the process that ran it.
    ``why`` is empty for ``ok`` and never empty otherwise. ``ended`` is when it ended, in UTC to the
    second; ``reused`` that this run took it out of the store, with the figures of the run that made it.
    """

    step: str
    status: Status
    why: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0
    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    measurements: Mapping[str, Any] = field(default_factory=dict)
    issues: tuple[Issue, ...] = ()
    log_tail: tuple[str, ...] = ()
    ended: str = ""
    reused: bool = False
