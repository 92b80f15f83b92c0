"""Proof by running: what a rule matches and what it puts there, on the same inputs, side by side.

``prove_rule`` uses the rule's own ``proof``; ``prove_application`` the matched part of a real graph.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from engine.errors import RecipeError, StepError
from engine.rules import fragment, samples
from engine.rules.apply import Prover, RuleRefusedError, apply_rule
from engine.rules.bounds import Interval
from engine.rules.constants import Array, dims_of, element_type, tensor_of
from engine.rules.equal import Comparison, compare
from engine.rules.evaluate import CannotRunError, Evaluator
from engine.rules.language import InputSpec, Rule, Tolerance
from engine.rules.match import Match
from engine.rules.pattern import Pattern, PatternNode
from engine.rules.samples import Kind
from engine.rules.verdict import Proof

MAX_ELEMENTS = 4_000_000  # of all inputs of one trial; larger shapes are left out
DEFAULT_SIZES = (1, 2, 5)
_TRIES = 64  # assignments of sizes to unknown axes


class _Tally:
    """Collects comparisons into a Proof."""

    def __init__(self, limit: Tolerance) -> None:
        self.limit, self.cases, self.numbers, self.worst = limit, 0, 0, 0.0
        self.why, self.runtimes = "", set[str]()

    def add(self, before: Evaluator, after: Evaluator, feeds: Mapping[str, Array], label: str) -> bool:
        """Run both; False when the original itself does not run on these inputs."""
        try:
            expected = before(feeds)
        except CannotRunError:
            return False
        self.runtimes |= {before.runtime, after.runtime}
        self.cases += 1
        try:
            found = compare(expected, after(feeds), self.limit)
        except CannotRunError as error:
            found = Comparison(f"the replacement does not run: {error}")
        self.numbers += found.numbers
        self.worst = max(self.worst, found.max_abs)
        if found.why and not self.why:
            self.why = f"{found.why}, with {label}"
        return True

    def proof(self, nothing: str = "no inputs were found on which the matched part runs") -> Proof:
        why = self.why or (nothing if self.numbers == 0 else "")
        return Proof(not why, why, self.cases, self.numbers, self.worst, tuple(sorted(self.runtimes)))


def prove_rule(rule: Rule) -> Proof:
    """Run the rule's own proof: all its sizes, attributes, types, values. Never raises for an unequal rule."""
    tally = _Tally(rule.proof.equal)
    untried: dict[str, str] = {}
    tried: set[str] = set()
    for number, form in enumerate(_forms(rule)):
        before, after = form.build(rule), form.build(rule)
        invalid = _invalid(before)
        if invalid:
            untried |= dict.fromkeys(form.options(), invalid)
            continue
        try:
            apply_rule(after, rule, matches=1, prover=None)
        except RuleRefusedError as error:
            untried |= dict.fromkeys(form.options(), error.failure.symptom)
            continue
        except (StepError, RecipeError) as error:
            return Proof(False, f"the rule does not fire on its own proof ({form.label()}): {error}")
        tried |= set(form.options())
        one, two = Evaluator(before), Evaluator(after)
        fed = {name: spec for name, spec in form.inputs.items() if not samples.is_constant(spec[1])}
        for trial, kinds in enumerate(itertools.product(*(form.kinds(rule, name) for name in fed))):
            rng = np.random.default_rng([number, trial])
            chosen = dict(zip(fed, kinds, strict=True))
            feeds = {name: samples.make(chosen[name], np.dtype(spec[0]), form.shape(rule, name), rng)
                     for name, spec in fed.items()}  # fmt: skip
            feeds = {form.inner(rule, name): array for name, array in feeds.items()}
            shown = ", ".join(f"{name} = {samples.show(kind)}" for name, kind in chosen.items())
            if not tally.add(one, two, feeds, f"{shown}; {form.label()}"):
                return Proof(False, f"the proof's own inputs do not run ({shown}; {form.label()})")
    for option, invalid in untried.items():
        if option not in tried:
            return Proof(False, f"the proof never runs with {option}: {invalid}")
    return tally.proof("the proof compares no number")


def _invalid(model: ir.Model) -> str:
    """Why ONNX itself does not allow this combination (a type that an opset lacks), or nothing."""
    try:
        onnx.shape_inference.infer_shapes(ir.to_proto(model), check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        return str(error).strip().splitlines()[0]
    return ""


@dataclass(frozen=True)
class _Form:
    """One structure of a proof: sizes, attributes, and for each input its type and (constant) kind."""

    opset: int
    sizes: Mapping[str, int]
    attributes: Mapping[str, Any]
    inputs: Mapping[str, tuple[str, Kind]]

    def options(self) -> list[str]:
        parts = {**self.sizes, **self.attributes, **{f"{n} type": spec[0] for n, spec in self.inputs.items()}}
        return [*(f"{name} {value}" for name, value in parts.items()), f"opset {self.opset}"]

    def label(self) -> str:
        return ", ".join(self.options())

    def shape(self, rule: Rule, name: str) -> tuple[int, ...]:
        return tuple(d if isinstance(d, int) else self.sizes[d] for d in rule.proof.inputs[name].shape)

    def kinds(self, rule: Rule, name: str) -> tuple[Kind, ...]:
        return tuple(kind for kind in rule.proof.inputs[name].values if not samples.is_constant(kind))

    def inner(self, rule: Rule, name: str) -> str:
        return name if name in rule.match.inputs else f"context.{name}"

    def build(self, rule: Rule) -> ir.Model:
        given = {}
        for name, (dtype, kind) in self.inputs.items():
            shape = self.shape(rule, name)
            value = ir.Value(name=self.inner(rule, name), shape=ir.Shape(shape),
                             type=ir.TensorType(ir.DataType.from_numpy(np.dtype(dtype))))  # fmt: skip
            if samples.is_constant(kind):
                array = samples.make(kind, np.dtype(dtype), shape, np.random.default_rng(0))
                value.const_value = ir.tensor(array, name=value.name)
            given[self.inner(rule, name)] = value
        model = fragment.build(_whole(rule), given, self.attributes, {"": self.opset, "com.microsoft": 1})
        fragment.infer(model)
        return model


def _forms(rule: Rule) -> Iterator[_Form]:
    proof = rule.proof
    optional = [name for name in proof.inputs if rule.where.get(name, {}).get("optional")]
    left_out = itertools.chain.from_iterable(
        itertools.combinations(optional, count) for count in range(len(optional) + 1)
    )
    for gone in list(left_out):
        names = [name for name in proof.inputs if name not in gone]
        choices = [list(_choices(proof.inputs[name])) for name in names]
        for opset, sizes, attributes, picked in itertools.product(
            proof.opsets, _product(proof.axes), _product(proof.attributes), itertools.product(*choices)
        ):
            yield _Form(opset, sizes, attributes, dict(zip(names, picked, strict=True)))


def _choices(spec: InputSpec) -> Iterator[tuple[str, Kind]]:
    """Types times constants; kinds that are fed share one structure."""
    constants = [kind for kind in spec.values if samples.is_constant(kind)]
    fed = [kind for kind in spec.values if not samples.is_constant(kind)]
    for dtype in spec.dtypes:
        yield from ((dtype, kind) for kind in constants)
        if fed:
            yield dtype, fed[0]


def _product(options: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(options, picked, strict=True)) for picked in itertools.product(*options.values())]


def _whole(rule: Rule) -> Pattern:
    """The context followed by the match, as one text."""
    context = rule.proof.context
    if context is None:
        return rule.match
    inside = set(rule.match.inputs)

    def rename(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name if not name or name in inside else f"context.{name}" for name in names)

    nodes = [
        PatternNode(n.op, n.domain, rename(n.inputs), rename(n.outputs), n.attributes) for n in context.nodes
    ]
    constants = dict(zip(rename(context.constants), context.constants.values(), strict=True))
    outer = tuple(name for name in rule.match.inputs if name not in context.outputs)
    return Pattern(
        tuple(dict.fromkeys((*rename(context.inputs), *outer))),
        rule.match.outputs,
        (*nodes, *rule.match.nodes),
        {**constants, **rule.match.constants},
    )


def prove_application(
    match: Match,
    before: ir.Model,
    after: ir.Model,
    *,
    axes: Mapping[str, tuple[int, ...]] | None = None,
    known: Mapping[ir.Value, Interval] | None = None,
) -> Proof:
    """Compare the matched part of a graph with its replacement at sizes of its symbolic axes.

    ``axes`` maps a symbol to the sizes to try. Inputs take the kinds of values that the rule's proof
    names for them, or ordinary and corner ones; where ``known`` bounds a value, it stays inside.
    """
    tally = _Tally(match.rule.proof.equal)
    names = [value.name or "" for value in before.graph.inputs]
    untyped = [name for name in names if (v := match.values[name]) is not None and element_type(v) is None]
    if untyped:
        return Proof(False, f"the element type of {', '.join(untyped)} is unknown; run shape inference first")
    try:
        one, two = Evaluator(before), Evaluator(after)
    except CannotRunError as error:
        return Proof(False, f"cannot be run on this machine: {error}")
    for number, case in enumerate(_cases(axes or {})):
        for shapes in itertools.islice(_shapes(match, names, case), _TRIES):
            if _trials(tally, match, (one, two), shapes, known or {}, number):
                break
    return tally.proof()


def application_prover(axes: Mapping[str, tuple[int, ...]] | None = None) -> Prover:
    """A prover for :func:`apply_rule` that tries these sizes of the model's symbolic axes."""

    def judge(match: Match, before: ir.Model, after: ir.Model, known: Mapping[ir.Value, Interval]) -> Proof:
        return prove_application(match, before, after, axes=axes, known=known)

    return judge


def _cases(axes: Mapping[str, tuple[int, ...]]) -> list[dict[str, int]]:
    """Sizes in step (all first, all second, ...), then one trial with them crossed."""
    longest = max((len(sizes) for sizes in axes.values()), default=len(DEFAULT_SIZES))
    sizes = {name: tuple(given) or DEFAULT_SIZES for name, given in axes.items()}
    steps = [{name: given[i % len(given)] for name, given in sizes.items()} for i in range(longest)]
    crossed = {name: given[(i + 1) % len(given)] for i, (name, given) in enumerate(sizes.items())}
    return steps + ([crossed] if crossed not in steps else [])


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
    tally: _Tally, match: Match, pair: tuple[Evaluator, Evaluator], shapes: Mapping[str, tuple[int, ...]],
    known: Mapping[ir.Value, Interval], number: int,
) -> bool:  # fmt: skip
    """All kinds of values at one set of shapes; False when the matched part runs with none of them."""
    if sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes.values()) > MAX_ELEMENTS:
        return False
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
    spec = match.rule.proof.inputs.get(name)
    named = tuple(kind for kind in spec.values if not samples.is_constant(kind)) if spec else ()
    if match.rule.where.get(name, {}).get("finite"):
        return named or ("normal", "huge")
    dtype = element_type(value)
    assert dtype is not None
    return named or samples.default_kinds(dtype.numpy())


def _feed(
    match: Match, name: str, kind: Kind, shapes: Mapping[str, tuple[int, ...]],
    known: Mapping[ir.Value, Interval], rng: np.random.Generator,
) -> Array:  # fmt: skip
    value = match.values[name]
    dtype = element_type(value) if value is not None else None
    assert value is not None and dtype is not None
    measured = match.rule.where.get(name, {}).get("size_of")
    if measured:
        return np.full(shapes[name], _size(match, measured, shapes), dtype=dtype.numpy())
    array = samples.make(kind, dtype.numpy(), shapes[name], rng)
    bounds = known.get(value)
    if bounds is not None and dtype.is_floating_point():
        array = np.clip(array, *np.asarray([bounds.low, bounds.high]).astype(dtype.numpy()))
    return array


def _size(match: Match, measured: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> int:
    """The size that a ``size_of`` input has when the measured input has its trial shape."""
    name, axis = fragment.canonical(match).get(measured["value"], measured["value"]), measured["axis"]
    if name in shapes:
        return shapes[name][axis]
    tensor = tensor_of(match.values[name])
    return int(tensor.numpy().shape[axis]) if tensor is not None else 1
