"""Is the exported file valid, and what is in it."""

from __future__ import annotations

from engine.errors import StepError
from engine.steps.context import Context, Done


def run(context: Context) -> Done:
    """External data first, then the full checker, then an inventory. Writes nothing."""
    import onnx

    from engine.graph import external, files, inventory

    path = context.graph
    context.progress("external data", 0, 3)
    tensors = external.check(path)
    context.progress("ONNX checker with shape inference", 1, 3)
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        taken = context.plan.model.source == "onnx"
        raise StepError(
            f"{path.name} is not valid ONNX: {str(error).strip().splitlines()[0]}",
            klass="export",
            cause="the file that the recipe starts from" if taken else "the exporter wrote an invalid graph",
            fix="mend the file" if taken else "try the other exporter, or another opset",
            where="model.onnx" if taken else "export.exporter",
            evidence=str(error)[:2000],
        ) from error
    context.progress("inventory", 2, 3)
    model = files.load(path)
    random = inventory.random_nodes(model)
    if random:
        raise StepError(
            f"the graph draws random numbers: {random[0]}"
            + (f" and {len(random) - 1} more" if random[1:] else ""),
            klass="export",
            cause="no two runs agree, so nothing about the port could be proven",
            fix="make the noise an input of the model, or switch it off",
            where="model.python",
        )
    facts = {"external_tensors": tensors, "ir_version": model.ir_version, **inventory.take(model)}
    return Done(facts=facts, issues=tuple(inventory.oddities(model, "check")))
