"""How to mend the mistakes that people make most in YAML: units, words for booleans, quotes, signs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

_SWITCHES = frozenset({"y", "n", "yes", "no", "on", "off"})
_NONE_WORDS = frozenset({"no", "off", "false", "null", "~", "disabled", "never"})
# Not compiled here: most runs need no hint.
_CLOCK = r"\d+(:\d\d)+\Z"
_GROUPED = r"[-+]?\d{1,3}([,_ ]\d{3})+(\.\d+)?\Z|[-+]?\d+(_\d+)+\Z"
_UNIT = r"([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*([A-Za-z%]+)\Z"
_SIGN = r"(?:[:\[{,-]\s+|[\[{]|\s)([*&!%@`>|][^,\]}#]*)"

# What a key counts in, told by the end of its name, and how many of it one named unit is.
_COUNTS: dict[str, tuple[str, dict[str, float]]] = {
    "_s": ("seconds", {"s": 1, "sec": 1, "second": 1, "seconds": 1, "ms": 1e-3, "m": 60, "min": 60, "mins": 60,
                       "minute": 60, "minutes": 60, "h": 3600, "hour": 3600, "hours": 3600}),
    "_mib": ("MiB", {"mib": 1, "m": 1, "mb": 1e6 / 2**20, "gib": 1024, "g": 1024, "gb": 1e9 / 2**20,
                     "kib": 1 / 1024, "kb": 1e3 / 2**20}),
}  # fmt: skip


def nearest(word: str, words: Iterable[str]) -> str:
    """``did you mean 'x'?`` for the closest of ``words``, or an empty string."""
    import difflib

    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6) if len(word) <= 80 else []
    return f"did you mean '{close[0]}'?" if close else ""


def for_type(key: str, wanted: Sequence[str], value: Any) -> str:
    """Hint for a value of the wrong JSON type under ``key``; empty when there is nothing special to say."""
    if isinstance(value, str) and ("number" in wanted or "integer" in wanted):
        return _text_for_number(key, value)
    if isinstance(value, str) and "boolean" in wanted and value.lower() in _SWITCHES:
        return f"did you mean true or false? In this language '{value}' is text"
    if isinstance(value, float) and "integer" in wanted and value == int(value):
        return f"write {int(value)}"
    if wanted == ["string"] and isinstance(value, bool | int | float):
        return "put it in quotes if it is text"
    if wanted == ["array"] and isinstance(value, str | int | float):
        words = re.split(r"[ ,]+", str(value).strip())
        if not any(words):
            return ""
        return f"write [{', '.join(words)}]" if len(str(value)) <= 60 else "a list is written [a, b]"
    return ""


def _text_for_number(key: str, text: str) -> str:
    word = text.strip()
    number = _number(word)
    if number is not None:
        if not math.isfinite(number):
            return "a number here is finite"
        return f"the quotes make it text; write {word} without them"
    if word.lower() in _SWITCHES:
        return f"did you mean a number? In this language '{word}' is text"
    if word.lower() in (".inf", "-.inf", "+.inf", ".nan"):
        return "a number here is finite"
    if re.match(_CLOCK, word):
        return f"'{word}' is text, not a time; write one number" + _counted(key)
    if re.match(_GROUPED, word):
        return f"write {re.sub('[,_ ]', '', word)}: a number has no separators"
    return _with_unit(key, word)


def _number(word: str) -> float | None:
    try:
        return float(word) if "_" not in word else None
    except ValueError:
        return None


def _counted(key: str) -> str:
    return next((f", in {unit}" for end, (unit, _) in _COUNTS.items() if key.endswith(end)), "")


def _with_unit(key: str, word: str) -> str:
    """``10 min`` for a key that counts seconds: ``write 600``."""
    found = re.match(_UNIT, word)
    amount = _number(found[1]) if found else None
    if found is None or amount is None:
        return ""
    for end, (counts, units) in _COUNTS.items():
        if key.endswith(end):
            factor = units.get(found[2].lower())
            if factor is None or not (amount * factor).is_integer():
                return f"write a number without a unit; '{key}' counts {counts}"
            return f"write {int(amount * factor)}: '{key}' counts {counts}"
    if found[2] == "%":
        return f"write {amount / 100:g}: a share, not per cent"
    return "write a number without a unit"


def for_choice(value: Any, allowed: Sequence[str]) -> str:
    """Hint for a value that is none of ``allowed``."""
    if "none" in allowed and (value is None or value is False or str(value).lower() in _NONE_WORDS):
        return "did you mean 'none'?"
    return nearest(str(value), allowed) if not isinstance(value, dict | list) else ""


def for_syntax(line: str, column: int, what: str) -> str:
    """Hint for text that is no YAML, from the line and column that the scanner stopped at and what it said."""
    if "mapping values are not allowed" in what or ("',' or" in what and line[column : column + 1] == ":"):
        return "text that holds ': ' must be quoted; a key must be indented like its neighbours"
    sign = re.search(_SIGN, line)
    if sign and ("token" in what or "scan" in what):
        return f"text that begins with {sign[1][0]} must be quoted: '{sign[1].rstrip()}'"
    return "indent with spaces, not tabs" if "\t" in line else ""
