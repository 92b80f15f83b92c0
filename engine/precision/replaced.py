"""What became of a node that an override names and that the graph had before a step took it out."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

import onnx_ir as ir

from engine.precision.prepare import nodes
from engine.precision.selectors import module_of


def explain(pattern: str, earlier: Iterable[tuple[str, ir.Model, ir.Model]]) -> str:
    """Which step took out the nodes called ``pattern``, and what makes their results now; empty when none had one.

    ``earlier`` holds a step's name with the graph before and after it, in the order of the route.
    """
    for step, before, after in earlier:
        there = {node.name or "" for node in nodes(after)}
        gone = [
            node
            for node in nodes(before)
            if fnmatch.fnmatchcase(node.name or "", pattern) and (node.name or "") not in there
        ]
        if gone:
            return f"{step} took it out{_now(gone[0], after)}"
    return ""


def _now(gone: ir.Node, after: ir.Model) -> str:
    """What makes the node's result, or else what is left of its module."""
    results = {value.name for value in gone.outputs if value.name}
    for node in nodes(after):
        if any(value.name in results for value in node.outputs):
            return f": its result {next(iter(results))} is made by {node.op_type} {node.name!r}"
    module = module_of(gone)
    left = [
        item for item in nodes(after) if module and module_of(item) == module and item.op_type != "Constant"
    ]
    if left:
        shown = ", ".join(f"{node.op_type} {node.name!r}" for node in left[:4]) + (
            " ..." if len(left) > 4 else ""
        )
        return f": its module {module} is now {shown}"
    if any(value.name in results for value in after.graph.initializers.values()):
        return f": its result {next(iter(results))} is a constant now"
    return "; nothing has its result or its module any more"
