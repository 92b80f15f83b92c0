"""The overrides that say what was found."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from engine.diagnosis import cover
from engine.diagnosis.find import Found
from engine.precision import selectors
from engine.precision.report import LoweringReport
from engine.quantize.insert import Quantised
from engine.recipe import FloatType, Override


def lines(
    model: ir.Model, found: Found, report: LoweringReport, quantised: Quantised
) -> tuple[tuple[Override, ...], tuple[Override, ...]]:
    """Few general selectors, and one for each node. ``model`` is the prepared graph before lowering, ``report`` and
    ``quantised`` what it was lowered to without the overrides that are looked for.
    """
    kinds = quantised.types(report.node_types)
    short: tuple[Override, ...] = ()
    long: tuple[Override, ...] = ()
    parts: tuple[tuple[FloatType, tuple[str, ...]], ...] = (("fp32", found.also), (found.wider, found.nodes))
    for kind, members in parts:
        other = {name for item in report.overrides if item.type != kind for name in item.nodes}
        if kind != "fp32":  # an override of it would narrow what stays wide for another reason
            other |= {name for name, has in report.node_types.items() if has != kind} | set(found.also)
        over = 2.0 if kind == "fp32" else 1.0  # a node that is not quantised is what the port was to avoid
        same = frozenset(name for name, has in kinds.items() if has == kind)
        few = found.lines if members is found.nodes else ()
        short += few or cover.cover(model, members, same, frozenset(other), kind, "", over)
        long += tuple(Override(kind, "", node=selectors.exactly(name)) for name in members)
    return short, long


def plain(line: Override) -> dict[str, Any]:
    """An override as the recipe says it."""
    keys = {"module": line.module, "op": line.op, "node": line.node}
    return {key: value for key, value in keys.items() if value is not None} | {
        "type": line.type, "because": line.because
    }  # fmt: skip
