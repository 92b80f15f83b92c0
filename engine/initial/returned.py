"""Names for what the model returns."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from engine.errors import StepError


@dataclass(frozen=True)
class Returned:
    """Output names in order, why these, and what of the model's return value the recipe leaves out."""

    names: tuple[str, ...]
    why: str
    dropped: Mapping[str, str]


def names(returned: Any, inputs: Collection[str]) -> Returned:
    """Keys of a mapping or dataclass, else positions. Raises StepError when there is no tensor to name."""
    if isinstance(returned, Mapping):
        return _keyed(dict(returned), "the mapping's keys", inputs)
    if dataclasses.is_dataclass(returned) and not isinstance(returned, type):
        fields = {item.name: getattr(returned, item.name) for item in dataclasses.fields(returned)}
        return _keyed(fields, f"fields of {type(returned).__name__}", inputs)
    leaves = list(_leaves(returned))
    other = next((leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)), None)
    if not leaves or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        there = type(other if leaves else returned).__name__
        raise _unusable(f"the model returns {there} among its outputs, which is not a tensor")
    named: tuple[str, ...] = getattr(returned, "_fields", ())
    if len(named) == len(leaves):
        return Returned(_apart(named, inputs), f"fields of {type(returned).__name__}", {})
    if len(leaves) == 1:
        return Returned(_apart(["output"], inputs), "one tensor without a name", {})
    numbered = [f"output_{index + 1}" for index in range(len(leaves))]
    return Returned(_apart(numbered, inputs), "by position; the model gives no names", {})


def _keyed(fields: Mapping[Any, Any], why: str, inputs: Collection[str]) -> Returned:
    kept, dropped = [], {}
    for key, value in fields.items():
        if value is None:
            continue
        if not isinstance(value, torch.Tensor):
            dropped[str(key)] = f"is {type(value).__name__}, not a tensor"
        elif not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", str(key)):
            dropped[str(key)] = "is no name that an output can have"
        elif key in inputs:
            dropped[str(key)] = "is an input's name too"
        else:
            kept.append(str(key))
    if not kept:
        told = "; ".join(f"'{key}' {reason}" for key, reason in dropped.items()) or "it is empty"
        raise _unusable(f"the model returns {why}, but no tensor that can be an output: {told}")
    return Returned(tuple(kept), why, dropped)


def _apart(wanted: Collection[str], inputs: Collection[str]) -> tuple[str, ...]:
    return tuple(f"{name}_out" if name in inputs else name for name in wanted)


def _leaves(value: Any) -> Any:
    if isinstance(value, list | tuple):
        for item in value:
            if item is not None:
                yield from _leaves(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    else:
        yield value


def _unusable(symptom: str) -> StepError:
    return StepError(
        symptom,
        klass="tooling",
        fix="wrap the model in a module that returns a tensor, or a dict of tensors by name",
        where="outputs",
        usage=True,
    )
