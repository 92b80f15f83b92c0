"""Rules for types: the whole graph computes in other integer types. It is changed and proven as one part.

An application is one operator that computes in the wider type from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import onnx_ir as ir

from engine.graph import provenance, retype
from engine.graph.integer_types import Type, number_range
from engine.rules.applications import Application, Applications, Prover, Refusal
from engine.rules.interval import Known
from engine.rules.language import Rule
from engine.rules.match import Match
from engine.rules.verdict import Proof


def apply_types(
    model: ir.Model, rule: Rule, prover: Prover | None, boundary: Collection[Type] = (),
    kept: Collection[Type] = (),
) -> tuple[Applications, str]:  # fmt: skip
    """Change ``model`` in place where that is proven; with why nothing could be changed, or "".

    Inputs and outputs keep their types, except those whose type is in ``boundary``. Types in ``kept`` are left alone.
    The proof is about the graph whose inputs and outputs keep theirs.
    """
    types = {narrow: wide for narrow, wide in types_of(rule).items() if narrow not in kept}
    before = _count(model)
    names = ", ".join(kind.name.lower() for kind in types)
    if not _holds(model, types):  # a copy of a large graph costs as much as the graph
        return Applications(rule.name, (), (), before, before), f"no operator of the graph computes in {names}"
    trial = model.clone()
    found = retype.widen(trial, (), types)
    refused = [Refusal(*_place(node), why) for node, why in retype.staying(model, types)]
    if found is None or not found.computing:
        nothing = "" if refused else f"no operator of the graph computes in {names}"
        return Applications(rule.name, (), tuple(refused), before, before), nothing
    proof = prover(_whole(model, rule, types), model, trial, Known()) if prover else None
    if proof is not None and not proof.equal:
        why = f"not proven equal: {proof.why}"
        refused += [Refusal(*_place(node), why) for node in found.computing]
        return Applications(rule.name, (), tuple(refused), before, before), ""
    done = retype.widen(model, boundary, types)
    assert done is not None  # as in the trial
    accepted = _accepted(model, rule, done, proof)
    return Applications(rule.name, accepted, tuple(refused), before, _count(model)), ""


def _holds(model: ir.Model, types: Collection[Type]) -> bool:
    ends = (*model.graph.inputs, *model.graph.initializers.values())
    made = (value for node in model.graph.all_nodes() for value in node.outputs)
    return any(value.dtype in types for value in (*ends, *made))


def types_of(rule: Rule) -> Mapping[Type, Type]:
    return {ir.DataType[narrow.upper()]: ir.DataType[wide.upper()] for narrow, wide in rule.types.items()}


def _whole(model: ir.Model, rule: Rule, types: Mapping[Type, Type]) -> Match:
    """The graph as a match of its own, its inputs of a narrow type filled with all of its numbers."""
    inputs = {value.name or "": value for value in model.graph.inputs}
    ranges = {
        name: ({"integers": [0, 3]}, {"integers": list(number_range(value.dtype))}, "edges")
        for name, value in inputs.items()
        if value.dtype is not None and value.dtype in types
    }
    return Match(replace(rule, proof=replace(rule.proof, values=ranges)), (), inputs, {})


def _accepted(
    model: ir.Model, rule: Rule, done: retype.Retyped, proof: Proof | None
) -> tuple[Application, ...]:
    added: dict[ir.Node, list[str]] = {}
    for node in model.graph.all_nodes():
        if node in done.added:
            node.metadata_props[provenance.RULE] = rule.name
            origin = done.added[node]
            if origin is not None:
                added.setdefault(origin, []).append(node.name or "")
    return tuple(
        Application(*_place(node), (), tuple(added.get(node, ())), proof if index == 0 else None)
        for index, node in enumerate(done.computing)
    )


def _place(node: ir.Node) -> tuple[str, str]:
    return node.name or "", node.metadata_props.get(provenance.MODULE, "")


def _count(model: ir.Model) -> int:
    return sum(1 for _ in model.graph.all_nodes())
