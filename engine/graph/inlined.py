"""Local functions put in the place of their calls, so that whatever works on graphs works inside them as well."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

from engine.errors import StepError
from engine.graph.fresh import Names


def inline(model: ir.Model) -> None:
    """In place. Nodes get the metadata of the call where they have none; names of the graph's own values stay.

    Raises StepError where a function cannot be inlined. The file must have passed :mod:`engine.graph.sound`.
    """
    if not model.functions:
        return
    for function in model.functions.values():
        _take_over_opsets(function, model)
        _copy_what_is_passed_through(function, model)
    try:
        common.InlinePass()(model)
    except (ir.passes.PassError, ir.passes.PreconditionError, ValueError) as error:
        why = str(error.__cause__ or error).splitlines()[0]
        raise StepError(f"a local function cannot be inlined: {why}", klass="export",
                        fix="write the file without local functions") from error  # fmt: skip
    model.functions.clear()  # those that nothing calls
    _rename_what_clashes(model)


def _take_over_opsets(function: ir.Function, model: ir.Model) -> None:
    """The pass wants equal opsets; that the operators mean the same in both is checked with the file."""
    for domain, version in model.opset_imports.items():
        if domain in function.opset_imports:
            function.opset_imports[domain] = version


def _copy_what_is_passed_through(function: ir.Function, model: ir.Model) -> None:
    """Of an input that is an output as well the pass would make one value with the caller's names of both."""
    for index, value in enumerate(function.outputs):
        if value in function.inputs:
            function.opset_imports.setdefault("", model.opset_imports.get("", 1))
            copy = ir.Node("", "Identity", [value], name=f"{value.name}/Identity")
            copy.outputs[0].name = f"{value.name}/copy"
            function.append(copy)
            function.outputs[index] = copy.outputs[0]


def _rename_what_clashes(model: ir.Model) -> None:
    """The pass does not see names in subgraphs that it has yet to come to."""
    names = Names(model)
    kept = {*model.graph.inputs, *model.graph.outputs, *model.graph.initializers.values()}
    seen = {value.name for value in kept}
    for graph in model.graphs():
        own = [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]
        for value in dict.fromkeys(own):
            if value in kept or not value.name:
                continue
            if value.name in seen:
                value.name = names.fresh(value.name)
            seen.add(value.name)
