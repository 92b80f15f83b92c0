"""What was found out about a model, as plain values that cross from the child process to the writer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.recipe import Axis


@dataclass(frozen=True)
class FoundInput:
    """One input. ``values`` is YAML, empty for the language's default; ``why`` are comment lines."""

    dtype: str
    shape: tuple[int | str, ...]
    values: str
    why: tuple[str, ...]


@dataclass(frozen=True)
class FoundAxis:
    """One dynamic axis. ``asked`` when the range is the user's."""

    axis: Axis
    why: tuple[str, ...]
    asked: bool


@dataclass(frozen=True)
class Findings:
    """All of it. ``left_out`` are parameters and ``dropped`` outputs that the recipe does not have, with why.

    ``export_problem`` is why torch.export cannot be used, in words that follow its name.
    """

    module: str
    parameters: int
    inputs: Mapping[str, FoundInput]
    axes: Mapping[str, FoundAxis]
    outputs: tuple[str, ...]
    outputs_why: str
    left_out: Mapping[str, str]
    dropped: Mapping[str, str]
    export_problem: str
    attempts: int
