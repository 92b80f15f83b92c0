"""Write the precision into the graph, so that a strongly typed network computes exactly as asked."""

from __future__ import annotations

import onnx_ir as ir

from engine.errors import StepError
from engine.precision.casts import Writer
from engine.precision.decide import decide
from engine.precision.formats import PRECISIONS
from engine.precision.prepare import nodes, prepare
from engine.precision.report import Boundary, LoweringReport, OverrideTaken
from engine.precision.selectors import Assignment, describe
from engine.precision.verify import disagreements, verify_types


def lower(model: ir.Model, assignment: Assignment, *, io: Boundary = "keep") -> LoweringReport:
    """Lower ``model`` in place to the types of ``assignment``; weights are converted when they are saved.

    With ``io="keep"`` the graph's inputs and outputs stay as they are, with a cast at the boundary;
    with ``"lower"`` they take the base type. Raises StepError when an override cannot be honoured.
    """
    prepare(model)
    decision = decide(model, assignment, io)
    writer = Writer(model, decision, assignment, io)
    writer.write()
    kept = {item.node for item in decision.kept}
    faults = [*disagreements(model), *map(str, verify_types(model, assignment, kept))]
    if faults:
        raise StepError("lowering left the graph inconsistent", evidence="\n".join(faults), bug=True)
    alive = {node.name for node in nodes(model)}
    return LoweringReport(
        base=assignment.base,
        io=io,
        node_types={
            node.name or "": PRECISIONS[dtype] for node, dtype in decision.types.items() if node.name in alive
        },
        overrides=tuple(
            OverrideTaken(describe(override), override.type, override.because, taken)
            for override, taken in zip(assignment.overrides, assignment.taken, strict=True)
        ),
        casts=writer.casts,
        kept_wide=decision.kept,
        followed=decision.followed,
        constants=tuple(decision.constants.changes),
        weights=tuple(writer.weights),
        folded_casts=tuple(writer.folded),
    )
