"""Limits that can never fail or never pass, and waivers of limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from engine.comparison import AT_LEAST
from engine.errors import Problem
from engine.recipe import Limits, LoadedRecipe
from engine.schema import nearest

# A limit that an unusable output meets proves nothing.
_LOOSEST = {
    "max_abs": (65504.0, "65504 is all that FP16 can hold"),
    "mean_abs": (65504.0, "65504 is all that FP16 can hold"),
    "rel_l2": (1.0, "an output of zeros reaches 1"),
    "cosine": (0.1, "unrelated values reach 0.1 by chance"),
    "argmax": (0.01, "guessing among a hundred classes reaches 0.01"),
}
# Half precision rounds by 2**-12 of a value and more; below these only equal bits pass.
_TIGHTEST = {"rel_l2": 6e-8, "cosine": 1 - 1e-12}
_MOST_LAYERS = 1_000_000


def problems(loaded: LoadedRecipe) -> Iterator[Problem]:
    """Every problem under ``accept`` and ``waivers``."""
    accept = loaded.recipe.accept
    for part, limits in (("onnx", accept.onnx), ("engine", accept.engine)):
        yield from _loose(loaded, part, limits)
    yield from _tight(loaded, accept.engine)
    yield from _fusion(loaded)
    yield from _waivers(loaded)


def _loose(loaded: LoadedRecipe, part: str, limits: Limits) -> Iterator[Problem]:
    for field in fields(limits):
        limit = getattr(limits, field.name)
        bound, why = _LOOSEST[field.name]
        if limit is not None and (limit <= bound if field.name in AT_LEAST else limit >= bound):
            what = f"accept.{part}.{field.name}: {limit:g} can never fail for a reason: {why}"
            yield loaded.document.problem(("accept", part, field.name), what)
    if limits.mean_abs is not None and limits.max_abs is not None and limits.mean_abs >= limits.max_abs:
        what = (
            f"accept.{part}.mean_abs: {limits.mean_abs:g} can never fail alone: a mean is at most the largest"
        )
        yield loaded.document.problem(("accept", part, "mean_abs"), what, f"max_abs is {limits.max_abs:g}")


def _tight(loaded: LoadedRecipe, limits: Limits) -> Iterator[Problem]:
    base = (loaded.recipe.precision.base if loaded.recipe.precision else None) or "fp32"
    if base == "fp32":
        return
    for metric, bound in _TIGHTEST.items():
        limit = getattr(limits, metric)
        if limit is not None and (limit > bound if metric in AT_LEAST else limit < bound):
            what = f"accept.engine.{metric}: {limit:.15g} asks for equal bits, which base {base} cannot give"
            yield loaded.document.problem(("accept", "engine", metric), what, "it can never pass")


def _fusion(loaded: LoadedRecipe) -> Iterator[Problem]:
    fusion = loaded.recipe.accept.fusion
    for key, least in (("attention", 0), ("layers", 1)):
        bound = getattr(fusion, key) if fusion else None
        if bound is None:
            continue
        sign, number = bound[:2], int(bound[2:])
        where = ("accept", "fusion", key)
        if sign == "<=" and number >= _MOST_LAYERS:
            yield loaded.document.problem(where, f"'{bound}' can never fail; no engine has so many layers")
        if sign == ">=" and number <= least:
            more = "; an engine has at least one layer" if least else ""
            yield loaded.document.problem(where, f"'{bound}' can never fail{more}")
        if sign != ">=" and number < least:
            yield loaded.document.problem(
                where, f"'{bound}' can never pass; an engine has at least one layer"
            )


def _waivers(loaded: LoadedRecipe) -> Iterator[Problem]:
    if not loaded.recipe.waivers:
        return
    import datetime

    from engine import waivers

    at, seen = loaded.document.problem, dict[str, int]()
    known = waivers.known(loaded.recipe.accept)
    for index, waiver in enumerate(loaded.recipe.waivers):
        where = ("waivers", index)
        if waiver.claim not in known:
            hint = nearest(waiver.claim, known) or f"claims of this recipe: {', '.join(known)}"
            yield at((*where, "claim"), f"waivers[{index}]: the recipe claims no '{waiver.claim}'", hint)
        elif waiver.claim in seen:
            yield at(
                (*where, "claim"), f"'{waiver.claim}' is waived twice; first in waivers[{seen[waiver.claim]}]"
            )
        seen.setdefault(waiver.claim, index)
        try:
            datetime.date.fromisoformat(waiver.expires)
        except ValueError:
            yield at((*where, "expires"), f"waivers[{index}]: {waiver.expires} is no day of the calendar")
