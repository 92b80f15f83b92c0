"""Whole numbers that the graph compares an input with: each of them, with its neighbours, is among the inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from engine.plan import Plan, PlannedInput, Sizes, concrete
from engine.samples import Change, Size
from engine.stress import kinds

KIND = "compared"
_MOST = 8  # cases of one input
_UNMASKED = next(kind for kind in kinds.KINDS if kind.name == "mask-none")


def changes(
    plan: Plan, name: str, constants: Sequence[float], sizes: Sizes
) -> Iterator[tuple[str, str, dict[str, Change]]]:
    """End of the case's name, why, and changes, for as many cases as it takes to hold all of the numbers."""
    item = plan.inputs[name]
    numbers = around(item, constants)
    size = concrete(item.shape, sizes)
    room = math.prod(size)
    shown = ", ".join(f"{number:g}" for number in constants[:3]) + (", ..." if len(constants) > 3 else "")
    why = f"the graph compares {name} with {shown}"
    if len(numbers) > room * _MOST:
        why += f"; {room * _MOST} of {len(numbers)} numbers at and beside them tried"
    masks = _unmasked(plan, item)
    for index, first in enumerate(range(0, len(numbers), max(1, room))[:_MOST]):
        part = numbers[first : first + room]
        yield f".{index + 1}" if len(numbers) > room else "", why, {name: _placed(part), **masks}


def around(item: PlannedInput, constants: Sequence[float]) -> list[int]:
    """The constants and the whole numbers beside them, those that the recipe declares."""
    low, high = (int(number) for number in item.numbers)
    ends = {
        end for value in constants if math.isfinite(value) for end in (math.floor(value), math.ceil(value))
    }
    return sorted({near for end in ends for near in (end - 1, end, end + 1) if low <= near <= high})


def _unmasked(plan: Plan, item: PlannedInput) -> dict[str, Change]:
    """Nothing is padded away, where the recipe allows it."""
    mask = plan.inputs.get(item.masked_by)
    return {item.masked_by: _UNMASKED.make} if mask is not None and _UNMASKED.within(mask) else {}


def _placed(numbers: Sequence[int]) -> Change:
    """Each number once a row at another place in each, or in any row where a row is too short for all."""

    def change(item: PlannedInput, size: Size, rng: np.random.Generator, own: Any) -> Any:
        places = np.arange(math.prod(size))
        width = size[-1] if size else 1
        turn = (places + places // width) % width if len(numbers) <= width else places % len(numbers)
        there = np.asarray(numbers)[np.minimum(turn, len(numbers) - 1)]
        return np.where(turn < len(numbers), there, np.asarray(own).reshape(-1)).reshape(size)

    return change
