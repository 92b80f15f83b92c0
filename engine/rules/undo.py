"""Rules that undo each other, found on what their own proofs are run on, before anything of a user's is touched."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from engine.errors import RecipeError, StepError
from engine.rules import op_proof
from engine.rules.apply import EndlessError, apply_rule
from engine.rules.constants import tensor_of
from engine.rules.equality import attribute_of, default_of
from engine.rules.forms import forms
from engine.rules.language import Rule
from engine.rules.seek import COMMUTATIVE

INSTANCES = 8  # graphs of one rule's proof from which the search starts
STATES = 64  # graphs that are looked at from one of them


def circles(rules: Sequence[Rule]) -> list[tuple[Rule, ...]]:
    """Rules that, one after the other, give the graph back that they began with; one that never ends stands alone.

    Equal up to names. Every set of rules is named once, at the rule that comes first.
    """
    found: dict[frozenset[Path], tuple[Rule, ...]] = {}
    for rule in rules:
        for model in _instances(rule):
            circle = _circle(model, rule, rules)
            if circle:
                found.setdefault(frozenset(one.path for one in circle), circle)
    return list(found.values())


def _instances(rule: Rule) -> Iterator[ir.Model]:
    if rule.ops:
        yield from [model for _, model, _ in op_proof.named(rule)][:INSTANCES]  # the suite takes too long to load
        return
    seen: set[str] = set()
    for form in forms(rule):
        key = repr((form.attributes, [spec[0] for spec in form.inputs.values()]))
        if key not in seen and len(seen) < INSTANCES:
            seen.add(key)
            yield form.build(rule)


def _circle(start: ir.Model, first: Rule, rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The way from ``start`` back to it that begins with ``first``, or nothing."""
    if not any(_may_feed(first, rule) for rule in rules):
        return ()
    home, states = _key(start), set[str]()
    edge: list[tuple[ir.Model, tuple[Rule, ...]]] = [(start, ())]
    for model, way in edge:  # grows while it is gone through
        for rule in rules if way else (first,):
            if way and not (_may_feed(way[-1], rule) and _may_stand(rule, model)):
                continue
            after = ir.from_proto(ir.to_proto(model))
            try:
                apply_rule(after, rule, prover=None)
            except EndlessError:
                return (rule,)
            except (StepError, RecipeError):
                continue
            key = _key(after)
            if key == home:
                return (*way, rule)
            if key not in states and len(states) < STATES:
                states.add(key)
                edge.append((after, (*way, rule)))
    return ()


def _may_feed(one: Rule, two: Rule) -> bool:
    """Whether ``two`` may match something that ``one`` puts there; unknown where that is no text."""
    wanted = set(two.ops) | {node.op for node in two.match.nodes}
    return one.replace is None or bool(wanted & {node.op for node in one.replace.nodes})


def _may_stand(rule: Rule, model: ir.Model) -> bool:
    return bool(set(rule.anchors) & {(node.op_type, node.domain) for node in model.graph})


def _key(model: ir.Model) -> str:
    """A digest of the graph that no name is in."""
    values: dict[ir.Value, str] = {value: f"input {nth}" for nth, value in enumerate(model.graph.inputs)}
    opset = model.opset_imports.get("")
    nodes = []
    for node in model.graph:
        if node.op_type == "Constant":
            continue
        fed = [_of(value, values) if value is not None else "" for value in node.inputs]
        while fed and not fed[-1]:
            fed.pop()
        if node.op_type in COMMUTATIVE:
            fed.sort()
        said = _digest(node.domain, node.op_type, *fed, repr(sorted(_attributes(node, opset).items())))
        nodes.append(said)
        values |= {value: f"{said} {nth}" for nth, value in enumerate(node.outputs)}
    return _digest(*sorted(nodes), *(_of(value, values) for value in model.graph.outputs))


def _of(value: ir.Value, values: Mapping[ir.Value, str]) -> str:
    tensor = tensor_of(value)
    if tensor is not None and value not in values:
        array = tensor.numpy()
        return _digest(str(array.dtype), str(array.shape), array.tobytes().hex())
    return values.get(value, "")


def _attributes(node: ir.Node, opset: int | None) -> dict[str, str]:
    """As text, those left out that have their default."""
    found = {}
    for name, attribute in node.attributes.items():
        if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            found[name] = str(attribute.value)
            continue
        value = attribute_of(node, name, opset)
        with contextlib.suppress(KeyError):
            if value == default_of(node, name, opset):
                continue
        found[name] = repr(value)
    return found


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
