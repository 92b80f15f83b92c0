"""Where no few nodes are the cause: kinds of layers to keep wide, such as every layer norm."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import onnx_ir as ir

from engine.diagnosis.cover import modules
from engine.diagnosis.margin import Margin
from engine.precision import ops, selectors
from engine.precision.prepare import nodes
from engine.precision.selectors import module_of
from engine.recipe import FloatType, Override

_SHARE = 0.5  # a kind with more of the narrow nodes than this is no exception any more, but another base
_KINDS, _NEXT, _LINES = 32, 8, 3


@dataclass(frozen=True)
class Group:
    """One override and the narrow nodes that it takes."""

    override: Override
    nodes: frozenset[str]


def groups(
    model: ir.Model, narrow: Collection[str], held: Collection[str], kind: FloatType = "fp32"
) -> tuple[Group, ...]:
    """Kinds of layers in a prepared ``model``, by module pattern and by op, the smallest first; each in type ``kind``.

    A kind that takes a node of ``held`` is left out, because an override gives it another type.
    """
    everything = [node for node in nodes(model) if ops.touches_float(node)]
    free = {node.name or "" for node in everything if ops.is_free(node)}
    counted = [node for node in everything if (node.name or "") in narrow and (node.name or "") not in free]
    clash = [node for node in everything if (node.name or "") in held]
    patterns = dict.fromkeys(
        override
        for node in counted
        for override in (
            *(Override(kind, "", module=pattern) for pattern in modules(module_of(node)) if "*" in pattern),
            Override(kind, "", op=node.op_type),
        )
    )
    found: dict[frozenset[str], Group] = {}
    for override in patterns:
        if any(selectors.fits(override, node) for node in clash):
            continue
        takes = frozenset(node.name or "" for node in counted if selectors.fits(override, node))
        if len(takes) <= _SHARE * len(counted):
            found.setdefault(takes, Group(override, takes))
    return tuple(sorted(found.values(), key=lambda group: len(group.nodes)))[:_KINDS]


def choose(candidates: Collection[Group], margin: Callable[[frozenset[str]], Margin]) -> tuple[Group, ...]:
    """The smallest kind that passes, or up to three that pass together; empty when none do."""
    tried = [(margin(group.nodes), group) for group in candidates]
    good = [group for found, group in tried if found.good]
    if good:
        return (min(good, key=lambda group: len(group.nodes)),)
    order = [group for _, group in sorted(tried, key=lambda pair: pair[0].ratio)][:_NEXT]
    chosen = order[:1]
    while chosen and len(chosen) < _LINES:
        nodes_now = frozenset().union(*(group.nodes for group in chosen))
        rest = [(margin(nodes_now | group.nodes), group) for group in order if group not in chosen]
        if not rest:
            break
        found, best = min(rest, key=lambda pair: pair[0].ratio)
        chosen.append(best)
        if found.good:
            return tuple(chosen)
    return ()
