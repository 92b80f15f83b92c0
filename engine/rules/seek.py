"""The backtracking search: every way in which a pattern's nodes fit a graph, grown from one node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx_ir as ir

from engine.rules.constants import tensor_of
from engine.rules.equality import attribute_of, constant_refusal, default_of, plain, same_value
from engine.rules.language import Rule
from engine.rules.pattern import Capture, PatternNode

COMMUTATIVE = frozenset(("Add", "Mul", "And", "Or", "Xor", "Max", "Min", "Equal", "Sum"))


@dataclass
class Trail:
    """Remembers the failure that came furthest."""

    rank: float = -1.0  # nodes matched, and a half where the next one is of the right operator
    matched: int = 0
    reason: str = ""

    def note(self, state: State, reason: str, right_operator: bool = False) -> None:
        rank = len(state.nodes) + (0.5 if right_operator else 0.0)
        if rank > self.rank:
            self.rank, self.matched, self.reason = rank, len(state.nodes), reason


@dataclass(frozen=True)
class State:
    nodes: Mapping[int, ir.Node] = field(default_factory=dict)
    values: Mapping[str, ir.Value | None] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def with_value(self, name: str, value: ir.Value | None) -> State:
        return State(self.nodes, {**self.values, name: value}, self.attributes)

    def with_attribute(self, name: str, value: Any) -> State:
        return State(self.nodes, self.values, {**self.attributes, name: value})

    def with_node(self, index: int, node: ir.Node) -> State:
        return State({**self.nodes, index: node}, self.values, self.attributes)


class Seeker:
    """Backtracking search; every method yields the states in which its part fits."""

    def __init__(self, rule: Rule, trail: Trail, imports: Mapping[str, int]) -> None:
        self.rule, self.pattern, self.trail, self.imports = rule, rule.match, trail, imports

    def rest(self, state: State) -> Iterator[State]:
        """Match the nodes that do not feed the anchor, through users of values already matched."""
        for index, wanted in enumerate(self.pattern.nodes):
            if index in state.nodes:
                continue
            bound = [v for name in wanted.inputs if (v := state.values.get(name)) is not None]
            if not bound:
                continue
            for user in dict.fromkeys(bound[0].consumers()):
                for longer in self.node(index, user, state):
                    yield from self.rest(longer)
            return
        if len(state.nodes) == len(self.pattern.nodes):
            yield state

    def node(self, index: int, node: ir.Node, state: State) -> Iterator[State]:
        wanted = self.pattern.nodes[index]
        if index in state.nodes:
            if state.nodes[index] is node:
                yield state
            return
        if (node.op_type, node.domain) != (wanted.op, wanted.domain):
            self.trail.note(state, f"{node.name} is {node.op_type}, not {wanted.op}")
            return
        if node in state.nodes.values():
            return
        if len(node.outputs) < len(wanted.outputs):
            self.trail.note(state, f"{node.name} ({node.op_type}) has too few outputs")
            return
        started = self._attributes(wanted, node, state)
        if started is None:
            return
        started = started.with_node(index, node)
        for name, value in zip(wanted.outputs, node.outputs, strict=False):
            started = started.with_value(name, value) if name else started
        for inputs in self._orders(wanted, node, state):
            yield from self._inputs(wanted, node, inputs, started)

    def _orders(self, wanted: PatternNode, node: ir.Node, state: State) -> list[tuple[ir.Value | None, ...]]:
        given = tuple(node.inputs)
        while given and given[-1] is None:
            given = given[:-1]
        least = len(wanted.inputs)
        while least and self._optional(wanted.inputs[least - 1]):
            least -= 1
        if not least <= len(given) <= len(wanted.inputs):
            what = f"{node.name} ({node.op_type}) has {len(given)} inputs, not {len(wanted.inputs)}"
            self.trail.note(state, what)
            return []
        given += (None,) * (len(wanted.inputs) - len(given))
        if node.op_type in COMMUTATIVE and len(given) == 2:
            return [given, given[::-1]]
        return [given]

    def _optional(self, name: str) -> bool:
        return not name or bool(self.rule.where.get(name, {}).get("optional"))

    def _inputs(
        self, wanted: PatternNode, node: ir.Node, inputs: tuple[ir.Value | None, ...], state: State
    ) -> Iterator[State]:
        states: Iterator[State] = iter((state,))
        for name, value in zip(wanted.inputs, inputs, strict=True):
            states = self._each(states, name, value, node)
        yield from states

    def _each(
        self, states: Iterator[State], name: str, value: ir.Value | None, user: ir.Node
    ) -> Iterator[State]:
        for state in states:
            yield from self._value(name, value, user, state)

    def _value(self, name: str, value: ir.Value | None, user: ir.Node, state: State) -> Iterator[State]:
        at = f"{user.name} ({user.op_type})"
        if value is None or not name:
            if (value is None and self._optional(name)) or (value is None and not name):
                yield state.with_value(name, None) if name else state
            else:
                self.trail.note(
                    state, f"{at} {'lacks' if value is None else 'has'} an input that match has not"
                )
        elif name in state.values:
            if same_value(state.values[name], value):
                yield state
            else:
                bound = state.values[name]
                self.trail.note(
                    state, f"{at} uses {value.name} where {bound.name if bound else 'nothing'} is needed"
                )
        elif name in self.pattern.constants:
            yield from self._constant(name, value, at, state)
        else:
            yield from self._made(name, value, at, state)

    def _made(self, name: str, value: ir.Value, at: str, state: State) -> Iterator[State]:
        made = self.pattern.producer(name)
        if made is None:
            yield state.with_value(name, value)
            return
        producer = value.producer()
        wanted = self.pattern.nodes[made[0]].op
        if producer is None:
            kind = "a constant" if tensor_of(value) is not None else "an input of the graph"
            self.trail.note(state, f"{value.name}, used by {at}, is {kind}, not the output of {wanted}")
        elif value.index() != made[1]:
            self.trail.note(state, f"{value.name}, used by {at}, is another output of {producer.name}")
        elif producer.graph is not self._graph(state, producer):
            self.trail.note(state, f"{value.name}, used by {at}, is made outside this subgraph")
        else:
            yield from self.node(made[0], producer, state)

    @staticmethod
    def _graph(state: State, producer: ir.Node) -> Any:
        return next(iter(state.nodes.values()), producer).graph

    def _constant(self, name: str, value: ir.Value, at: str, state: State) -> Iterator[State]:
        wanted = self.pattern.constants[name]
        reason = constant_refusal(wanted, value)
        if reason:
            self.trail.note(state, f"{value.name}, used by {at}, {reason}")
        elif isinstance(wanted, Capture):
            tensor = tensor_of(value)
            assert tensor is not None
            yield from self._captured(wanted.name, tensor.numpy().tolist(), at, state.with_value(name, value))
        else:
            yield state.with_value(name, value)

    def _captured(self, name: str, found: Any, at: str, state: State) -> Iterator[State]:
        if name not in state.attributes:
            yield state.with_attribute(name, found)
        elif state.attributes[name] == found:
            yield state
        else:
            self.trail.note(state, f"{at}: @{name} is {found} here and {state.attributes[name]} elsewhere")

    def _attributes(self, wanted: PatternNode, node: ir.Node, state: State) -> State | None:
        reason = ""
        opset = self.imports.get(node.domain)
        for name, want in wanted.attributes.items():
            found = attribute_of(node, name, opset)
            if isinstance(want, Capture):
                if want.name in state.attributes and state.attributes[want.name] != found:
                    reason = f"@{want.name} is {found} here and {state.attributes[want.name]} elsewhere"
                state = state.with_attribute(want.name, found)
            elif found != plain(onnx.helper.get_attribute_value(want)):
                shown = plain(onnx.helper.get_attribute_value(want))
                reason = f"{name} is {found}, not {shown}"
        for name in node.attributes:
            found = attribute_of(node, name, opset)
            if name not in wanted.attributes and found != default_of(node, name, opset):
                reason = f"{name} is {found}, which match does not mention"
        if reason:
            self.trail.note(state, f"{node.name} ({node.op_type}): {reason}", right_operator=True)
            return None
        return state
