"""Proof that the graph says what was asked: read from the graph itself, not from the report."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx.checker
import onnx_ir as ir

from engine import runtime
from engine.errors import StepError
from engine.precision import ops
from engine.precision.formats import DTYPES, PRECISIONS, Precision
from engine.precision.prepare import nodes
from engine.precision.selectors import Assignment, where


@dataclass(frozen=True)
class TypeMismatch:
    """A node that does not compute in the type that was asked for it; ``override`` is -1 for the base."""

    node: str
    asked: Precision
    found: str
    override: int

    def __str__(self) -> str:
        who = where(self.override) if self.override >= 0 else "precision.base"
        return f"node {self.node!r}: {who} asks {self.asked}, the graph says {self.found}"


def verify_types(
    model: ir.Model, assignment: Assignment, kept_wide: Collection[str] = ()
) -> tuple[TypeMismatch, ...]:
    """Compare every node's float inputs and outputs with what was asked; empty when all agree.

    Nodes of an override must have its type, whatever they do. Nodes of the base that compute must have
    the base type, those in ``kept_wide`` FP32; a node that only moves data may follow its neighbours.
    """
    present = {node.name: node for node in nodes(model)}
    found = []
    for name, asked in assignment.types.items():
        node, override = present.get(name), assignment.pinned.get(name, -1)
        if node is None:
            continue  # a cast between floats that had nothing left to change
        dtype = ir.DataType.FLOAT if name in kept_wide else DTYPES[asked]
        follows = override < 0 and name not in kept_wide and ops.is_free(node)
        actual = _types(node, model)
        wrong = sorted(PRECISIONS[got] for slot, got in actual if got != ops.slot_type(node, slot, dtype))
        if wrong and not follows:
            found.append(TypeMismatch(name, PRECISIONS[dtype], "/".join(dict.fromkeys(wrong)), override))
    gone = [name for index, taken in enumerate(assignment.taken) for name in taken if name not in present]
    for name in gone:
        found.append(TypeMismatch(name, assignment.types[name], "no such node", assignment.pinned[name]))
    return tuple(found)


def _types(node: ir.Node, model: ir.Model) -> list[tuple[ops.Slot, ir.DataType]]:
    result = []
    for slot in ops.slots_of(node, model.opset_imports):
        value = (node.outputs if slot.is_output else node.inputs)[slot.index]
        blind = not slot.is_output and (ops.is_blind(node) or ops.casts_between_floats(node))
        if value is not None and value.dtype is not None and not blind:
            result.append((slot, value.dtype))
    return result


def disagreements(model: ir.Model) -> list[str]:
    """Nodes whose float inputs differ in type, or whose schema does not allow one of them."""
    faults = []
    for node in nodes(model):
        slots = ops.slots_of(node, model.opset_imports)
        types = {
            node.inputs[slot.index].dtype  # type: ignore[union-attr]
            for slot in slots
            if not slot.is_output and not slot.is_fixed
        }
        if len(types) > 1:
            named = ", ".join(sorted(dtype.name for dtype in types if dtype))
            faults.append(f"{node.op_type} {node.name!r} reads {named}")
        for slot in slots:
            value = (node.outputs if slot.is_output else node.inputs)[slot.index]
            if value is not None and value.dtype not in slot.allowed:
                kind = "output" if slot.is_output else "input"
                faults.append(f"{node.op_type} {node.name!r}: {kind} {slot.index} is {value.dtype}")
    return faults


def check_file(path: Path) -> str:
    """Full checker, strict type inference, and a session of ONNX Runtime with optimisation off.

    Returns why the session was not tried, or "". Raises StepError with the tool's own words.
    """
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise StepError(f"the lowered graph is not valid: {error}", klass="op", bug=True) from error
    if uses_bfloat16(path):
        return "ONNX Runtime has no BF16 kernels on CPU; the rehearsal runs the shadow instead"
    try:
        runtime.session(path, prepack=False)
    except StepError as error:
        if "NOT_IMPLEMENTED" not in error.failure.evidence:
            raise
        return f"{error}; the rehearsal runs the shadow instead"
    return ""


def uses_bfloat16(path: Path) -> bool:
    return any(value.dtype == ir.DataType.BFLOAT16 for node in nodes(ir.load(path)) for value in node.outputs)
