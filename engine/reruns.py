"""Which steps a change of the recipe touches: for each key the first step whose result can change.

Beside ``engine/steps``; a test holds the table against the schema. The steps themselves are not imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.steps import NAMES

# None: no step; the stored record is judged or rendered again. The longest prefix of a key decides.
FIRST: Mapping[str, str | None] = {
    "portwright": "source",
    "name": "build",  # the engine's file is named after the port
    "about": None,
    "extends": None,  # what it brings in is compared key by key
    "waivers": None,
    "seed": "source",
    "model": "source",
    "axes": "source",
    "inputs": "source",
    "outputs": "source",
    "export": "export",
    "stress": "stress",
    "stress.add.because": None,
    "stress.leave_out.because": None,
    "simplify": "simplify",
    "rewrites": "rewrite",
    "rewrites.because": None,
    "precision": "calibrate",
    "precision.io": "lower",
    "precision.overrides": "lower",
    "precision.base": "source",  # PyTorch's own result in that type is a reference
    "precision.float": "source",  # as the base
    "precision.calibration": "calibrate",
    "precision.search": "calibrate",  # a quantised base to try needs ranges
    "precision.overrides.because": None,
    "build": "build",
    "matrix": None,  # runs beside the recipe's own
    "bench": "bench",
    "accept": None,
}
_ALONE = frozenset({"bench", "score"})  # no later step reads what these produce


def first(key: str) -> str | None:
    """The first step that ``key`` (dotted, without list indices) touches. Raises KeyError for an unknown key."""
    parts = key.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in FIRST:
            return FIRST[prefix]
    raise KeyError(key)


def steps(keys: Iterable[str]) -> tuple[str, ...]:
    """Every step that a change of ``keys`` touches, in order."""
    touched: set[str] = set()
    for key in keys:
        step = first(key)
        if step is not None:
            touched |= {step} if step in _ALONE else set(NAMES[NAMES.index(step) :])
    return tuple(name for name in NAMES if name in touched)
