"""What the toolchain and the target GPU take: opset, targets, types."""

from __future__ import annotations

from collections.abc import Iterator

from engine import toolchain
from engine.document import KeyPath
from engine.errors import Problem, RecipeError
from engine.plan import opset_of
from engine.recipe import LoadedRecipe


def problems(loaded: LoadedRecipe) -> Iterator[Problem]:
    """Problems of ``build`` and ``export.opset`` with the toolchain, and of types that the target lacks."""
    recipe, at = loaded.recipe, loaded.document.problem
    spec = recipe.build.toolchain if recipe.build and recipe.build.toolchain else "current"
    try:
        tool = toolchain.resolve(spec)
    except RecipeError as error:
        yield at(("build", "toolchain"), f"build.toolchain: {error.problems[0].what}", error.problems[0].hint)
        return
    opset, limit = opset_of(recipe), toolchain.opset_limit(tool.module, tool.version)
    if opset is not None and opset > limit:
        what = f"export.opset: {opset} is above {limit}, the newest that {tool.module} {tool.version} takes"
        yield at(("export", "opset"), what, "the parser itself would not say so")
    target = recipe.build.target if recipe.build else None
    if target is None:
        return
    targets = toolchain.targets(tool.module, tool.version)
    if targets and target not in targets:
        what = f"build.target: {tool.module} {tool.version} does not build for {target}"
        yield at(("build", "target"), what, f"it builds for {', '.join(targets)}")
    for where, kind in _types(loaded):
        first = toolchain.first_target(kind)
        if first is not None and int(target[2:]) < first:
            what = f"{kind} needs sm{first} or newer; build.target is {target}"
            yield at(where, what)


def _types(loaded: LoadedRecipe) -> Iterator[tuple[KeyPath, str]]:
    precision = loaded.recipe.precision
    if precision is None:
        return
    if precision.base:
        yield ("precision", "base"), precision.base
    for index, override in enumerate(precision.overrides or ()):
        yield ("precision", "overrides", index, "type"), override.type
