"""What a rule says about itself, under fixed headings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Why:
    """The parts of ``why``. A plain text, which is enough for a private rule, is ``breaks`` alone."""

    breaks: str
    idea: str = ""
    cost: str = ""
    tolerance: str = ""


def read(written: str | Mapping[str, str]) -> Why:
    """``why`` of a rule file that passed the schema; line breaks are spaces."""
    parts = {"breaks": written} if isinstance(written, str) else written
    return Why(**{heading: " ".join(text.split()) for heading, text in parts.items()})


def first_sentence(text: str) -> str:
    """Without its full stop, for a cell of a table."""
    return text.split(". ")[0].removesuffix(".")
