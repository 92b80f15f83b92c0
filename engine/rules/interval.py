"""A closed range of numbers, and the error that says why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir


class UnboundedError(Exception):
    """No finite bound follows from the graph; the text names the node and the reason."""


@dataclass(frozen=True)
class Interval:
    """Every element lies in [low, high]; both are finite."""

    low: float
    high: float

    @property
    def size(self) -> float:
        return max(abs(self.low), abs(self.high))


class Known(dict[ir.Value, Interval]):
    """Bounds found so far on one graph, and why there are none for the values in ``unbounded``.

    ``sizes`` are what the symbolic axes of the graph may have, where somebody said it.
    """

    def __init__(self, sizes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        super().__init__()
        self.sizes = dict(sizes or {})
        self.unbounded: dict[ir.Value, str] = {}
