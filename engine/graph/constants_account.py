"""The numbers that the traced program computes with, looked for in the file as the same float32."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
import onnx_ir as ir

from engine.graph.weights_account import constants_of

_MOST = 64  # numbers whose products with each other are tried


@dataclass(frozen=True)
class Near:
    """A number of the file that is close to one of the program, which is not there itself."""

    file: float
    constant: str
    program: float

    def __str__(self) -> str:
        return f"{self.file:.9g} ('{self.constant}') in the file, {self.program:.9g} in the model"


def scalars(model: ir.Model) -> dict[str, float]:
    """Float constants of one element, and float attributes such as an epsilon, by name."""
    found = {}
    for name, array in constants_of(model).items():
        if array.size == 1 and array.dtype.kind == "f":
            found[name] = float(array.reshape(-1)[0])
    for node in model.graph.all_nodes():
        for attribute in node.attributes.values():
            if isinstance(attribute, ir.Attr) and attribute.type == ir.AttributeType.FLOAT:
                found[f"{node.name}.{attribute.name}"] = attribute.as_float()
    return found


def absent(wanted: Iterable[float], model: ir.Model) -> list[float]:
    """Numbers that are in the file neither as they are nor as a simple function of them; in order, once."""
    there = {_single(value) for value in scalars(model).values()}
    arrays = [
        array for array in constants_of(model).values() if 1 < array.size <= 4096 and array.dtype.kind == "f"
    ]
    lost = []
    for number in dict.fromkeys(wanted):
        functions = {_single(value) for value in _functions(number)}
        if functions & there or any(
            np.isin(np.float32(number), array.astype(np.float32)) for array in arrays
        ):
            continue
        lost.append(number)
    return lost


def near_misses(program: Sequence[float], model: ir.Model) -> list[Near]:
    """Numbers of the file within 1e-3 of one that the program has, while that one is not in the file.

    What is exactly a simple function of the program's numbers, or a product of two of them, is none.
    """
    expected = {_single(value) for number in program for value in _functions(number)}
    few = list(dict.fromkeys(program))[:_MOST]
    expected |= {_single(one * two) for one, two in combinations_with_replacement(few, 2)}
    found = scalars(model)
    there = {_single(value) for value in found.values()}
    misses = []
    for name, value in found.items():
        single = _single(value)
        if single in expected or single == 0 or not math.isfinite(single) or single == round(single):
            continue
        for number in dict.fromkeys(program):
            if _single(number) not in there and abs(single - number) <= 1e-3 * abs(number):
                misses.append(Near(value, name, number))
                break
    return misses


def _functions(number: float) -> Iterator[float]:
    """What a translation may write for a number: its negative, reciprocal and root, in either precision."""
    yield from (number, -number)
    if number != 0:
        yield from (1 / number, -1 / number, float(np.float32(1) / np.float32(number)))
    if number > 0:
        yield from (math.sqrt(number), 1 / math.sqrt(number), float(np.sqrt(np.float32(number))))


def _single(number: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(number))
