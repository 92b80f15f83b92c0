"""The closed set of conditions that ``where`` can put on a value or a captured attribute.

Each check returns why it does not hold, or None. A condition that the graph does not decide does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from engine.rules import bounds
from engine.rules.constants import axis_of_size, dims_of, element_type, same_shape_source, tensor_of
from engine.rules.interval import Known, UnboundedError


@dataclass(frozen=True)
class Scope:
    """What a check may look at: all matched values by name, and the bounds found so far on this graph."""

    values: Mapping[str, ir.Value | None]
    known: Known = field(default_factory=Known)


Check = Callable[[Any, ir.Value, Scope], str | None]

_LIMITS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "above": (np.greater, "above"),
    "below": (np.less, "below"),
    "at_least": (np.greater_equal, "at least"),
    "at_most": (np.less_equal, "at most"),
}


def refusal(conditions: Mapping[str, Any], value: ir.Value | None, scope: Scope) -> str | None:
    """Why ``value`` does not meet all of ``conditions`` (None: it does)."""
    if value is None:
        return None  # an optional input that was left out
    for key, argument in conditions.items():
        check = CHECKS.get(key)
        reason = check(argument, value, scope) if check else None
        if reason:
            return f"{value.name} {reason}"
    return None


def attribute_refusal(conditions: Mapping[str, Any], attribute: Any) -> str | None:
    """Why an attribute's Python value does not meet ``attribute:`` (None: it does)."""
    wanted = conditions["attribute"]
    if attribute is None:
        return "is not set"
    if isinstance(wanted, Mapping):
        return _limit_reason(wanted, np.asarray(attribute), f"is {attribute}")
    allowed = wanted if isinstance(wanted, list) and not isinstance(attribute, list | tuple) else [wanted]
    shown = list(attribute) if isinstance(attribute, list | tuple) else attribute
    return None if shown in allowed else f"is {shown}, not {' or '.join(str(item) for item in allowed)}"


def _limit_reason(limits: Mapping[str, Any], array: Any, shown: str) -> str | None:
    for key, limit in limits.items():
        if key == "finite":
            if not np.all(np.isfinite(array.astype(np.float64))):
                return f"{shown}, which is not finite"
        elif not np.all(_LIMITS[key][0](array, limit)):
            return f"{shown}, not {_LIMITS[key][1]} {limit}"
    return None


def _from(argument: Any, value: ir.Value, scope: Scope) -> str | None:
    wanted = [argument] if isinstance(argument, str) else list(argument)
    node = value.producer()
    made = node.op_type if node else "a graph input or constant"
    return None if made in wanted else f"comes from {made}, not from {' or '.join(wanted)}"


def _constant(argument: Any, value: ir.Value, scope: Scope) -> str | None:
    tensor = tensor_of(value)
    if tensor is None:
        return "is not a constant"
    if argument is True:
        return None
    if isinstance(argument, Mapping):
        array = tensor.numpy()
        return _limit_reason(argument, array, f"holds {_shown(array)}")
    if tensor.size != 1:
        return f"has {tensor.size} elements, not one equal to {argument}"
    number = tensor.numpy().reshape(())
    return None if number == np.asarray(argument).astype(number.dtype) else f"is {number}, not {argument}"


def _shown(array: Any) -> str:
    if array.size == 1:
        return str(array.reshape(()))
    return f"{array.min()} to {array.max()}" if array.size else "nothing"


def _dtype(argument: Any, value: ir.Value, scope: Scope) -> str | None:
    wanted = [argument] if isinstance(argument, str) else list(argument)
    dtype = element_type(value)
    name = str(dtype.numpy()) if dtype is not None else "of unknown type"
    return None if name in wanted else f"is {name}, not {' or '.join(wanted)}"


def _rank(argument: Any, value: ir.Value, scope: Scope) -> str | None:
    wanted = [argument] if isinstance(argument, int) else list(argument)
    dims = dims_of(value)
    if dims is None:
        return "has an unknown rank"
    return None if len(dims) in wanted else f"has rank {len(dims)}, not {' or '.join(map(str, wanted))}"


def _static(argument: Any, value: ir.Value, scope: Scope) -> str | None:
    return next((why for axis in argument if (why := _size_reason(value, axis, None))), None)


def _at_most(argument: Any, value: ir.Value, scope: Scope) -> str | None:
    reasons = (_size_reason(value, int(axis), limit) for axis, limit in argument.items())
    return next((why for why in reasons if why), None)


def _size_reason(value: ir.Value, axis: int, limit: int | None) -> str | None:
    dims = dims_of(value)
    if dims is None or not -len(dims) <= axis < len(dims):
        return f"has no axis {axis}" if dims is not None else "has an unknown rank"
    size = dims[axis]
    if not isinstance(size, int):
        return f"has a dynamic axis {axis} ({size or 'unknown'})"
    return None if limit is None or size <= limit else f"has size {size} on axis {axis}, more than {limit}"


def _finite(argument: Any, value: ir.Value, scope: Scope) -> str | None:
    try:
        bounds.of(value, scope.known)
    except UnboundedError as error:
        return f"is not proven finite: {error}"
    return None


def _size_of(argument: Any, value: ir.Value, scope: Scope) -> str | None:
    other = scope.values.get(argument["value"])
    wanted = f"the size of axis {argument['axis']} of {other.name if other else argument['value']}"
    found = axis_of_size(value)
    if found is None:
        return f"is not computed as {wanted}"
    measured, axis = found
    if other is None:
        return f"is not computed as {wanted}"
    source = same_shape_source(other)
    if (measured is not source or axis != argument["axis"]) and not _one_axis(
        measured, axis, source, argument["axis"]
    ):
        return f"is the size of axis {axis} of {measured.name}, not {wanted}"
    return None


def _one_axis(first: ir.Value, first_axis: int, second: ir.Value, second_axis: int) -> bool:
    """Whether two dimensions of graph inputs carry one name, by which ONNX says that they are equal."""
    if not (first.is_graph_input() and second.is_graph_input()):
        return False
    sizes = [dims[axis] if (dims := dims_of(value)) is not None and axis < len(dims) else None
             for value, axis in ((first, first_axis), (second, second_axis))]  # fmt: skip
    return sizes[0] is not None and not isinstance(sizes[0], int) and sizes[0] == sizes[1]


CHECKS: dict[str, Check] = {
    "from": _from,
    "constant": _constant,
    "dtype": _dtype,
    "rank": _rank,
    "static": _static,
    "at_most": _at_most,
    "finite": _finite,
    "size_of": _size_of,
}
STRUCTURAL = ("optional", "shared", "attribute", "present")  # looked at by the matcher itself
