"""What ``forward`` takes, and what its signature and docstrings let one guess. A guess is only where trials begin."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from engine.errors import StepError
from engine.initial.asked import Hint
from engine.initial.attempts import Trial
from engine.schema import nearest

_INDEX_WORDS = {"id", "ids", "idx", "index", "indices", "token", "tokens", "label", "labels"}
_PLAIN_TYPES = ("int", "float", "str", "bool")
# An optional input that changes what the others mean: without it padding counts as text.
_COMPANIONS = {"attention_mask": "input_ids"}


@dataclass(frozen=True)
class Guess:
    """Where the trials of one input begin; ``shape`` may be empty, a word in it is an axis named by a docstring."""

    dtype: str
    shape: tuple[int | str, ...] = ()
    why: str = ""
    fixed: bool = False


@dataclass(frozen=True)
class Signature:
    """Inputs to try, and optional parameters left out with their default as text.

    ``start`` is the one starting point, where it need not be guessed.
    """

    guesses: Mapping[str, Guess]
    left_out: Mapping[str, str]
    companions: tuple[str, ...] = ()
    start: Mapping[str, Trial] | None = None


def read(model: torch.nn.Module, hints: Mapping[str, Hint]) -> Signature:
    """Split forward's parameters into inputs and those left out. Raises StepError where that cannot be done."""
    parameters = {name: item for name, item in inspect.signature(model.forward).parameters.items()
                  if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)}  # fmt: skip
    _check_hints(model, parameters, hints)
    needed = [name for name, item in parameters.items() if item.default is item.empty or name in hints]
    if not needed:
        needed = _main(model, parameters)
    companions = tuple(name for name, of in _COMPANIONS.items()
                       if name in parameters and of in needed and name not in needed)  # fmt: skip
    for name in needed:
        _require_tensor(model, name, parameters[name], hints)
    docs = f"{inspect.getdoc(type(model).forward) or ''}\n{inspect.getdoc(type(model)) or ''}"
    guesses = {name: _guess(name, item, hints.get(name), docs)
               for name, item in parameters.items() if name in needed or name in companions}  # fmt: skip
    left_out = {name: repr(item.default) for name, item in parameters.items() if name not in guesses}
    return Signature(guesses, left_out, companions)


def _check_hints(model: torch.nn.Module, parameters: Mapping[str, Any], hints: Mapping[str, Hint]) -> None:
    for name in hints:
        if name not in parameters:
            raise StepError(
                f"--input {name}: {type(model).__name__}.forward takes no '{name}'",
                cause=f"forward({', '.join(parameters)})",
                fix=nearest(name, parameters),
                usage=True,
            )


def _main(model: torch.nn.Module, parameters: Mapping[str, Any]) -> list[str]:
    """The one input to begin with where forward requires none."""
    if not parameters:
        raise StepError(
            f"{type(model).__name__}.forward names no parameters, so there is nothing to give it",
            fix="wrap the model in a module whose forward names its tensors",
            usage=True,
        )
    main: Any = getattr(model, "main_input_name", None)
    return [str(main) if main in parameters else next(iter(parameters))]


def _require_tensor(model: torch.nn.Module, name: str, parameter: Any, hints: Mapping[str, Hint]) -> None:
    annotation = _text(parameter.annotation)
    if annotation in _PLAIN_TYPES and name not in hints:
        raise StepError(
            f"{type(model).__name__}.forward needs '{name}', which is annotated {annotation}: not a tensor",
            fix=f"wrap the model in a module that sets '{name}', or give it a default",
            usage=True,
        )


def _text(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _guess(name: str, parameter: Any, hint: Hint | None, docs: str) -> Guess:
    if hint is not None:
        return Guess(hint.dtype, hint.shape or (), "as given by --input", fixed=True)
    shape = _documented(name, docs)
    why = "rank and axis names from the docstring" if shape else ""
    annotation = _text(parameter.annotation)
    for word, dtype in (("LongTensor", "int64"), ("IntTensor", "int32"), ("BoolTensor", "bool")):
        if word in annotation:
            return Guess(dtype, shape, why or f"annotated {word}")
    words = set(name.lower().split("_"))
    if words & _INDEX_WORDS or name in _COMPANIONS:
        return Guess("int64", shape, why)
    return Guess("bool" if "mask" in words else "float32", shape, why)


def _documented(name: str, docs: str) -> tuple[int | str, ...]:
    """``x: images of shape (batch, 3, 224, 224)`` as ``("batch", 3, 224, 224)``; empty when there is none."""
    found = re.search(
        rf"\b{re.escape(name)}\b[^\n]*?[(\[]\s*([A-Za-z0-9_]+(?:\s*,\s*[A-Za-z0-9_]+)+)\s*[)\]]", docs
    )
    if found is None:
        return ()
    parts = [part.strip() for part in found[1].split(",")]
    if not all(re.fullmatch(r"[1-9]\d*|[A-Za-z_]\w*", part) for part in parts):
        return ()
    if any(part.lower() in ("optional", "tensor", "int", "float") for part in parts):
        return ()
    return tuple(int(part) if part.isdecimal() else part.lower() for part in parts)


def starting_shape(shape: Sequence[int | str], rank: int, axis_sizes: Mapping[str, int]) -> list[int]:
    """Sizes to begin with: distinct over the axes, so that an axis can be told by its size."""
    if not shape:
        return list({0: (), 1: (3,), 2: (3, 7), 3: (3, 7, 11), 4: (3, 7, 32, 40), 5: (3, 7, 8, 32, 40)}[rank])
    fresh = starting_shape((), len(shape), {}) if len(shape) <= 5 else [3 + 2 * i for i in range(len(shape))]
    return [size if isinstance(size, int) else axis_sizes.get(size, fresh[index])
            for index, size in enumerate(shape)]  # fmt: skip
