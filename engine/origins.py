"""Where every value of a plan comes from: a line of the recipe or of what it extends, or the default."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine import writing
from engine.document import KeyPath
from engine.plain import to_plain
from engine.plan import Plan, PlannedInput
from engine.recipe import QUANTS, LoadedRecipe

DEFAULT = "default"
_DETAILS = ("mask", "image", "file", "python")
_EXPORT = ("opset", "exporter")


def render(loaded: LoadedRecipe, plan: Plan) -> str:
    """The plan as YAML, each value followed by ``# FILE:LINE`` or ``# default``."""
    return "\n".join(_lines(loaded, plan, _shortened(to_plain(plan)), (), "")) + "\n"


def _shortened(plain: dict[str, Any]) -> dict[str, Any]:
    """Without the details that an input of another kind would have."""
    calibration = plain["precision"]["calibration"] or {"inputs": {}}
    for item in (*plain["inputs"].values(), *calibration["inputs"].values()):
        for key in (*_DETAILS, "masked_by", "same_as"):
            if not item[key]:
                del item[key]
        if "masked_by" not in item:
            del item["pad"]
    return plain


def _lines(loaded: LoadedRecipe, plan: Plan, value: Any, path: KeyPath, indent: str) -> Iterator[str]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        below = (*path, key)
        head = f"{indent}{writing.scalar(key)}:" if isinstance(value, dict) else f"{indent}-"
        nested = isinstance(item, dict) or (isinstance(item, list) and any(isinstance(x, dict) for x in item))
        if nested and item:
            yield head
            yield from _lines(loaded, plan, item, below, indent + "  ")
        else:
            yield f"{head} {writing.flow(item)}  # {origin(loaded, plan, below)}"


def origin(loaded: LoadedRecipe, plan: Plan, path: KeyPath) -> str:
    """``FILE:LINE`` of the key that the plan's value at ``path`` follows from, or ``default``."""
    source = source_path(plan, path)
    if source and source not in loaded.document.values:
        return DEFAULT
    place = loaded.document.place(source)
    return f"{place.file}:{place.line}"


def source_path(plan: Plan, path: KeyPath) -> KeyPath:
    """Key path in the recipe for ``path`` in the plan; empty for the recipe as a whole."""
    head = path[0]
    if head in ("recipe_file", "folder"):
        return ()
    if head == "model":
        return ("model", *_model(plan, path[1:]))
    if head == "inputs":
        return (*path[:2], *_input(plan.inputs[str(path[1])], path[2:]))
    if head == "shapes":
        return ("axes", *path[2:]) if plan.axes else ()
    if head in _EXPORT:
        return ("model", "onnx") if plan.exporter == "none" and head == "exporter" else ("export", head)
    if head == "library":
        return ("rewrites",)
    if head == "precision":
        return _precision(plan, path)
    if head == "rewrites" and path[2:] in (("path",), ("digest",)):
        return (*path[:2], "rule")
    return path


def _precision(plan: Plan, path: KeyPath) -> KeyPath:
    calibration = plan.precision.calibration
    if path[1] == "floats":
        return ("precision", "float" if plan.precision.base in QUANTS else "base")
    if path[1] != "calibration" or calibration is None or len(path) < 3:
        return path
    if path[2] == "inputs" and len(path) > 4:
        name = str(path[3])
        if path[4] in ("dtype", "shape"):
            return ("inputs", name, path[4])
        below = _input(calibration.inputs[name], path[4:])
        return (*path[:2], "values", name, *below[1:])
    if path[2] == "labels":
        return (*path[:3], "file" if path[-1] == "path" else path[-1])
    return path[:2] if path[2] == "digests" else path


def _model(plan: Plan, path: KeyPath) -> KeyPath:
    source, key = plan.model.source, path[0]
    if source == "checkpoint":
        names = {"file": "python", "function": "python", "digest": "python", "weights": "path",
                 "weights_sha256": "sha256", "key": "key"}  # fmt: skip
        return (source, names[str(key)]) if key in names else (source,)
    if key == "weights":
        return ("weights", "path")
    if key == "weights_sha256":
        return ("weights", "sha256") if plan.model.weights else ("sha256",)
    if key == "external_sha256":
        return path
    if key == "digest" and plan.model.config:
        return (source, "config")
    if key in ("name", "config", "key"):
        return (source, key)
    return (source, *path) if key == "arguments" else (source,)


def _input(item: PlannedInput, path: KeyPath) -> KeyPath:
    """The key below an input that its ``path`` in the plan follows from."""
    kind, key = item.kind, path[0]
    if key in ("dtype", "shape"):
        return path
    if key == "image" and path[1] in ("low", "high"):
        return ("values", "image", "range")
    if key == "file":
        return ("values", "key" if path[1] == "key" else "file")
    if key == "python":
        return ("values", "python")
    if key in ("mask", "image"):
        return ("values", *path)
    if key in ("masked_by", "same_as", "pad"):
        return ("values", key)
    return ("values",) if kind in ("ones", "zeros") or key == "kind" else ("values", kind)
