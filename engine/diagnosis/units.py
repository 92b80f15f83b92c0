"""What can be kept wide: one tensor, which means the node that makes it and the nodes that read it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import onnx_ir as ir

from engine.precision import ops
from engine.precision.formats import is_float, is_weight
from engine.precision.prepare import nodes, values
from engine.precision.sources import readers


@dataclass(frozen=True)
class Unit:
    """A tensor and the names of the computing nodes around it: with all of them wide it is never narrow.

    ``readers`` are those among ``nodes`` that read it, also behind nodes that only move data; ``read_by`` holds the
    readers that are wide already as well, which suffer from its rounding no less.
    """

    value: str
    maker: str
    readers: tuple[str, ...]
    read_by: tuple[str, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.maker, *self.readers) if self.maker else self.readers


def units(model: ir.Model, narrow: Collection[str]) -> tuple[Unit, ...]:
    """Every float tensor of a prepared ``model`` that touches a computing node of ``narrow``, in graph order."""
    position = {node: index for index, node in enumerate(nodes(model))}
    found: list[Unit] = []
    for value in dict.fromkeys(values(model)):
        if not is_float(value) or not is_root(value):
            continue
        behind = [node for node in readers(value) if node is not None and not ops.is_free(node)]
        behind.sort(key=position.__getitem__)
        maker = value.producer()
        made = maker.name or "" if maker is not None and not ops.is_free(maker) else ""
        unit = Unit(
            value.name or "",
            made if made in narrow else "",
            tuple(name for node in behind if (name := node.name or "") in narrow and name != made),
            tuple(name for node in behind if (name := node.name or "") != made),
        )
        if unit.nodes:
            found.append(unit)
    return tuple(found)


def is_root(value: ir.Value) -> bool:
    """Whether ``value`` begins here: an input, a weight, or the result of a node that does more than move data."""
    node = value.producer()
    if node is None:
        return is_weight(value) or value.is_graph_input()
    return not ops.is_free(node) or ops.makes_float(node)
