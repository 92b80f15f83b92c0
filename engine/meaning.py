"""What a recipe of the right form can still get wrong, found without importing or running the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from engine.checks import hardware, limits, model, precision, rules, sizes, stress, values
from engine.errors import Place, Problem, RecipeError
from engine.recipe import LoadedRecipe
from engine.schema import nearest

Check = Callable[[LoadedRecipe], Iterator[Problem]]


def problems(loaded: LoadedRecipe) -> list[Problem]:
    """Every semantic problem, in file order."""
    checks: dict[str, tuple[Check, ...]] = {
        "axes": (_axes,), "inputs": (_inputs, values.problems, sizes.memory), "outputs": (_outputs,),
        "model": (model.problems,), "hardware": (hardware.problems, _bench), "rewrites": (rules.problems,),
        "precision": (precision.problems,), "limits": (limits.problems,), "stress": (stress.problems,),
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
