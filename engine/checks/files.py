"""Files that a recipe names: are they there, and does a Python file define what is asked, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from engine.document import KeyPath
from engine.errors import Problem, quoted
from engine.plan_model import weights_path
from engine.recipe import LoadedRecipe, Weights
from engine.schema import dotted, nearest


def python(loaded: LoadedRecipe, where: KeyPath, written: str) -> Iterator[Problem]:
    """``FILE:FUNCTION``: the file parses and its top level defines the function."""
    at, key = loaded.document.problem, dotted(where)
    file_name, _, function = written.partition(":")
    folder = loaded.beside(*where)
    try:
        tree = ast.parse((folder / file_name).read_bytes())
    except OSError as error:
        yield at(
            where, f"{key}: {quoted(file_name)[1:-1]} cannot be read: {error.strerror}", f"looked in {folder}"
        )
        return
    except RecursionError:
        yield at(where, f"{key}: {file_name} is nested too deep to be read")
        return
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        spot = f"{file_name}, line {line}" if line else file_name
        yield at(where, f"{key}: {spot}: {getattr(error, 'msg', error)}")
        return
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {target.id for node in tree.body if isinstance(node, ast.Assign)
              for target in node.targets if isinstance(target, ast.Name)}  # fmt: skip
    names |= {alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom)
              for alias in node.names}  # fmt: skip
    if function not in names:
        yield at(where, f"{key}: {file_name} defines no '{function}'", nearest(function, names))


def present(loaded: LoadedRecipe, where: KeyPath, written: str) -> Iterator[Problem]:
    """A file or folder relative to the recipe that states it."""
    folder = loaded.beside(*where)
    try:
        there = (folder / written).exists()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        yield loaded.document.problem(where, f"{dotted(where)}: {quoted(written)} is no path: {why}")
        return
    if not there:
        what = f"{dotted(where)}: there is no {quoted(written)}"
        yield loaded.document.problem(where, what, f"looked in {folder}")


def weights(loaded: LoadedRecipe, where: KeyPath, item: Weights) -> Iterator[Problem]:
    """Weights in a package or beside the recipe; ``where`` is the mapping that holds package, path and sha256."""
    at, key = loaded.document.problem, dotted(where)
    if item.path is None:
        yield at(where, f"{key}: 'path' is missing", "file or folder that the function gets", key=True)
        return
    try:
        path = weights_path(item, loaded.beside(*where, "path"))
        there = path.exists()
    except ModuleNotFoundError:
        what = f"{key}: package '{item.package}' is not installed"
        yield at((*where, "package"), what, f"pip install {item.package}")
        return
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        yield at((*where, "path"), f"{key}: {quoted(item.path)} is no path: {why}")
        return
    if not there:
        base = f"package '{item.package}'" if item.package else str(loaded.beside(*where, "path"))
        yield at((*where, "path"), f"{key}: there is no {quoted(item.path)} in {base}")
    elif item.sha256 and path.is_dir():
        yield at((*where, "sha256"), f"{key}: sha256 is for a file; the path is a folder")
