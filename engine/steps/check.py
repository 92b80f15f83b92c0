"""Is the exported file valid, and what is in it."""

from __future__ import annotations

from engine import compatibility, toolchain
from engine.errors import RecipeError, StepError
from engine.plan import Plan
from engine.steps.context import Context, Done
from engine.values import Issue

_COPIED = "source.weights"  # as engine/sources/onnx_file.py names its copies


def run(context: Context) -> Done:
    """Every check of the file, then an inventory and a look at every weight. Writes nothing."""
    from engine.graph import files, inventory, sound, weights

    path = context.graph
    taken = context.plan.model.source == "onnx"
    context.progress("structure, versions, types, ONNX checker", 0, 3)
    found = sound.require(path, taken=taken)
    context.progress("inventory", 1, 3)
    model = files.load(path)
    _check_opset(model.opset_imports.get("", 0), path.name, context.plan)
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
    context.progress("values of the weights", 2, 3)
    copies = _copied(context)
    counts, odd = weights.oddities(model, "check")
    facts = {
        "external_tensors": found.external,
        "ir_version": model.ir_version,
        "odd_weight_values": counts,
        **inventory.take(model),
    }
    issues = (*copies, *found.issues, *inventory.oddities(model, "check"), *odd)
    return Done(facts=facts, issues=issues)


def _copied(context: Context) -> list[Issue]:
    """The weight files of an ONNX source: copied as they were read, and pinned when their graph is."""
    copies = {
        name: item for name, item in context.earlier["export"].artifacts.items() if name.startswith(_COPIED)
    }
    if context.plan.model.source != "onnx" or not copies:
        return []
    read = context.earlier["source"].facts["origin"]["files"]
    for item in copies.values():
        if item.digest not in read.values():
            raise StepError(
                f"{item.path} is not a weight file that the source step read",
                klass="tooling",
                cause="the file was changed while the run copied it, or the copy is damaged",
                fix="run again, with nothing else writing to the model's folder",
                where="model.onnx",
            )
    model = context.plan.model
    if model.weights_sha256 is None or model.external_sha256:
        return []
    beside = {
        name: digest for name, digest in read.items() if digest in {item.digest for item in copies.values()}
    }
    return [
        Issue(
            "check", "tooling", f"model.sha256 pins the graph alone, not its weights in {', '.join(beside)}",
            cause="another file of the same size would go unnoticed", disposition="open",
            fix="external_sha256: {" + ", ".join(f"{name}: {digest}" for name, digest in beside.items()) + "}",
        )
    ]  # fmt: skip


def _check_opset(written: int, name: str, plan: Plan) -> None:
    """TensorRT's parser does not refuse an opset that it does not know."""
    try:
        tool = toolchain.resolve(plan.build.toolchain)
    except RecipeError:
        return  # the build step says so
    limit = compatibility.opset_limit(tool.module, tool.version)
    if written > limit:
        raise StepError(
            f"{name} has opset {written}, above {limit}, the newest that {tool.module} {tool.version} takes",
            klass="export",
            cause="the parser itself would not say so",
            fix=f"export with opset {limit} or lower",
            where="model.onnx" if plan.model.source == "onnx" else "export.opset",
        )
