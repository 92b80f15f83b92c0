"""Sizes of symbolic axes: as written on the command line, and what they come to for one file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from engine.errors import Problem, RecipeError, quoted
from engine.refusals import Ranges
from engine.rules.constants import dims_of
from engine.schema import nearest

Sizes = Mapping[str, tuple[int, int, int]]  # symbol -> min, opt, max


def read(texts: Iterable[str]) -> dict[str, tuple[int, int, int]]:
    """``batch=1:4:8`` or ``batch=4`` each, several by blanks or commas. Raises RecipeError for all faults at once."""
    found: dict[str, tuple[int, int, int]] = {}
    problems: list[Problem] = []
    given = list(texts)
    problems += [Problem("--sizes: names no axis", hint="batch=1:4:8") for text in given if not text.strip(", ")]
    for text in (part for each in given for part in re.split(r"[,\s]+", each) if part):
        form = re.fullmatch(r"(\w[\w.-]*)=(\d{1,9})(?::(\d{1,9}):(\d{1,9}))?", text)
        if form is None:
            problems.append(Problem(f"--sizes: {quoted(text)} is not NAME=MIN:OPT:MAX", hint="batch=1:4:8"))
            continue
        low, best, high = (int(number) for number in (form[2], form[3] or form[2], form[4] or form[2]))
        if not (0 <= low <= best <= high and high):
            problems.append(
                Problem(f"--sizes {form[1]}: 0 <= MIN <= OPT <= MAX, 1 <= MAX does not hold for {quoted(text)}")
            )
        elif form[1] in found:
            problems.append(Problem(f"--sizes: {form[1]} stands twice"))
        found[form[1]] = (low, best, high)
    if problems:
        raise RecipeError(problems)
    return found


def require_used(sizes: Sizes, symbols: set[str]) -> None:
    """Raise RecipeError for a size of an axis that no file has: most likely it is misspelt."""
    known = f"there are: {', '.join(sorted(symbols)) or 'none'}"
    problems = [Problem(f"--sizes: no input has an axis {quoted(name)}", hint=nearest(name, symbols) or known)
                for name in sizes if name not in symbols]  # fmt: skip
    if problems:
        raise RecipeError(problems)


@dataclass(frozen=True)
class Profile:
    """Shapes for the dynamic inputs of a graph; ``lacking`` says what no sizes were given for."""

    ranges: Ranges
    lacking: str


def symbols(model: ir.Model) -> set[str]:
    found = (size for value in model.graph.inputs for size in dims_of(value) or ())
    return {size for size in found if isinstance(size, str)}


def profile(model: ir.Model, sizes: Sizes) -> Profile:
    ranges: dict[str, dict[str, list[int]]] = {}
    lacking: dict[str, None] = {}
    for value in model.graph.inputs:
        name, dims = value.name or "", dims_of(value)
        if dims is None:
            lacking[f"input {name}, whose rank the file does not say"] = None
            continue
        for axis, size in enumerate(dims):
            if size is None:
                lacking[f"axis {axis} of input {name}, which has no name"] = None
            elif isinstance(size, str) and size not in sizes:
                lacking[size] = None
        if any(not isinstance(size, int) for size in dims) and not lacking:
            ranges[name] = {
                key: [size if isinstance(size, int) else sizes[str(size)][nth] for size in dims]
                for nth, key in enumerate(("min", "opt", "max"))
            }
    return Profile({} if lacking else ranges, ", ".join(lacking))


def tried(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """The sizes at which proofs run."""
    return {name: tuple(dict.fromkeys(given)) for name, given in sizes.items()}
