"""The sizes that an exported program was made for, against the axes that the recipe declares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.errors import StepError
from engine.plan import Plan, PlannedInput


def check(program: Any, plan: Plan, who: str) -> None:
    """Raise StepError where ``program`` takes fewer sizes than an axis declares; ``who`` begins the message.

    Inputs are matched by position. A size that became a number is left to the check of the written file.
    """
    nodes = [
        node for node in _placeholders(program).values() if node.name in program.graph_signature.user_inputs
    ]
    _ranges(program, plan, who, zip(nodes, plan.inputs.values(), strict=True))


def check_loaded(program: Any, plan: Plan) -> None:
    """The same for a program from a file, by name: there ranks and fixed sizes must be the recipe's as well."""
    nodes = _placeholders(program)
    pairs = [(nodes[name], item) for name, item in plan.inputs.items() if name in nodes]
    for node, item in pairs:
        shape = tuple(node.meta["val"].shape)
        if len(shape) != len(item.shape):
            what = (
                f"'{node.name}' has {len(shape)} dimensions in the program, {len(item.shape)} in the recipe"
            )
            raise StepError(what, klass="shape", where=f"inputs.{node.name}.shape", usage=True)
        for size, dim in zip(item.shape, shape, strict=True):
            axis = plan.axes.get(size) if isinstance(size, str) else None
            low, high = (axis.min, axis.max) if axis else (size, size)
            if isinstance(dim, int) and (low, high) != (dim, dim):
                asked = f"{low}..{high}" if low != high else low
                raise StepError(
                    f"the program fixes {size!r} of '{node.name}' to {dim}; the recipe asks {asked}",
                    klass="shape",
                    fix="export the program again with this dimension dynamic" if axis else "",
                    where=f"axes.{size}" if axis else f"inputs.{node.name}.shape",
                )
    _ranges(program, plan, "the program limits", pairs)


def _placeholders(program: Any) -> dict[str, Any]:
    return {node.name: node for node in program.graph.nodes if node.op == "placeholder"}


def _ranges(program: Any, plan: Plan, who: str, pairs: Iterable[tuple[Any, PlannedInput]]) -> None:
    for node, item in pairs:
        for size, dim in zip(item.shape, node.meta["val"].shape, strict=True):
            bounds = program.range_constraints.get(getattr(getattr(dim, "node", None), "expr", None))
            if not isinstance(size, str) or bounds is None:
                continue
            axis, low, high = plan.axes[size], int(bounds.lower), int(bounds.upper)
            if low > axis.min or high < axis.max:
                raise StepError(
                    f"{who} axis '{size}' to {low}..{high}; the recipe asks {axis.min}..{axis.max}",
                    klass="shape",
                    fix="narrow the axis in the recipe, or remove the size check from the model",
                    where=f"axes.{size}",
                )
