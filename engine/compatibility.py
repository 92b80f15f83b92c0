"""What is known of TensorRT by version: opsets, targets, types, where engines load. ``FILE`` holds it, with sources."""

from __future__ import annotations

import functools
import json
from typing import Any

from engine.paths import data_dir

Version = tuple[int, ...]
FILE = data_dir("schemas") / "compatibility.json"


@functools.cache
def _facts() -> Any:
    return json.loads(FILE.read_text(encoding="utf-8"))


def _number(version: str) -> Version:
    """The first two numbers: what is known is known of a series."""
    return tuple(int(part) for part in version.split(".")[:2])


def opset_limit(module: str, version: str) -> int:
    """The newest ONNX opset to hand to this TensorRT; its parser does not refuse newer ones, it guesses.

    Raises ValueError for a version older than any that is known.
    """
    fitting = [limit for first, limit in _facts()["opset"][module]["rows"] if _number(first) <= _number(version)]
    if not fitting:
        raise ValueError(f"{_distribution(module)} {version} is older than any version with a known opset")
    return int(fitting[-1])


def _distribution(module: str) -> str:
    return module.replace("_", "-")


def unknown(module: str, version: str) -> str:
    """What is not known of this version: too old or too new for anything that was tried or read. Empty where it is."""
    rows = _facts()["opset"][module]["rows"]
    oldest, newest = _number(rows[0][0]), _number(rows[-1][0])
    if oldest <= _number(version) and _number(version)[0] <= newest[0]:
        return ""
    span = f"{rows[0][0]} to {newest[0]}.x"
    return f"nothing is known of {_distribution(module)} {version}; rules are written for {span}"


def targets(module: str, version: str) -> tuple[str, ...]:
    """Targets that this TensorRT builds for, as the recipe spells them; empty where that was not tried."""
    known = _facts()["targets"].get(module)
    if known is None or _number(version) > _number(known["tried_to"]):
        return ()
    fitting = [numbers for first, numbers in known["rows"] if _number(first) <= _number(version)]
    return tuple(f"sm{number}" for number in fitting[-1]) if fitting else ()


def first_target(kind: str) -> int | None:
    """Lowest compute capability (``80`` for 8.0) that has the type; None where every target has it."""
    found: int | None = _facts()["types"]["first_target"].get(kind)
    return found


def first_version(module: str, kind: str) -> Version | None:
    """The first version that builds the type; None where every one that is supported does, or nothing is known."""
    found = _facts()["types"]["first_version"].get(module, {}).get(kind)
    return _number(found) if found else None


def loads(module: str, version: str, target: str | None) -> str:
    """Where an engine can be loaded: version, GPUs, operating system."""
    known = _facts()["loads"][module]
    capability = f"{target[2:-1]}.{target[-1]}" if target else ""
    gpus = known["with_target" if target else "without_target"].format(capability=capability)
    return f"{known['name']} {known['version'].format(version=version)}, {gpus}; {known['system']}"
