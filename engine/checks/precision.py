"""Types, overrides and calibration: what contradicts itself, decides nothing, or cannot be read."""

from __future__ import annotations

from collections.abc import Iterator

from engine import arrays
from engine.checks import files, moved
from engine.document import KeyPath
from engine.errors import Problem, quoted
from engine.plan import opset_of
from engine.recipe import FLOATS, QUANTS, Calibration, LoadedRecipe, Override
from engine.schema import nearest

_OPSET = {"int8": 13, "fp8": 19, "int4": 21}  # the first with QuantizeLinear or DequantizeLinear of that type
_HALF_SCALES = 19  # the first where they take scales in FP16 and BF16
_NAME = "labels"


def problems(loaded: LoadedRecipe) -> Iterator[Problem]:
    """Every problem under ``precision``."""
    precision, at = loaded.recipe.precision, loaded.document.problem
    if precision is None:
        return
    base, overrides = precision.base or "fp32", precision.overrides or ()
    yield from _repeated(loaded, overrides)
    for index, override in enumerate(overrides):
        where = ("precision", "overrides", index)
        if not (override.module or override.op or override.node):
            yield at(where, f"precision.overrides[{index}]: names no layer", "add 'module', 'op' or 'node'")
        earlier = {item.type for item in overrides[:index]}
        if override.type == base and earlier <= {base}:  # otherwise it may be an exception from one before it
            yield at((*where, "type"), f"precision.overrides[{index}]: the base is {base} already", "leave it out")
    if precision.float and base in FLOATS:
        what = f"precision.float: does nothing with base {base}; it is for a quantised base"
        yield at(("precision", "float"), what, "leave it out", key=True)
    if precision.io == "lower" and (precision.float or base) == "fp32":
        yield at(("precision", "io"), "precision.io: 'lower' does nothing with base fp32")
    yield from _opset(loaded)
    tried = precision.search.base if precision.search else ()
    for index, kind in enumerate(tried):
        if kind in tried[:index]:
            yield at(("precision", "search", "base", index), f"precision.search.base: {kind} stands twice")
    if precision.calibration:
        yield from _calibration(loaded, precision.calibration)


def _opset(loaded: LoadedRecipe) -> Iterator[Problem]:
    precision, opset = loaded.recipe.precision, opset_of(loaded.recipe)
    assert precision is not None
    if opset is None:
        return
    base = precision.base or "fp32"
    floats = base if base in FLOATS else precision.float or "fp16"
    asked: list[tuple[KeyPath, str]] = [(("precision", "base"), base)]
    asked += [(("precision", "overrides", index, "type"), item.type)
              for index, item in enumerate(precision.overrides or ())]  # fmt: skip
    asked += [(("precision", "search", "base", index), kind)
              for index, kind in enumerate(precision.search.base if precision.search else ())]  # fmt: skip
    for where, kind in asked:
        first = _OPSET.get(kind, 0)
        if first and floats != "fp32":
            first = max(first, _HALF_SCALES)
        if opset < first:
            beside = f" beside {floats}" if first == _HALF_SCALES and floats != "fp32" else ""
            what = f"{kind}{beside} needs opset {first} or newer; export.opset is {opset}"
            yield loaded.document.problem(where, what, f"export: {{opset: {first}}}")


def _calibration(loaded: LoadedRecipe, written: Calibration) -> Iterator[Problem]:
    precision, at, where = loaded.recipe.precision, loaded.document.problem, ("precision", "calibration")
    assert precision is not None
    tried = precision.search.base if precision.search else ()
    kinds = {precision.base, *tried, *(item.type for item in precision.overrides or ())} & set(QUANTS)
    if not kinds - {"int4"}:
        why = "int4 quantises weights alone" if kinds else "nothing is int8 or fp8"
        yield at(where, f"precision.calibration: does nothing; {why}", "leave it out", key=True)
    if written.percentile is not None and written.method != "percentile":
        what = f"precision.calibration.percentile: does nothing with method {written.method or 'max'}"
        yield at((*where, "percentile"), what, "method: percentile", key=True)
    yield from moved.values_at(loaded, (*where, "values"), written.values or {})
    if written.cache is not None:
        for key in ("method", "percentile", "batches", "values", "labels"):
            if getattr(written, key) is not None:
                what = f"precision.calibration.{key}: does nothing beside 'cache', which holds the scales"
                yield at((*where, key), what, "leave one of them out", key=True)
        yield from files.present(loaded, (*where, "cache"), written.cache)
        return
    if written.labels is not None:
        yield from _labels(loaded, written)


def _labels(loaded: LoadedRecipe, written: Calibration) -> Iterator[Problem]:
    at, where = loaded.document.problem, ("precision", "calibration", "labels", "file")
    labels = written.labels
    assert labels is not None
    missing = list(files.present(loaded, where, labels.file))
    yield from missing
    if missing:
        return
    key = labels.key or _NAME
    try:
        headers = arrays.headers(loaded.beside(*where) / labels.file)
    except (OSError, ValueError) as error:
        yield at(where, f"labels: {quoted(labels.file)[1:-1]} cannot be read: {error}")
        return
    spot = (*where[:-1], "key") if labels.key else where
    if key not in headers:
        hint = nearest(key, headers) or "it holds " + ", ".join(headers)
        yield at(spot, f"labels: {labels.file} holds no '{key}'", hint)
    elif len(headers[key].shape) != 1 or "int" not in headers[key].dtype:
        header = headers[key]
        what = f"labels: '{key}' is {header.dtype} {list(header.shape)}; one whole number a sample is needed"
        yield at(spot, what)


def _repeated(loaded: LoadedRecipe, overrides: tuple[Override, ...]) -> Iterator[Problem]:
    """The same selector twice: a contradiction or a leftover. Overlaps of different ones show in the graph."""
    seen: dict[tuple[object, ...], int] = {}
    for index, item in enumerate(overrides):
        selector = (item.module, item.op, item.node, item.nth)
        first = seen.setdefault(selector, index)
        if first != index and any(selector[:3]):
            other = overrides[first].type
            what = f"precision.overrides[{index}]: selects what overrides[{first}] selects"
            more = f", as {item.type} instead of {other}" if item.type != other else ""
            yield loaded.document.problem(("precision", "overrides", index), what + more, "keep one of them")
