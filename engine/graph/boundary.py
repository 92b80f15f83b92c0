"""The inputs and outputs of a graph: named axes, and the check that they are what the recipe declares."""

from __future__ import annotations

import re
from typing import Any

import onnx_ir as ir

from engine.errors import StepError
from engine.plan import Plan

DTYPES = {
    "float32": ir.DataType.FLOAT,
    "float16": ir.DataType.FLOAT16,
    "int64": ir.DataType.INT64,
    "int32": ir.DataType.INT32,
    "int8": ir.DataType.INT8,
    "uint8": ir.DataType.UINT8,
    "bool": ir.DataType.BOOL,
}


def name_axes(model: ir.Model, plan: Plan) -> None:
    """Give symbolic dimensions the recipe's axis names, everywhere in the graph."""
    names: dict[str, str] = {}
    by_name = {value.name: value for value in model.graph.inputs}
    for name, item in plan.inputs.items():
        value = by_name.get(name)
        if value is None or value.shape is None:
            continue
        for size, dim in zip(item.shape, value.shape, strict=False):
            if isinstance(size, str) and isinstance(dim, ir.SymbolicDim) and dim.value:
                names[dim.value] = size
    names = {old: new for old, new in names.items() if old != new}
    if not names:
        return
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
    for value in _values(model):
        if value.shape is not None:
            value.shape = ir.Shape([_renamed(dim, names, pattern) for dim in value.shape])


def _renamed(dim: int | ir.SymbolicDim, names: dict[str, str], pattern: re.Pattern[str]) -> Any:
    if isinstance(dim, ir.SymbolicDim) and dim.value:
        return pattern.sub(lambda match: names[match.group(1)], dim.value)
    return dim


def _values(model: ir.Model) -> list[ir.Value]:
    values = list(model.graph.inputs)
    for node in model.graph.all_nodes():
        values.extend(node.outputs)
    return values


def facts(model: ir.Model) -> dict[str, Any]:
    """Types and shapes at the boundary, as text that repeats exactly."""
    return {
        "inputs": {value.name: _describe(value) for value in model.graph.inputs},
        "outputs": {value.name: _describe(value) for value in model.graph.outputs},
    }


def _describe(value: ir.Value) -> str:
    shape = "?" if value.shape is None else "x".join(_dim(dim) for dim in value.shape)
    return f"{value.dtype.name.lower() if value.dtype else '?'}[{shape}]"


def _dim(dim: int | ir.SymbolicDim) -> str:
    return str(dim) if isinstance(dim, int) else dim.value or "?"


def check(model: ir.Model, plan: Plan) -> None:
    """Raise StepError where the boundary is not what the recipe declares."""
    inputs = {value.name: value for value in model.graph.inputs}
    outputs = [value.name for value in model.graph.outputs]
    missing = [name for name in plan.inputs if name not in inputs]
    if missing:
        raise StepError(
            f"the exported graph has no input '{missing[0]}': the model's outputs do not depend on it",
            klass="export",
            fix="leave the input out of the recipe",
            where=f"inputs.{missing[0]}",
        )
    if outputs != list(plan.outputs):
        raise StepError(
            f"the graph's outputs are {', '.join(map(str, outputs))}; the recipe says {', '.join(plan.outputs)}",
            klass="export",
            where="outputs",
        )
    for name, item in plan.inputs.items():
        value = inputs[name]
        if value.dtype != DTYPES[item.dtype]:
            raise StepError(
                f"input '{name}' is {_describe(value)} in the graph; the recipe says {item.dtype}",
                klass="export",
                where=f"inputs.{name}.dtype",
            )
        for index, size in enumerate(item.shape):
            _check_axis(name, index, size, value, plan)


def _check_axis(name: str, index: int, size: int | str, value: ir.Value, plan: Plan) -> None:
    if value.shape is None or not isinstance(size, str):
        return
    axis, dim = plan.axes[size], value.shape[index]
    if axis.min < axis.max and isinstance(dim, int):
        raise StepError(
            f"axis '{size}' was asked dynamic ({axis.min}..{axis.max}), but dimension {index} of '{name}'"
            f" is fixed to {dim} in the exported graph",
            klass="shape",
            cause="the model turns this size into a Python number (len(x), int(x.shape[0]), a loop)",
            fix="use x.shape or -1 in the model, or pin the axis in the recipe",
            where=f"axes.{size}",
        )
