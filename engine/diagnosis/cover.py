"""Name a set of nodes as a person would: the fewest, most general selectors that take nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from engine.precision import ops, selectors
from engine.precision.prepare import nodes
from engine.precision.selectors import module_of
from engine.recipe import FloatType, Override

_LINES = 3  # more exact lines than this, and one that takes a little more is better
_OVER = 2.0  # it takes at most this many times the nodes that it is for, unless the caller says less


@dataclass(frozen=True)
class _Line:
    override: Override
    takes: frozenset[str]
    rank: tuple[
        int, int, int
    ]  # among equals: module, module with op, op, node; few wildcards; the inner module


def cover(
    model: ir.Model,
    wanted: Sequence[str],
    indifferent: frozenset[str],
    held: frozenset[str],
    kind: FloatType,
    because: str,
    over: float = _OVER,
) -> tuple[Override, ...]:
    """Overrides that take every node of ``wanted`` in a prepared ``model``, and no other that computes.

    ``indifferent`` are nodes that have the type already, ``held`` those that another override gives another one.
    Where the exact answer is longer than a few lines and whole modules say it in half as many, these may take up
    to ``over`` times the nodes.
    """
    computing = {
        node.name or "": node for node in nodes(model) if ops.touches_float(node) and not ops.is_free(node)
    }
    asked = frozenset(name for name in wanted if name in computing)
    counted = {name: node for name, node in computing.items() if name in asked or name not in indifferent}
    clash = [node for node in nodes(model) if (node.name or "") in held]
    lines = [
        line
        for line in _lines([computing[name] for name in wanted if name in computing], counted, kind, because)
        if not any(selectors.fits(line.override, node) for node in clash)
    ]
    exact = _greedy([line for line in lines if line.takes <= asked], asked)
    if len(exact) > _LINES:
        near = _greedy([line for line in lines if len(line.takes) <= over * len(line.takes & asked)], asked)
        taken = frozenset().union(*(line.takes for line in near))
        if 2 * len(near) <= len(exact) and len(taken) <= over * len(asked):
            exact = near
    rest = [Override(kind, because, node=selectors.exactly(name)) for name in wanted if name not in computing]
    return (*(line.override for line in exact), *rest)


def _greedy(lines: Sequence[_Line], wanted: frozenset[str]) -> list[_Line]:
    chosen: list[_Line] = []
    left = set(wanted)
    while left:
        best = max(
            lines, key=lambda line: (len(line.takes & left), -len(line.takes), *(-part for part in line.rank))
        )
        assert best.takes & left  # a node's own line is always among them
        chosen.append(best)
        left -= best.takes
    return chosen


def _lines(
    wanted: Sequence[ir.Node], counted: dict[str, ir.Node], kind: FloatType, because: str
) -> Iterator[_Line]:
    seen: set[Override] = set()
    for node in wanted:
        for rank, override in _names(node, kind, because):
            if override in seen:
                continue
            seen.add(override)
            takes = frozenset(name for name, other in counted.items() if selectors.fits(override, other))
            path = override.module or ""
            yield _Line(override, takes, (rank, path.count("*"), -len(path)))


def _names(node: ir.Node, kind: FloatType, because: str) -> Iterator[tuple[int, Override]]:
    for pattern in dict.fromkeys(modules(module_of(node))):
        yield 0, Override(kind, because, module=pattern)
        yield 1, Override(kind, because, module=pattern, op=node.op_type)
    yield 2, Override(kind, because, op=node.op_type)
    yield 3, Override(kind, because, node=selectors.exactly(node.name or ""))


def modules(path: str) -> Iterator[str]:
    """The module, those around it, and each of them with ``*`` for every number and for all but the last part."""
    parts = path.split(".") if path else []
    for length in range(len(parts), 0, -1):
        head = parts[:length]
        if not any(set(part) & set("*?[") for part in head):
            yield ".".join(head)
            yield ".".join("*" if part.isdigit() else part for part in head)
            if length > 1 and not head[-1].isdigit():
                yield f"**.{head[-1]}"
