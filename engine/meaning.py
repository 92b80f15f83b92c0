"""What a recipe of the right form can still get wrong, found without importing or running the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from engine.checks import hardware, limits, model, rules, sizes, stress, values
from engine.errors import Place, Problem, RecipeError
from engine.recipe import LoadedRecipe, Override
from engine.schema import nearest

Check = Callable[[LoadedRecipe], Iterator[Problem]]


def problems(loaded: LoadedRecipe) -> list[Problem]:
    """Every semantic problem, in file order."""
    checks: dict[str, tuple[Check, ...]] = {
        "axes": (_axes,), "inputs": (_inputs, values.problems, sizes.memory), "outputs": (_outputs,),
        "model": (model.problems,), "hardware": (hardware.problems, _bench), "rewrites": (rules.problems,),
        "precision": (_precision,), "limits": (limits.problems,), "stress": (stress.problems,),
    }  # fmt: skip
    # What is wrong with the form of a rule file has its kind already.
    found = [replace(problem, kind=subject) if problem.kind == "recipe" else problem
             for subject, parts in checks.items() for part in parts for problem in part(loaded)]  # fmt: skip
    return sorted(found, key=lambda problem: problem.place or Place("", 0, 0))


def check(loaded: LoadedRecipe) -> None:
    """Raise RecipeError when :func:`problems` finds any."""
    found = problems(loaded)
    if found:
        raise RecipeError(found)


def _axes(loaded: LoadedRecipe) -> Iterator[Problem]:
    recipe, at = loaded.recipe, loaded.document.problem
    axes = recipe.axes or {}
    used = {size for item in recipe.inputs.values() for size in item.shape if isinstance(size, str)}
    for name, axis in axes.items():
        if not axis.min <= axis.opt <= axis.max:
            what = f"axes.{name}: min <= opt <= max does not hold for {axis.min}, {axis.opt}, {axis.max}"
            yield at(("axes", name), what, key=True)
        if name not in used:
            yield at(("axes", name), f"axis '{name}' is used by no input", nearest(name, used), key=True)


def _inputs(loaded: LoadedRecipe) -> Iterator[Problem]:
    recipe, at = loaded.recipe, loaded.document.problem
    axes = recipe.axes or {}
    for name, item in recipe.inputs.items():
        for index, size in enumerate(item.shape):
            if isinstance(size, str) and size not in axes:
                hint = nearest(size, axes) or "declare it under 'axes' with min, opt and max"
                yield at(("inputs", name, "shape", index), f"axis '{size}' is not declared", hint)


def _outputs(loaded: LoadedRecipe) -> Iterator[Problem]:
    recipe, at = loaded.recipe, loaded.document.problem
    for index, name in enumerate(recipe.outputs):
        if name in recipe.outputs[:index]:
            yield at(("outputs", index), f"output '{name}' stands twice")
        if name in recipe.inputs:
            yield at(("outputs", index), f"'{name}' is both an input and an output", "rename the output")


def _bench(loaded: LoadedRecipe) -> Iterator[Problem]:
    bench = loaded.recipe.bench
    if bench and bench.rounds == 0 and bench.warmup:
        what = "bench.warmup: does nothing with 'rounds: 0'"
        yield loaded.document.problem(("bench", "warmup"), what, "leave it out", key=True)


def _precision(loaded: LoadedRecipe) -> Iterator[Problem]:
    precision, at = loaded.recipe.precision, loaded.document.problem
    if precision is None:
        return
    base = precision.base or "fp32"
    yield from _repeated(loaded, precision.overrides or ())
    for index, override in enumerate(precision.overrides or ()):
        where = ("precision", "overrides", index)
        if not (override.module or override.op or override.node):
            yield at(where, f"precision.overrides[{index}]: names no layer", "add 'module', 'op' or 'node'")
        earlier = {item.type for item in (precision.overrides or ())[:index]}
        if override.type == base and earlier <= {base}:  # otherwise it may be an exception from one before it
            yield at((*where, "type"), f"precision.overrides[{index}]: the base is {base} already", "leave it out")
    if precision.io == "lower" and base == "fp32":
        yield at(("precision", "io"), "precision.io: 'lower' does nothing with base fp32")


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
