"""Plain data (what JSON and YAML hold) to frozen dataclasses and back, by their type hints.

Shape is checked by the JSON schema before this runs; here a mismatch is a bug, not bad input.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def to_plain(value: Any) -> Any:
    """Return ``value`` as dicts, lists, strings, numbers, booleans and None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return str(value) if isinstance(value, PurePath) else value


def without_none(value: Any) -> Any:
    """Plain data without the keys of mappings that hold nothing."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return [without_none(item) for item in value] if isinstance(value, list) else value


def from_plain(hint: Any, data: Any) -> Any:
    """Build a value of type ``hint`` from plain ``data``; raise TypeError where they do not fit."""
    if hint is Any:
        return data
    if dataclasses.is_dataclass(hint):
        return _build(hint, data)  # type: ignore[arg-type]
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _first_fitting(args, data)
    if origin is Literal:
        if data not in args:
            raise TypeError(f"expected one of {args}, got {data!r}")
        return data
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise TypeError(f"expected a list, got {data!r}")
        return tuple(from_plain(args[0], item) for item in data)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(data, Mapping):
            raise TypeError(f"expected a mapping, got {data!r}")
        return {key: from_plain(args[1], item) for key, item in data.items()}
    return _scalar(hint, data)


def _scalar(hint: Any, data: Any) -> Any:
    if hint is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if hint is types.NoneType:
        if data is not None:
            raise TypeError(f"expected nothing, got {data!r}")
        return None
    if not isinstance(data, hint) or (hint is not bool and isinstance(data, bool)):
        raise TypeError(f"expected {hint.__name__}, got {data!r}")
    return data


def _first_fitting(args: tuple[Any, ...], data: Any) -> Any:
    for arg in args:
        try:
            return from_plain(arg, data)
        except TypeError:
            continue
    raise TypeError(f"{data!r} fits none of {args}")


def _build(cls: type[T], data: Any) -> T:
    if not isinstance(data, Mapping):
        raise TypeError(f"expected a mapping for {cls.__name__}, got {data!r}")
    hints = _hints(cls)  # type: ignore[arg-type]
    unknown = set(data) - set(hints)
    if unknown:
        raise TypeError(f"{cls.__name__} has no field {sorted(unknown)}")
    return cls(**{key: from_plain(hints[key], item) for key, item in data.items()})
