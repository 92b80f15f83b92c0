"""What each step's result follows from: the one table that the store, its keys and ``portwright why`` go by.

A step is given the parts of the plan and the earlier results that are named here and no others (:func:`narrowed`,
:func:`seen`), so that a need that is missing is an error and never a stale result. A step without a line is run every
time: it costs nothing, or its result is of the moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from engine.plan import Plan
from engine.values import StepResult

FILES = "*"  # all files of a result, and none of its facts
READS = "reads"  # among ``more``: the step runs the customer's Python, and what that reads counts
_PLACES = ("folder", "recipe_file")  # where the recipe lies: nothing follows from it


@dataclass(frozen=True)
class Needs:
    """``plan``: dotted fields of the plan.

    ``results``: steps before it; as ``step:artifact`` one of their files alone, as ``step:*`` all of these.

    ``packages``: distributions whose versions count. ``more``: what else counts, see :mod:`engine.keys`; it is there
    that the fields in ``partly`` are turned into the little that follows from them.
    """

    plan: tuple[str, ...]
    results: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    partly: tuple[str, ...] = ()


_ONNX = ("ml-dtypes", "numpy", "onnx", "onnx-ir")
_TORCH = (*_ONNX, "torch")
_RUNTIME = (*_ONNX, "onnxruntime", "onnxruntime-gpu")
_MODEL = ("seed", "model", "axes", "inputs", "outputs", "shapes")
_SAMPLES = f"source:{FILES}"
_FP32 = ("export", "simplify", "rewrite")
_BUILD = tuple(f"build.{name}" for name in ("target", "workspace_mib", "time_limit_s", "memory_limit_mib"))

NEEDS: Mapping[str, Needs] = {
    "source": Needs((*_MODEL, "precision.floats"), (), (*_TORCH, *_RUNTIME), (READS, "files")),
    "export": Needs((*_MODEL, "opset", "exporter"), ("source",), (*_TORCH, *_RUNTIME, "onnxscript"),
                    (READS, "files", "both", "taken"), ("accept", "build")),
    "check": Needs(("model",), ("source", "export"), _ONNX, ("opset_limit",), ("build",)),
    "stress": Needs((*_MODEL, "stress"), ("source", "export"), (*_TORCH, *_RUNTIME), (READS, "files", "case_files")),
    "simplify": Needs(("simplify", "shapes"), (_SAMPLES, "export"), (*_RUNTIME, "onnxsim")),
    "rewrite": Needs(("rewrites", "library", "axes"), ("export", "simplify"), (*_RUNTIME, "onnx-graphsurgeon"),
                     ("auto",), ("build",)),
    "parity": Needs(("shapes", "stress.leave_out"), (_SAMPLES, "stress", *_FP32), _RUNTIME, ("strict",), ("accept",)),
    "calibrate": Needs(("seed", "axes", "inputs", "shapes", "precision.calibration"), (_SAMPLES, *_FP32), _RUNTIME,
                       (READS, "files", "asked"), ("precision.base", "precision.overrides", "precision.search")),
    "lower": Needs(("precision.base", "precision.io", "precision.overrides", "precision.floats"),
                   (*_FP32, "calibrate"), _ONNX),
    "rehearse": Needs(("shapes",), (_SAMPLES, *_FP32, "lower"), _RUNTIME),
    "build": Needs(("name", *_BUILD, "axes", "inputs", "shapes"), ("lower",), (), ("toolchain",), ("build",)),
    "fused": Needs(("shapes",), (_SAMPLES, "lower", "build:plan"), _RUNTIME),
    "bench": Needs((*_MODEL, "bench"), ("source", *_FP32), (*_TORCH, *_RUNTIME), (READS, "files", "cpu")),
}  # fmt: skip


def steps_of(needs: Needs) -> frozenset[str]:
    """The steps whose results are needed."""
    return frozenset(item.partition(":")[0] for item in needs.results)


def narrowed(plan: Plan, step: str) -> Plan:
    """The plan with nothing but what the step's line names; anything else is an AttributeError."""
    needs = NEEDS.get(step)
    return plan if needs is None else _part(plan, (*_PLACES, *needs.plan, *needs.partly))


def _part(whole: Any, names: tuple[str, ...]) -> Any:
    part = object.__new__(type(whole))
    for field in fields(whole):
        inner = tuple(name.removeprefix(f"{field.name}.") for name in names if name.startswith(f"{field.name}."))
        value = getattr(whole, field.name)
        if field.name in names:
            object.__setattr__(part, field.name, value)
        elif inner:
            object.__setattr__(part, field.name, _part(value, inner))
        else:  # a default would answer in its place
            object.__setattr__(part, field.name, _Missing(field.name))
    return part


class _Missing:
    """In the place of a field that a step must not read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the step's line in engine/needs.py does not name '{self._name}'")

    __iter__ = __bool__ = __len__ = lambda self: self.__getattr__("")


def seen(earlier: Mapping[str, StepResult], step: str) -> dict[str, StepResult]:
    """The earlier results that the step's line names, in their order."""
    needs = NEEDS.get(step)
    if needs is None:
        return dict(earlier)
    wanted = {name: part for name, _, part in (item.partition(":") for item in needs.results)}
    return {
        name: replace(result, facts={}) if wanted[name] == FILES else result
        for name, result in earlier.items()
        if name in wanted
    }
