"""What a comparison finds: changes, each with a mark where it asks for less or came out worse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from engine.diff.loosening import Mark

Kind = Literal["recipes", "locks"]
CODE = "contents"  # key of a digest that is compared beside what the recipe says
LOUD = ("WORSE", "LOOSER", "UNKNOWN DIRECTION")


@dataclass(frozen=True)
class Change:
    """One change. ``key`` is dotted, without list indices; ``what`` names the thing in a list or mapping of names.

    ``old`` or ``new`` is None where the recipe does not say. ``because`` is the recipe's reason, if it has one.
    """

    key: str
    old: Any
    new: Any
    mark: Mark = ""
    what: str = ""
    because: str = ""
    old_default: bool = False
    new_default: bool = False


@dataclass(frozen=True)
class Difference:
    """Of two recipes or two locks. ``as_written`` says why plans could not be compared; empty when they were."""

    old: str
    new: str
    changes: tuple[Change, ...]
    steps: tuple[str, ...] = ()
    as_written: str = ""
    kind: Kind = "recipes"

    @property
    def looser(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.mark in ("LOOSER", "UNKNOWN DIRECTION"))

    @property
    def worse(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.mark == "WORSE")

    @property
    def loud(self) -> tuple[Change, ...]:
        """Worse first, then looser."""
        return self.worse + self.looser
