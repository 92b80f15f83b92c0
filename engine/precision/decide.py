"""Which type every node ends up with: what was asked, what stays wide, what follows its neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from engine.errors import Failure, StepError
from engine.precision import ops
from engine.precision.constants import Study, study
from engine.precision.follow import follow
from engine.precision.formats import DTYPES, PRECISIONS, is_float, is_weight
from engine.precision.prepare import nodes
from engine.precision.report import Boundary, KeptWide
from engine.precision.selectors import Assignment, describe, module_of, where
from engine.precision.sources import Origins, upstream


@dataclass(frozen=True)
class Decision:
    """The final type of every float node, why some are wider than asked, and what the constants need."""

    types: Mapping[ir.Node, ir.DataType]
    kept: tuple[KeptWide, ...]
    followed: tuple[str, ...]
    constants: Study


def decide(model: ir.Model, assignment: Assignment, io: Boundary) -> Decision:
    """Settle the types. Raises StepError (usage) for an override that ONNX itself refuses."""
    opsets = model.opset_imports
    floats = [node for node in nodes(model) if ops.touches_float(node)]
    asked = {node: DTYPES[assignment.types.get(node.name or "", assignment.base)] for node in floats}
    origins = Origins(model)
    reasons = _by_schema(asked, opsets, assignment)
    for node, reason in _index_arithmetic(floats, origins, opsets):
        if (node.name or "") not in assignment.pinned and asked[node] != ir.DataType.FLOAT:
            reasons.setdefault(node, reason)
    found = study(model, assignment, reasons.keys() | _wide(asked))
    for node, reason in found.wide.items():
        if asked[node] != ir.DataType.FLOAT:
            reasons.setdefault(node, reason)
    settled = asked | {node: ir.DataType.FLOAT for node in reasons}
    free = {
        node
        for node in floats
        if ops.is_free(node) and node not in reasons and (node.name or "") not in assignment.pinned
    }
    types = settled | follow(model, settled, free, io, DTYPES[assignment.base])
    kept = tuple(
        KeptWide(node.name or "", node.op_type, module_of(node), PRECISIONS[asked[node]], reasons[node])
        for node in floats
        if node in reasons
    )
    followed = tuple(node.name or "" for node in floats if node in free and types[node] != asked[node])
    return Decision(types, kept, followed, found)


def _wide(asked: Mapping[ir.Node, ir.DataType]) -> set[ir.Node]:
    return {node for node, dtype in asked.items() if dtype == ir.DataType.FLOAT}


def _by_schema(
    asked: Mapping[ir.Node, ir.DataType], opsets: Mapping[str, int], assignment: Assignment
) -> dict[ir.Node, str]:
    reasons: dict[ir.Node, str] = {}
    refused: dict[int, list[str]] = {}
    for node, dtype in asked.items():
        if dtype == ir.DataType.FLOAT:
            continue
        reason, named = ops.refuses(node, dtype, opsets), (node.name or "") in assignment.pinned
        if not reason and not named:  # whoever names the node may know a TensorRT that can
            reason = ops.unbuilt(node, dtype)
        if reason and named:
            refused.setdefault(assignment.pinned[node.name or ""], []).append(f"{node.name}: {reason}")
        if reason:
            reasons[node] = reason
    if refused:
        index = min(refused)
        override = assignment.overrides[index]
        raise StepError(
            Failure(
                f"{describe(override)} cannot compute in {override.type}: {refused[index][0]}",
                klass="op",
                fix="narrow the selector, or raise export.opset where a later opset allows it",
                where=where(index),
                evidence="\n".join(line for lines in refused.values() for line in lines),
                usage=True,
            )
        )
    return reasons


def _index_arithmetic(
    floats: Iterable[ir.Node], origins: Origins, opsets: Mapping[str, int]
) -> Iterable[tuple[ir.Node, str]]:
    """Floats that become sizes, indices or angles: whole numbers past 2048 (BF16: 256) are not exact."""
    for node in floats:
        if node.op_type in {"Sin", "Cos"}:
            value = node.inputs[0]
            if value is not None and not is_weight(value) and origins.from_integers(value):
                reason = "positions and their angles: large whole numbers are not exact in a narrow type"
                yield node, reason
                yield from ((maker, reason) for maker in upstream(value, origins.from_integers))
            continue
        for value in _counted(node, opsets):
            if origins.from_shapes(value) and not is_weight(value):
                reason = "shape arithmetic: sizes and indices must stay exact"
                yield from ((maker, reason) for maker in upstream(value, origins.from_shapes))


def _counted(node: ir.Node, opsets: Mapping[str, int]) -> list[ir.Value]:
    """Float inputs that the node turns into whole numbers or takes as sizes."""
    if node.op_type == "Range" or (node.op_type == "Cast" and not is_float(node.outputs[0])):
        wanted = list(node.inputs)
        if node.op_type == "Cast" and node.outputs[0].dtype == ir.DataType.BOOL:
            return []
    else:
        slots = ops.slots_of(node, opsets)
        wanted = [node.inputs[slot.index] for slot in slots if slot.is_fixed and not slot.is_output]
    return [value for value in wanted if value is not None and is_float(value)]
