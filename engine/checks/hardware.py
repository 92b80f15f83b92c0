"""What the toolchain and the target GPU take: opset, targets, types."""

from __future__ import annotations

from collections.abc import Iterator

from engine import compatibility, toolchain
from engine.document import KeyPath
from engine.errors import Problem, RecipeError
from engine.plan import opset_of
from engine.recipe import LoadedRecipe
from engine.toolchain import Toolchain


def problems(loaded: LoadedRecipe) -> Iterator[Problem]:
    """Problems of ``build`` and ``export.opset`` with the toolchain, and of types that the target lacks.

    An interpreter that the recipe names is not started: what depends on its TensorRT is left to :func:`asked`.
    """
    try:
        tool = toolchain.find(_spec(loaded))
    except RecipeError as error:
        yield _unusable(loaded, error)
        return
    if tool.version:
        yield from _taken(loaded, tool)
    target = loaded.recipe.build.target if loaded.recipe.build else None
    for where, kind in _types(loaded) if target else ():
        first = compatibility.first_target(kind)
        if first is not None and int(str(target)[2:]) < first:
            what = f"{kind} needs sm{first} or newer; build.target is {target}"
            yield loaded.document.problem(where, what)
    yield from _matrix(loaded)


def _matrix(loaded: LoadedRecipe) -> Iterator[Problem]:
    """Targets of the matrix that lack a type, or that none of its toolchains builds for."""
    matrix = loaded.recipe.matrix
    specs = (matrix.toolchains if matrix else None) or (_spec(loaded),)
    tools = [tool for spec in specs if (tool := _known(spec)) is not None and tool.version]
    for index, target in enumerate((matrix.targets if matrix else None) or ()):
        where = ("matrix", "targets", index)
        for _, kind in _types(loaded):
            first = compatibility.first_target(kind)
            if first is not None and int(target[2:]) < first:
                yield loaded.document.problem(where, f"{kind} needs sm{first} or newer; this target is {target}")
                break
        for tool in tools:
            known = compatibility.targets(tool.module, tool.version)
            if known and target not in known:
                what = f"{tool.module} {tool.version} does not build for {target}"
                yield loaded.document.problem(where, what, f"it builds for {', '.join(known)}")


def _known(spec: str) -> Toolchain | None:
    """A toolchain that need not be installed; None for one of which nothing is known without asking it."""
    try:
        return toolchain.of_version(spec) if "==" in spec else toolchain.find(spec)
    except RecipeError:
        return None


def asked(loaded: LoadedRecipe) -> list[Problem]:
    """What :func:`problems` cannot tell of ``toolchain: path:...``: starts that interpreter and asks it."""
    spec = _spec(loaded)
    if not spec.startswith("path:"):
        return []
    try:
        return list(_taken(loaded, toolchain.resolve(spec)))
    except RecipeError as error:
        return [_unusable(loaded, error)]


def _spec(loaded: LoadedRecipe) -> str:
    return (loaded.recipe.build.toolchain if loaded.recipe.build else None) or "current"


def _unusable(loaded: LoadedRecipe, error: RecipeError) -> Problem:
    what = f"build.toolchain: {error.problems[0].what}"
    return loaded.document.problem(("build", "toolchain"), what, error.problems[0].hint)


def _taken(loaded: LoadedRecipe, tool: Toolchain) -> Iterator[Problem]:
    """The opset and the target, held against one TensorRT."""
    recipe, at = loaded.recipe, loaded.document.problem
    opset, limit = opset_of(recipe), compatibility.opset_limit(tool.module, tool.version)
    if opset is not None and opset > limit:
        what = f"export.opset: {opset} is above {limit}, the newest that {tool.module} {tool.version} takes"
        yield at(("export", "opset"), what, "the parser itself would not say so")
    version = tuple(int(part) for part in tool.version.split(".")[:2])
    for where, kind in _types(loaded):
        first = compatibility.first_version(tool.module, kind)
        if first is not None and version < first:
            needed = ".".join(map(str, first))
            yield at(where, f"{kind} needs {tool.module} {needed} or newer; the toolchain has {tool.version}")
    target = recipe.build.target if recipe.build else None
    if target is None:
        return
    targets = compatibility.targets(tool.module, tool.version)
    if targets and target not in targets:
        what = f"build.target: {tool.module} {tool.version} does not build for {target}"
        yield at(("build", "target"), what, f"it builds for {', '.join(targets)}")


def _types(loaded: LoadedRecipe) -> Iterator[tuple[KeyPath, str]]:
    precision = loaded.recipe.precision
    if precision is None:
        return
    if precision.base:
        yield ("precision", "base"), precision.base
    for index, kind in enumerate(precision.search.base if precision.search else ()):
        yield ("precision", "search", "base", index), kind
    for index, override in enumerate(precision.overrides or ()):
        yield ("precision", "overrides", index, "type"), override.type
