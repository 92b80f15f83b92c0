"""Find where a rule's pattern occurs in a graph, and say why it does not where it nearly does.

A match is anchored at the node that makes the pattern's last output and grows backwards over inputs;
parts that hang on other outputs are then looked for among the users of values already matched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from engine.rules import by_op, conditions, upstream
from engine.rules.interval import Known
from engine.rules.language import Rule
from engine.rules.pattern import Pattern
from engine.rules.seek import Seeker, State, Trail


@dataclass(frozen=True)
class Match:
    """One occurrence. ``nodes`` are in the pattern's order; ``values`` and ``attributes`` go by pattern name.

    A value is None where an optional input was left out, an attribute None where it is not set.
    """

    rule: Rule
    nodes: tuple[ir.Node, ...]
    values: Mapping[str, ir.Value | None]
    attributes: Mapping[str, Any]

    @property
    def root(self) -> ir.Node:
        """The node that makes the pattern's last output."""
        return self.nodes[_anchor(self.rule.match)]

    def value(self, name: str) -> ir.Value:
        """The value bound to ``name``, which must not be an optional input that was left out."""
        value = self.values[name]
        assert value is not None
        return value


@dataclass(frozen=True)
class Miss:
    """How close the nearest candidate came: its anchor node, nodes matched so far, and why it failed.

    ``rank`` orders misses; see :class:`engine.rules.seek.Trail`.
    """

    node: str
    matched: int
    total: int
    reason: str
    rank: float = 0.0

    @property
    def near(self) -> bool:
        """Whether it is worth telling at a node that somebody asks about: more than half of the pattern is there."""
        return self.matched * 2 > self.total or self.total == 1

    def __str__(self) -> str:
        return f"nearest: {self.node}, {self.matched} of {self.total} nodes match, but {self.reason}"


class Search:
    """The matches of one rule in one graph, found as they are asked for.

    Subgraphs are graphs of their own: a match never crosses their border. ``imports`` are the model's
    opsets, ``known`` memoises bounds, anchors in ``skip`` are passed over. With ``within``, a match must hold
    one of these nodes.
    """

    def __init__(
        self,
        graph: ir.Graph,
        rule: Rule,
        imports: Mapping[str, int],
        known: Known | None = None,
        skip: Collection[ir.Node] = (),
        within: Collection[ir.Node] | None = None,
    ) -> None:
        self.graph, self.rule, self.imports, self.skip, self.within = graph, rule, imports, skip, within
        self.known = Known() if known is None else known
        self.nearest: Miss | None = None  # among the candidates looked at so far

    def __iter__(self) -> Iterator[Match]:
        """Matches that share no node, in graph order."""
        taken: set[ir.Node] = set()
        for node in self.candidates():
            match = self.at(node, taken)
            if match is not None:
                taken |= {n for n in match.nodes if not _stays(self.rule, n, match)}
                yield match

    def candidates(self) -> list[ir.Node]:
        """The nodes at which a match can be anchored."""
        anchors = frozenset(self.rule.anchors)
        nodes = self.graph if self.within is None else _around(self.rule, self.within)
        return [node for node in nodes if (node.op_type, node.domain) in anchors and node not in self.skip]

    def at(self, node: ir.Node, taken: Collection[ir.Node] = ()) -> Match | None:
        """The match anchored at ``node`` that uses none of ``taken``; a failure may become ``nearest``."""
        trail = Trail()
        match = next(self._at(node, trail, taken), None)
        if match is None and (self.nearest is None or trail.rank > self.nearest.rank):
            total = len(self.rule.match.nodes) or 1
            self.nearest = Miss(
                f"{node.name} ({node.op_type})", trail.matched, total, trail.reason, trail.rank
            )
        return match

    def _at(self, node: ir.Node, trail: Trail, taken: Collection[ir.Node]) -> Iterator[Match]:
        rule = self.rule
        if rule.ops:
            yield from self._of_op(node, trail, taken)
            return
        seeker = Seeker(rule, trail, self.imports)
        for state in seeker.node(_anchor(rule.match), node, State()):
            for whole in seeker.rest(state):
                reason = _refusal(rule, whole, self.known, taken)
                if reason is None:
                    nodes = tuple(whole.nodes[index] for index in range(len(rule.match.nodes)))
                    if self.within is None or any(one in self.within for one in nodes):
                        yield Match(rule, nodes, whole.values, whole.attributes)
                else:
                    trail.note(whole, reason)

    def _of_op(self, node: ir.Node, trail: Trail, taken: Collection[ir.Node]) -> Iterator[Match]:
        if self.rule.upstream:
            yield from self._with_upstream(node, trail)
            return
        bound = by_op.bind(self.rule, node, self.imports.get(node.domain))
        if isinstance(bound, str):
            trail.note(State(), f"it {bound}", right_operator=True)
            return
        rule, nodes, values, attributes = bound
        state = State(dict(enumerate(nodes)), values, attributes)
        reason = by_op.refusal(rule.where, values) or _refusal(rule, state, self.known, taken)
        if reason is None:
            yield Match(rule, nodes, values, attributes)
        else:
            trail.note(state, reason)


    def _with_upstream(self, node: ir.Node, trail: Trail) -> Iterator[Match]:
        bound = upstream.bind(self.rule, node)
        if isinstance(bound, str):
            trail.note(State(), f"it {bound}", right_operator=True)
        else:
            yield Match(*bound, {})


def _around(rule: Rule, nodes: Collection[ir.Node]) -> Iterable[ir.Node]:
    """Where a match that holds one of ``nodes`` can be anchored: they, and what a pattern can reach from them."""
    found = dict.fromkeys(nodes)
    edge = list(found)
    for _ in rule.match.nodes[1:]:
        users = (user for node in edge for value in node.outputs for user in value.consumers())
        makers = (maker for node in edge for value in node.inputs if value and (maker := value.producer()))
        edge = [node for node in dict.fromkeys((*users, *makers)) if node not in found]
        found |= dict.fromkeys(edge)
    return found


def _stays(rule: Rule, node: ir.Node, match: Match) -> bool:
    """A node whose value is shared with others remains, so that several matches may use it."""
    shared = {match.values.get(name) for name, where in rule.where.items() if where.get("shared")}
    return any(output in shared for output in node.outputs)


def _anchor(pattern: Pattern) -> int:
    made = pattern.producer(pattern.outputs[-1])
    assert made is not None  # checked when the rule was loaded
    return made[0]


def _refusal(rule: Rule, state: State, known: Known, taken: Collection[ir.Node]) -> str | None:
    """Why a structurally complete match may not be used: overlap, users outside, or ``where``."""
    for node in state.nodes.values():
        if node in taken:
            return f"{node.name} ({node.op_type}) belongs to another match"
    outside = _outside_use(rule, state) or _not_convex(rule, state)
    if outside:
        return outside
    scope = conditions.Scope(state.values, known)
    for name, wanted in rule.where.items():
        if name in state.values:
            reason = conditions.refusal(wanted, state.values[name], scope)
        elif name in state.attributes or not rule.ops:  # one of several operators may not have it
            why = conditions.attribute_refusal(wanted, state.attributes.get(name))
            reason = f"attribute {name} {why}" if why else None
        else:
            reason = None
        if reason:
            return reason
    return None


def _outside_use(rule: Rule, state: State) -> str | None:
    inside = set(state.nodes.values())
    free = {state.values.get(name) for name in rule.match.outputs}
    free |= {state.values.get(name) for name, where in rule.where.items() if where.get("shared")}
    for node in inside:
        for value in node.outputs:
            if value in free:
                continue
            if value.is_graph_output():
                return f"{value.name} is an output of the graph as well"
            for user in value.consumers():
                if user not in inside:
                    return f"{value.name} is also used by {user.name} ({user.op_type})"
    return None


def _not_convex(rule: Rule, state: State) -> str | None:
    """With several outputs, an input must not depend on an output: the replacement would feed itself."""
    if len(rule.match.outputs) < 2 or len(state.nodes) == 1:
        return None
    outputs = {state.values.get(name) for name in rule.match.outputs}
    inside = set(state.nodes.values())
    stack = [v for name in rule.match.inputs if (v := state.values.get(name)) is not None]
    seen: set[ir.Value] = set()
    while stack:
        value = stack.pop()
        if value in outputs:
            return f"an input depends on the output {value.name}"
        node = value.producer()
        if value in seen or node is None or node in inside:
            continue
        seen.add(value)
        stack += [v for v in node.inputs if v is not None]
    return None
