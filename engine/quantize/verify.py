"""Proof that the lowered graph computes quantised where it was said to: read from the graph itself."""

from __future__ import annotations

import onnx_ir as ir

from engine.errors import StepError
from engine.precision.formats import QUANTISED
from engine.precision.prepare import nodes
from engine.quantize.insert import Quantised


def require(model: ir.Model, done: Quantised) -> None:
    """Every quantised node must read DequantizeLinear of its type, with nothing in between; StepError (bug) if not."""
    present = {node.name or "": node for node in nodes(model)}
    faults = []
    for name, kind in done.nodes.items():
        node = present.get(name)
        slots = (1,) if kind == "int4" else (0, 1)
        for slot in slots:
            value = node.inputs[slot] if node is not None else None
            maker = value.producer() if value is not None else None
            code = maker.inputs[0] if maker is not None and maker.op_type == "DequantizeLinear" else None
            if code is None or code.dtype != QUANTISED[kind]:
                faults.append(f"node {name!r}: input {slot} is not restored from {kind}")
    if faults:
        raise StepError("quantising left the graph inconsistent", evidence="\n".join(faults), bug=True)
