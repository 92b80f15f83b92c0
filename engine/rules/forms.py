"""The structures that a rule's own proof asks for: sizes, attributes, types and constants, one model each."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from engine.rules import fragment, samples
from engine.rules.language import InputSpec, Rule
from engine.rules.pattern import Pattern, PatternNode
from engine.rules.samples import Kind


@dataclass(frozen=True)
class Form:
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


def forms(rule: Rule) -> Iterator[Form]:
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
            yield Form(opset, sizes, attributes, dict(zip(names, picked, strict=True)))


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
