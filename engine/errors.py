"""What can go wrong, who is at fault, and which exit code says so.

Every error is where + what + how to mend it. A user's fault is short; a fault of ours keeps its
traceback and is written to a log by the command line.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

LONGEST_LINE = 200  # characters of a source line that a message shows


class Exit(enum.IntEnum):
    """Exit codes of the command line."""

    ACCEPTED = 0
    NOT_ACCEPTED = 1
    USAGE = 2
    STEP_FAILED = 3
    BUG = 4
    INTERRUPTED = 130
    READER_GONE = 141


@dataclass(frozen=True, order=True)
class Place:
    """A spot in a text file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Problem:
    """One fault of a file: what is wrong, where, how to mend it, and of which kind it is (see annotations.KINDS)."""

    what: str
    place: Place | None = None
    source_line: str = ""
    width: int = 1
    hint: str = ""
    kind: str = "recipe"
    about: str = ""  # the key of the recipe's top level that it is under

    def __str__(self) -> str:
        lines = [f"{self.place}: {self.what}" if self.place else self.what]
        if self.place and self.source_line.strip():
            margin = f"{self.place.line:>5} | "
            text, column = _window(self.source_line, min(self.place.column - 1, len(self.source_line)))
            width = max(1, min(self.width, len(text) - column))
            lines.append(f"{margin}{text}")
            lines.append(" " * (len(margin) - 2) + "| " + " " * column + "^" * width)
        if self.hint:
            lines.append(f"        {self.hint}")
        return "\n".join(lines)


def _window(line: str, column: int) -> tuple[str, int]:
    """The part of a line around ``column`` that fits a screen, and the column in it. A tab is one blank."""
    start = max(0, min(column - LONGEST_LINE // 2, len(line) - LONGEST_LINE))
    head, tail = "..." if start else "", "..." if start + LONGEST_LINE < len(line) else ""
    part = line[start : start + LONGEST_LINE]
    clean = "".join(char if char.isprintable() else " " if char == "\t" else "\ufffd" for char in part)
    return head + clean + tail, column - start + len(head)


def quoted(text: str, longest: int = 60) -> str:
    """``text`` in quotes on one line: control characters escaped, the middle of a long text left out."""
    if not text.isprintable():
        text = text.encode("unicode_escape").decode("ascii")
    if len(text) > longest:
        text = f"{text[: longest - 13]}...{text[-10:]}"
    return f"'{text}'"


class PortwrightError(Exception):
    """Base of every error that Portwright raises on purpose."""

    exit_code: Exit = Exit.STEP_FAILED


class RecipeError(PortwrightError):
    """The recipe, a rule file or the command line is wrong: the user's fault. Lists every problem."""

    exit_code = Exit.USAGE

    def __init__(self, problems: Sequence[Problem] | str, hint: str = "") -> None:
        if isinstance(problems, str):
            problems = [Problem(problems, hint=hint)]
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True)
class Failure:
    """Why a step could not do its work, in a form that crosses a process boundary.

    ``where`` is a dotted recipe path such as ``model.python`` or ``rewrites[0].rule``; the command
    line turns it into file, line and column. ``usage`` marks faults of the recipe (exit code 2).
    """

    symptom: str
    klass: str = "tooling"
    cause: str = ""
    fix: str = ""
    where: str = ""
    evidence: str = ""
    usage: bool = False
    bug: bool = False

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Failure:
        return cls(**data)


class StepError(PortwrightError):
    """A step failed for a reason outside Portwright: the model, the graph or the toolchain."""

    def __init__(self, failure: Failure | str, **fields: Any) -> None:
        self.failure = Failure(failure, **fields) if isinstance(failure, str) else failure
        super().__init__(self.failure.symptom)

    @property
    def exit_code(self) -> Exit:  # type: ignore[override]
        if self.failure.bug:
            return Exit.BUG
        return Exit.USAGE if self.failure.usage else Exit.STEP_FAILED
