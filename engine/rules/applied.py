"""Proof of one application: the matched part of a real graph against what takes its place."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from engine.rules import fragment, samples
from engine.rules.applications import Prover
from engine.rules.constants import Array, dims_of, element_type
from engine.rules.evaluate import CannotRunError, Evaluator
from engine.rules.interval import Interval
from engine.rules.match import Match
from engine.rules.samples import Kind
from engine.rules.tally import Tally
from engine.rules.verdict import Proof

MAX_ELEMENTS = 4_000_000  # of all inputs of one trial; larger shapes are left out
DEFAULT_SIZES = (1, 2, 5)
_TRIES = 64  # assignments of sizes to unknown axes


def prove_application(
    match: Match,
    before: ir.Model,
    after: ir.Model,
    *,
    axes: Mapping[str, tuple[int, ...]] | None = None,
    known: Mapping[ir.Value, Interval] | None = None,
) -> Proof:
    """Compare the matched part of a graph with its replacement at sizes of its symbolic axes.

    ``axes`` maps a symbol to the sizes to try; others, which shape inference may have made up for a size
    that has a name elsewhere, take sizes that occur in the match where their own fit nothing. Inputs take
    the kinds of values that the rule's proof names for them, or ordinary and corner ones; where ``known``
    bounds a value, it stays inside.
    """
    tally = Tally(match.rule.proof.equal)
    names = [value.name or "" for value in before.graph.inputs]
    untyped = [name for name in names if (v := match.values[name]) is not None and element_type(v) is None]
    if untyped:
        return Proof(False, f"the element type of {', '.join(untyped)} is unknown; run shape inference first")
    try:
        one, two = (Evaluator(model, match.rule.proof.reference) for model in (before, after))
    except CannotRunError as error:
        return Proof(False, f"cannot be run on this machine: {error}")
    sizes = {symbol: DEFAULT_SIZES for symbol in _symbols(match, names)} | dict(axes or {})
    for number, case in enumerate(_cases(sizes)):
        known_sizes = {symbol: size for symbol, size in case.items() if symbol in (axes or {})}
        shapes = itertools.chain(_shapes(match, names, case), _shapes(match, names, known_sizes))
        candidates = itertools.islice(shapes, _TRIES)
        _try_case(tally, match, (one, two), candidates, known or {}, number)
    return tally.proof()


def _try_case(
    tally: Tally,
    match: Match,
    pair: tuple[Evaluator, Evaluator],
    candidates: Iterable[Mapping[str, tuple[int, ...]]],
    known: Mapping[ir.Value, Interval],
    number: int,
) -> None:
    """Run the first shapes that fit and on which the matched part runs; note it when all are too large."""
    large = ""
    for shapes in candidates:
        if sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes.values()) > MAX_ELEMENTS:
            large = large or ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
        elif _trials(tally, match, pair, shapes, known, number):
            return
    if large:
        tally.skipped.append(large)


def application_prover(axes: Mapping[str, tuple[int, ...]] | None = None) -> Prover:
    """A prover for :func:`apply_rule` that tries these sizes of the model's symbolic axes.

    Matches whose two sides are the same to the byte (layers of one kind) share one run.
    """
    done: dict[str, Proof] = {}

    def judge(match: Match, before: ir.Model, after: ir.Model, known: Mapping[ir.Value, Interval]) -> Proof:
        key = _fingerprint(match, before, after, known)
        if key not in done:
            done[key] = prove_application(match, before, after, axes=axes, known=known)
        return done[key]

    return judge


def _fingerprint(match: Match, before: ir.Model, after: ir.Model, known: Mapping[ir.Value, Interval]) -> str:
    digest = hashlib.sha256()
    for model in (before, after):
        digest.update(ir.to_proto(model).SerializeToString(deterministic=True))
    inputs = [match.values[value.name or ""] for value in before.graph.inputs]
    digest.update(repr([known.get(value) for value in inputs if value is not None]).encode())
    return digest.hexdigest()


def _cases(axes: Mapping[str, tuple[int, ...]]) -> list[dict[str, int]]:
    """Sizes in step (all first, all second, ...), then one trial with them crossed."""
    longest = max((len(sizes) for sizes in axes.values()), default=len(DEFAULT_SIZES))
    sizes = {name: tuple(given) or DEFAULT_SIZES for name, given in axes.items()}
    steps = [{name: given[i % len(given)] for name, given in sizes.items()} for i in range(longest)]
    crossed = {name: given[(i + 1) % len(given)] for i, (name, given) in enumerate(sizes.items())}
    return steps + ([crossed] if crossed not in steps else [])


def _symbols(match: Match, names: list[str]) -> list[str]:
    """The named dynamic axes of the inputs."""
    found = [dims_of(match.value(name)) or () for name in names]
    return sorted({size for dims in found for size in dims if isinstance(size, str)})


def _shapes(match: Match, names: list[str], case: Mapping[str, int]) -> Iterator[dict[str, tuple[int, ...]]]:
    """Concrete shapes of the inputs; axes without a known symbol try sizes that occur elsewhere."""
    dims: dict[str, list[Any]] = {}
    for name in names:
        value = match.values[name]
        assert value is not None
        found = dims_of(value)
        if found is None:
            return
        dims[name] = [f"?{name}{axis}" if size is None else size for axis, size in enumerate(found)]
    symbols = {size for sizes in dims.values() for size in sizes if isinstance(size, str)}
    open_ones = sorted(symbol for symbol in symbols if symbol not in case)
    pool = list(dict.fromkeys([*case.values(), *(s for d in dims.values() for s in d if isinstance(s, int)),
                               *DEFAULT_SIZES[1:]]))  # fmt: skip
    for picked in itertools.product(pool, repeat=len(open_ones)):
        sizes = {**case, **dict(zip(open_ones, picked, strict=True))}
        yield {
            name: tuple(d if isinstance(d, int) else sizes[d] for d in given) for name, given in dims.items()
        }


def _trials(
    tally: Tally, match: Match, pair: tuple[Evaluator, Evaluator], shapes: Mapping[str, tuple[int, ...]],
    known: Mapping[ir.Value, Interval], number: int,
) -> bool:  # fmt: skip
    """All kinds of values at one set of shapes; False when the matched part runs with none of them."""
    kinds = {name: _kinds(match, name) for name in shapes}
    rounds = max((len(options) for options in kinds.values()), default=1)
    ran = False
    for trial in range(rounds * (2 if len(shapes) > 1 else 1)):
        rng = np.random.default_rng([number, trial])
        chosen = {name: options[(trial + shift * (trial // rounds)) % len(options)]
                  for shift, (name, options) in enumerate(kinds.items())}  # fmt: skip
        feeds = {name: _feed(match, name, chosen[name], shapes, known, rng) for name in shapes}
        shown = ", ".join(f"{name} = {samples.show(chosen[name])} {list(shapes[name])}" for name in shapes)
        ran |= tally.add(*pair, feeds, shown)
    return ran


def _kinds(match: Match, name: str) -> tuple[Kind, ...]:
    value = match.values[name]
    assert value is not None
    if name in match.rule.proof.values:
        return match.rule.proof.values[name]
    spec = match.rule.proof.inputs.get(name)
    named = tuple(kind for kind in spec.values if not samples.is_constant(kind)) if spec else ()
    dtype = element_type(value)
    assert dtype is not None
    if match.rule.where.get(name, {}).get("finite"):
        return named or ("normal", "huge")
    if not named:
        return samples.default_kinds(dtype.numpy())
    # A proof may name easy values only; a graph of somebody else's gets ordinary and large ones all the same.
    wide: Kind = {"uniform": [-1000.0, 1000.0]}
    extra: tuple[Kind, ...] = ("normal", wide) if dtype.is_floating_point() and "edges" not in named else ()
    return (*named, *(kind for kind in extra if kind not in named))


def _feed(
    match: Match, name: str, kind: Kind, shapes: Mapping[str, tuple[int, ...]],
    known: Mapping[ir.Value, Interval], rng: np.random.Generator,
) -> Array:  # fmt: skip
    value = match.values[name]
    dtype = element_type(value) if value is not None else None
    assert value is not None
    assert dtype is not None
    measured = match.rule.where.get(name, {}).get("size_of")
    if measured:
        return np.full(shapes[name], _size(match, measured, shapes), dtype=dtype.numpy())
    if isinstance(kind, Mapping) and "index_of" in kind:
        kind = {"integers": [0, max(_size(match, kind["index_of"], shapes) - 1, 0)]}
    if isinstance(kind, Mapping) and "boxes_of" in kind:
        return _boxes(match, kind["boxes_of"], shapes, shapes[name][0], rng).astype(dtype.numpy())
    array = samples.make(kind, dtype.numpy(), shapes[name], rng)
    bounds = known.get(value)
    if bounds is not None and dtype.is_floating_point():
        array = np.clip(array, *np.asarray([bounds.low, bounds.high]).astype(dtype.numpy()))
    return array


def _boxes(
    match: Match, wanted: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], count: int, rng: np.random.Generator
) -> Array:  # fmt: skip
    """[count, 5]: image, left, top, right, bottom; half of the edges are whole or half numbers after scaling."""
    images, height, width = (
        _size(match, {"value": wanted["value"], "axis": axis}, shapes) for axis in (0, 2, 3)
    )
    ends = np.array([width, height, width, height])
    edges = rng.uniform(-0.3 * ends - 1, 1.3 * ends + 1, size=(count, 4))
    edges[::2] = np.round(2 * edges[::2]) / 2
    scale = float(match.attributes.get(wanted.get("scale", "")) or 1)
    return np.column_stack([rng.integers(0, max(images, 1), size=count), edges / scale])


def _size(match: Match, measured: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> int:
    """The size that a ``size_of`` input has when the measured input has its trial shape."""
    name, axis = fragment.canonical(match).get(measured["value"], measured["value"]), measured["axis"]
    if name in shapes:
        return int(shapes[name][axis])
    dims = dims_of(match.value(name))
    assert dims is not None  # a constant's own shape
    return int(dims[axis] or 0)
