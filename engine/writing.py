"""Plain data as YAML text that :mod:`engine.document` reads back as the same data, types included."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from engine import yaml_data

_WIDTH = 100
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./()<>=+-]*( [A-Za-z0-9_./()<>=+-]+)*(:[A-Za-z0-9_]+)?\Z")
# Text here, but true, false or nothing to a reader of YAML 1.1.
_OLD_WORDS = frozenset({"y", "n", "yes", "no", "on", "off"})
# JSON leaves these as they are; in YAML they end a line or are not allowed.
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


def text(data: Mapping[str, Any], for_diffs: bool = False) -> str:
    """A mapping as a file; ``for_diffs`` with every mapping sorted and one item of a list a line."""
    data = _sorted(data) if for_diffs else data
    width = 0 if for_diffs else _WIDTH
    return "\n".join(_mapping(data, "", width)) + "\n" if data else "{}\n"


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list | tuple) else value


def scalar(value: Any) -> str:
    """A string, number, boolean or None as it is written. Raises ValueError for what no file can hold."""
    if isinstance(value, str):
        return value if _plain(value) else quoted(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} cannot be written: a number here is finite")
        shown = repr(value)
        return shown if "." in shown else shown.replace("e", ".0e")  # YAML 1.1 takes 1e-05 for text
    return json.dumps(value)


def flow(value: Any) -> str:
    """Any value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    return scalar(value)


def _plain(word: str) -> bool:
    return bool(_PLAIN.match(word)) and yaml_data.resolve(word) == word and word.lower() not in _OLD_WORDS


def quoted(word: str) -> str:
    """A string in double quotes on one line."""
    return _UNSAFE.sub(lambda hit: f"\\u{ord(hit[0]):04x}", json.dumps(word, ensure_ascii=False))


def _mapping(data: Mapping[str, Any], pad: str, width: int) -> Iterator[str]:
    for key, value in data.items():
        yield from _entry(f"{pad}{scalar(key)}:", value, pad, width)


def _entry(head: str, value: Any, pad: str, width: int) -> Iterator[str]:
    """One value below or behind ``head``; a list of plain values stays on one line where it fits."""
    nested = isinstance(value, Mapping | list | tuple) and len(value) > 0
    short = not isinstance(value, Mapping) and not any(
        isinstance(item, Mapping | list | tuple) for item in (value if nested else ())
    )
    line = f"{head} {flow(value)}" if short or not nested else ""
    if line and (not nested or len(line) <= width):
        yield line
    elif isinstance(value, Mapping):
        yield head
        yield from _mapping(value, f"{pad}  ", width)
    else:
        yield head
        for item in value:
            yield from _item(item, f"{pad}  ", width)


def _item(item: Any, pad: str, width: int) -> Iterator[str]:
    if isinstance(item, Mapping) and item:
        first, *rest = _mapping(item, f"{pad}  ", width)
        yield f"{pad}- {first.lstrip(' ')}"
        yield from rest
    else:
        yield from _entry(f"{pad}-", item, pad, width)
