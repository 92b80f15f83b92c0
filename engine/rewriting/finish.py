"""The end of a repair: is the rewritten graph valid, the same to its callers, and equal as a whole; then write it."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from engine.errors import StepError
from engine.graph import external, files, inventory
from engine.rewriting.result import Whole
from engine.rewriting.subject import Subject
from engine.rules import samples
from engine.rules.applied import DEFAULT_SIZES, MAX_ELEMENTS
from engine.rules.constants import Array, dims_of, element_type
from engine.rules.evaluate import CannotRunError, Evaluator
from engine.rules.language import Tolerance
from engine.rules.tally import Tally

MARGIN = 10  # what follows a replacement may make its rounding larger
BUDGET = 120.0  # seconds of comparing one file; the reference evaluator is slow on large graphs
_WORDS = ("ordinary values", "ones", "zeros", "corner values")
_ORDINARY: tuple[samples.Kind, ...] = ("normal", "ones", "zeros")
_WHOLE: tuple[samples.Kind, ...] = ({"integers": [0, 3]}, "ones", "zeros")


def weights_name(path: Path) -> str:
    """The weight file that a rewritten graph gets when the original has its weights outside."""
    return f"{path.stem}.weights"


def targets(path: Path) -> dict[str, Path]:
    """Names of all files that may be written for the graph at ``path``, each with the file that it comes from."""
    outside = {name: (path.parent / name).resolve() for name in external.locations(path)}
    made = {weights_name(path): path.resolve()} if outside else {}
    return {**made, **outside, path.name: path.resolve()}


def copy(path: Path, folder: Path) -> Path:
    """The file as it is, with its weights."""
    for name in (*external.locations(path), path.name):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        shutil.copyfile(path.parent / name, part)
        os.replace(part, target)
    return folder / path.name


def write(
    subject: Subject,
    folder: Path,
    tolerance: Tolerance,
    sizes: Mapping[str, tuple[int, ...]],
    any_io: bool,
    reference: bool = False,
    corners: bool = True,
) -> tuple[Path, Whole]:
    """Check the rewritten graph and put it into ``folder``. Raises StepError, and writes nothing, when it is wrong."""
    name = subject.path.name
    weights = weights_name(subject.path) if external.locations(subject.path) else None
    with tempfile.TemporaryDirectory(prefix=".portwright-", dir=folder) as scratch:
        draft = Path(scratch) / name
        files.save(subject.model, draft, weights=weights)
        _check(draft)
        before, after = files.load(subject.path), files.load(draft)
        if not any_io:
            _same_boundary(before, after, subject.reshaped)
        whole = compare(before, after, tolerance, sizes, reference, corners)
        if whole.different:
            raise StepError(f"the rewritten graph gives other outputs: {whole.why}")
        for made in (*([weights] if weights and (draft.parent / weights).exists() else []), name):
            os.replace(draft.parent / made, folder / made)
    return folder / name, whole


def _check(draft: Path) -> None:
    try:
        onnx.checker.check_model(str(draft), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise StepError(
            f"after the rewrites the graph is not valid ONNX: {str(error).strip().splitlines()[0]}"
        ) from error


def _same_boundary(before: ir.Model, after: ir.Model, reshaped: Collection[str] = ()) -> None:
    for what, olds, news in (("inputs", before.graph.inputs, after.graph.inputs),
                             ("outputs", before.graph.outputs, after.graph.outputs)):  # fmt: skip
        old, new = _described(before, olds, reshaped), _described(after, news, reshaped)
        if old != new:
            raise StepError(f"the rewrites changed the {what}: {', '.join(old)} became {', '.join(new)}")


def _described(model: ir.Model, values: Iterable[ir.Value], reshaped: Collection[str]) -> list[str]:
    return [f"{value.name} {value.dtype.name.lower() if value.dtype else '?'}"
            f"{'' if value.name in reshaped else list(dims_of(value) or [])}"
            for value in values if value.name not in model.graph.initializers]  # fmt: skip


def compare(
    before: ir.Model,
    after: ir.Model,
    tolerance: Tolerance,
    sizes: Mapping[str, tuple[int, ...]],
    reference: bool = False,
    corners: bool = True,
) -> Whole:
    """Both graphs as a whole on the same inputs, in the same runtime.

    With corner values where all rules are exact and, by ``corners``, meant for them. Rounding that a rule is allowed
    may grow in what follows it, so a tolerance above zero is taken MARGIN times.
    """
    random = inventory.random_nodes(before)
    if random:
        return Whole(why=f"not compared: it draws random numbers ({random[0]})")
    typed = {
        value.name or "": value
        for value in before.graph.inputs
        if value.name not in before.graph.initializers
    }
    if any(element_type(value) is None or dims_of(value) is None for value in typed.values()):
        return Whole(why="not compared: an input has no type or no rank")
    try:
        one, two = _pair(before, after, reference)
    except CannotRunError as error:
        return Whole(why=f"not compared: it does not run on this machine: {error}")
    exact = tolerance == Tolerance()
    limit = tolerance if exact else Tolerance(*(MARGIN * part for part in (
        tolerance.max_abs, tolerance.max_rel, tolerance.max_eps)))  # fmt: skip
    tally = Tally(limit)
    deadline = time.monotonic() + BUDGET
    for number, shapes in enumerate(_shapes(typed, sizes)):
        if sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes.values()) > MAX_ELEMENTS:
            continue
        for trial in range(4 if exact and corners else 3):
            if tally.numbers and time.monotonic() > deadline:
                break
            rng = np.random.default_rng([number, trial])
            feeds = {name: _feed(typed[name], shape, trial, rng) for name, shape in shapes.items()}
            shown = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
            tally.add(one, two, feeds, f"{_WORDS[trial]}, {shown}")
    proof = tally.proof(nothing="")
    if tally.numbers == 0 and not proof.why:
        return Whole(why="not compared: no inputs were found on which it runs")
    return Whole(
        proof.cases, proof.numbers, proof.max_abs, proof.runtimes, proof.why, different=not proof.equal
    )


def _pair(before: ir.Model, after: ir.Model, reference: bool) -> tuple[Evaluator, Recast]:
    """Both in one runtime: two of them round differently, and that is not the rules' doing."""
    one, two = Evaluator(before, reference), Evaluator(after, reference)
    if one.runtime != two.runtime:
        one, two = Evaluator(before, reference=True), Evaluator(after, reference=True)
    return one, Recast(two, before, after)


class Recast:
    """An evaluator of a graph whose inputs or outputs have wider integer types, called with the old ones."""

    def __init__(self, evaluator: Evaluator, before: ir.Model, after: ir.Model) -> None:
        self.evaluator, self.runtime = evaluator, evaluator.runtime
        self._inputs = _retyped(before.graph.inputs, after.graph.inputs)
        self._outputs = _retyped(after.graph.outputs, before.graph.outputs)

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        given = {name: array.astype(self._inputs.get(name, array.dtype)) for name, array in feeds.items()}
        found = self.evaluator(given)
        return {name: array.astype(self._outputs.get(name, array.dtype)) for name, array in found.items()}


def _retyped(these: Iterable[ir.Value], those: Iterable[ir.Value]) -> dict[str, np.dtype[Any]]:
    """Types of ``those`` where the value of the same name has another one in ``these``."""
    first = {value.name: value.dtype for value in these}
    return {
        value.name: value.dtype.numpy()
        for value in those
        if value.name and value.dtype is not None and first.get(value.name, value.dtype) != value.dtype
    }


def _shapes(
    typed: Mapping[str, ir.Value], sizes: Mapping[str, tuple[int, ...]]
) -> list[dict[str, tuple[int, ...]]]:
    found = {size for value in typed.values() for size in dims_of(value) or () if not isinstance(size, int)}
    rounds = max((len(sizes.get(symbol or "", DEFAULT_SIZES)) for symbol in found), default=1)

    def size(given: int | str | None, nth: int) -> int:
        if isinstance(given, int):
            return given
        options = sizes.get(given or "", DEFAULT_SIZES)
        return options[nth % len(options)]

    return [{name: tuple(size(given, nth) for given in dims_of(value) or ()) for name, value in typed.items()}
            for nth in range(rounds)]  # fmt: skip


def _feed(value: ir.Value, shape: tuple[int, ...], trial: int, rng: np.random.Generator) -> Array:
    dtype = element_type(value)
    assert dtype is not None  # checked by the caller
    kind = dtype.numpy()
    kinds = ("booleans", "ones", "zeros") if kind == np.bool_ else _WHOLE if kind.kind in "iu" else _ORDINARY
    return samples.make((*kinds, "edges")[trial], kind, shape, rng)
