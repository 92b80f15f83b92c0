"""Which rows of a table an input's numbers look up: a row that no sample reads is a row that nobody compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from engine import runtime
from engine.graph import files
from engine.samples import Array
from engine.stress import content

LEAST = 64  # rows; the ends, repeated and ascending numbers read a smaller table throughout


@dataclass
class Table:
    """A constant with ``rows`` along the axis that is looked up; ``seen`` are those that a sample has read."""

    name: str
    rows: int
    inputs: set[str] = field(default_factory=set)
    indices: set[str] = field(default_factory=set)  # names of the tensors that hold the row numbers
    seen: set[int] = field(default_factory=set)


class Lookups:
    """The tables of the graph at ``path``, and the part of the graph that computes which rows it reads."""

    def __init__(self, path: Path) -> None:
        model = files.load(path)
        self._tables = _tables(model)
        computed = {value.name: value for node in model.graph for value in node.outputs if value.name}
        wanted = sorted({name for table in self._tables.values() for name in table.indices} & set(computed))
        self._session = _session(model, [computed[name] for name in wanted], path) if wanted else None

    def __bool__(self) -> bool:
        return bool(self._tables)

    def see(self, feeds: Mapping[str, Array]) -> None:
        """Count the rows that one sample reads. Raises StepError where the runtime cannot tell them."""
        values = dict(feeds) | (runtime.run(self._session, feeds) if self._session else {})
        for table in self._tables.values():
            for name in table.indices:
                table.seen |= {int(row) % table.rows for row in np.unique(values[name])}

    def told(self) -> list[dict[str, Any]]:
        """``table``, ``inputs``, ``rows`` and how many of them were ``read``."""
        return [
            {"table": table.name, "inputs": sorted(table.inputs), "rows": table.rows, "read": len(table.seen)}
            for table in self._tables.values()
        ]


def _tables(model: ir.Model) -> dict[str, Table]:
    found: dict[str, Table] = {}
    for given in model.graph.inputs:
        for node, place in content.uses(given):
            index = node.inputs[1] if place == 1 and node.op_type in ("Gather", "GatherElements") else None
            if index is None or not index.name or not given.name or node.graph is not model.graph:
                continue
            held = _held(node.inputs[0])
            axis = node.attributes.get_int("axis", 0)
            rows = held.const_value.shape[axis] if held is not None and held.const_value is not None else 0
            if held is not None and held.name and isinstance(rows, int) and rows >= LEAST:
                table = found.setdefault(held.name, Table(held.name, rows))
                table.inputs.add(given.name)
                table.indices.add(index.name)
    return found


def _held(value: ir.Value | None) -> ir.Value | None:
    """The constant that a tensor is, also behind a change of its type."""
    while (
        value is not None and (node := value.producer()) is not None and node.op_type in ("Cast", "Identity")
    ):
        value = node.inputs[0]
    if value is not None and value.const_value is None:
        value.const_value = ir.convenience.get_const_tensor(value)
    return value if value is not None and value.const_value is not None else None


def _session(model: ir.Model, wanted: list[ir.Value], path: Path) -> Any:
    from onnx_ir.passes import common

    model.graph.outputs[:] = wanted
    common.RemoveUnusedNodesPass()(model)
    part = path.with_name(f".{path.stem}-lookups.onnx")
    try:
        files.save(model, part)
        return runtime.session(part)
    finally:
        part.unlink(missing_ok=True)
