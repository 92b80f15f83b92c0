"""Where the trials of a file's inputs begin: sizes that it fixes, sizes with a symbol, sizes computed from others."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from engine.errors import StepError
from engine.initial.asked import Asked, Hint
from engine.initial.attempts import Trial
from engine.initial.signature import starting_shape

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
Size = int | str  # a number, or a symbol; an axis without one gets INPUT[AXIS], which no other has
Shapes = Mapping[str, tuple[Size, ...]]


def begin(
    inputs: Mapping[str, ir.Value], kinds: Mapping[str, str], path: Path, asked: Asked
) -> dict[str, Trial]:
    """Trials by input. Raises StepError where a hint is not what the file says."""
    shapes = {name: _read(name, value, path, asked.inputs.get(name)) for name, value in inputs.items()}
    given = _given(shapes, path, asked.inputs)
    symbols = list(
        dict.fromkeys(size for shape in shapes.values() for size in shape if isinstance(size, str))
    )
    open_symbols = [symbol for symbol in symbols
                    if not isinstance(given.get(symbol), int) and _formula(symbol, symbols) is None]  # fmt: skip
    names = _names(open_symbols, given)
    sizes = {symbol: size for symbol, size in given.items() if isinstance(size, int)}
    for shape in shapes.values():
        for size, fresh in zip(shape, starting_shape((), len(shape), {}), strict=True):
            if size in open_symbols:
                wanted = asked.axes.get(names.get(str(size), ""))
                sizes.setdefault(str(size), wanted.opt if wanted is not None and wanted.opt > 1 else fresh)
    trials = {}
    for name, shape in shapes.items():
        trial = trials[name] = Trial(kinds[name], [], settled=True, sized=True)
        for axis, size in enumerate(shape):
            if isinstance(size, int):
                trial.fixed[axis] = "fixed in the file"
            elif isinstance(given.get(size), int):
                trial.fixed[axis] = "as given"
            elif size not in open_symbols:
                trial.fixed[axis] = f"the file computes it as {size}, and an axis cannot follow others"
            else:
                trial.tied[axis] = size
                trial.named |= {axis: names[size]} if size in names else {}
            trial.shape.append(size_of(size, sizes))
    return trials


def _read(name: str, value: ir.Value, path: Path, hint: Hint | None) -> tuple[Size, ...]:
    if value.shape is None:
        if hint is None or hint.shape is None:
            what = f"{path.name} does not say how many axes its input '{name}' has"
            raise StepError(what, fix=f"say it with --input {name}:DTYPE:SHAPE", usage=True)
        return tuple(f"{name}[{axis}]" for axis in range(len(hint.shape)))
    dims = [dim if isinstance(dim, int) else dim.value or -1 for dim in value.shape]
    # Some writers put -1 where a size is open.
    return tuple(f"{name}[{axis}]" if isinstance(dim, int) and dim < 1 else dim
                 for axis, dim in enumerate(dims))  # fmt: skip


def _given(shapes: Shapes, path: Path, hints: Mapping[str, Hint]) -> dict[str, Size]:
    """What the user says of a symbol: its size, or the name of its axis."""
    given: dict[str, Size] = {}
    for name, hint in hints.items():
        if hint.shape is None:
            continue
        if len(hint.shape) != len(shapes[name]):
            what = f"--input {name}: it has {len(shapes[name])} axes in {path.name}, not {len(hint.shape)}"
            raise StepError(what, fix="leave the shape out, or give as many sizes", usage=True)
        for axis, (there, told) in enumerate(zip(shapes[name], hint.shape, strict=True)):
            if isinstance(there, str):
                given[there] = told
            elif there != told:
                what = f"--input {name}: axis {axis} is fixed to {there} in {path.name}, it cannot be {told}"
                raise StepError(what, fix=f"give {there}, or write the file with that axis open", usage=True)
    return given


def _names(symbols: Sequence[str], given: Mapping[str, Size]) -> dict[str, str]:
    """Names of axes, made words of letters, digits and underscores; none for an axis that has no symbol."""
    names = {symbol: str(given[symbol]) for symbol in symbols if symbol in given}
    for symbol in symbols:
        if symbol in names or symbol.endswith("]"):
            continue
        word = re.sub(r"\W+", "_", symbol, flags=re.ASCII).strip("_") or "axis"
        word = f"axis_{word}" if word[0].isdigit() else word
        while word in names.values():
            word += "_"
        names[symbol] = word
    return names


def _formula(symbol: str, symbols: Collection[str]) -> ast.expr | None:
    """``past + seq``, where both are symbols of the file, as an expression; None for a plain symbol."""
    try:
        tree = ast.parse(symbol, mode="eval").body
    except SyntaxError:
        return None
    parts = [node for node in ast.walk(tree) if not isinstance(node, ast.operator | ast.expr_context)]
    known = all(isinstance(part, ast.BinOp | ast.Constant) or (isinstance(part, ast.Name) and part.id in symbols)
                for part in parts)  # fmt: skip
    return tree if known and isinstance(tree, ast.BinOp) else None


def size_of(size: Size, sizes: Mapping[str, int]) -> int:
    """The number that a size of the file comes to with these sizes of its symbols."""
    if isinstance(size, int) or size in sizes:
        return sizes[size] if isinstance(size, str) else size
    return _result(ast.parse(size, mode="eval").body, sizes)


def _result(tree: ast.expr, sizes: Mapping[str, int]) -> int:
    if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
        return _OPERATORS[type(tree.op)](_result(tree.left, sizes), _result(tree.right, sizes))
    if isinstance(tree, ast.Name) and tree.id in sizes:
        return sizes[tree.id]
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return tree.value
    raise StepError(
        f"the size '{ast.unparse(tree)}' cannot be computed", fix="give it with --input", usage=True
    )
