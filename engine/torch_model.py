"""The customer's PyTorch model: calling it by input name, naming what it returns.

Imported only inside the step host; torch is imported at the top on purpose.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from engine.customer import theirs
from engine.errors import StepError
from engine.plan import Plan
from engine.samples import Array
from engine.schema import nearest

_MOST_IN_FP64 = 300_000_000  # parameters; beyond it a copy takes more memory than it is worth


class Port(torch.nn.Module):
    """The customer's model with positional inputs and exactly the declared outputs, as a tuple.

    The model is the submodule ``model``; provenance drops that prefix again.
    """

    def __init__(self, model: torch.nn.Module, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.modified: set[str] = set()
        self.not_ported: tuple[str, ...] = ()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        returned = self.model(**dict(zip(self.inputs, tensors, strict=True)))
        self.not_ported = left_out(returned, self.outputs)
        return tuple(named_outputs(returned, self.outputs).values())


def check_signature(model: torch.nn.Module, plan: Plan) -> None:
    """Raise StepError where the recipe's inputs are not what ``forward`` takes.

    A module that wraps another one tells that one's signature in ``stands_for``.
    """
    signature = getattr(model, "stands_for", None) or inspect.signature(model.forward)
    parameters = signature.parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    takes_any = inspect.Parameter.VAR_KEYWORD in kinds
    for name in plan.inputs:
        if name not in parameters and not takes_any:
            raise StepError(
                f"{type(model).__name__}.forward takes no '{name}'",
                klass="tooling",
                cause=f"forward{signature}",
                fix=nearest(name, parameters) or "name the inputs like forward's parameters",
                where=f"inputs.{name}",
                usage=True,
            )
    for name, parameter in parameters.items():
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.default is parameter.empty and not variadic and name not in plan.inputs:
            raise StepError(
                f"{type(model).__name__}.forward needs '{name}', which is not among the inputs",
                klass="tooling",
                fix=f"declare '{name}' under inputs",
                where="inputs",
                usage=True,
            )


def named_outputs(returned: Any, wanted: Sequence[str]) -> dict[str, torch.Tensor]:
    """The declared outputs by name, from whatever forward returned.

    A mapping or dataclass is asked by key; a tensor or (nested) sequence is taken by position.
    """
    if isinstance(returned, Mapping) or dataclasses.is_dataclass(returned):
        fields = dict(returned) if isinstance(returned, Mapping) else _fields(returned)
        for name in wanted:
            if name not in fields:
                there = ", ".join(str(key) for key in fields)
                hint = nearest(name, [str(key) for key in fields]) or f"it returns: {there}"
                raise _outputs_error(f"the model returns no '{name}'", hint, list(wanted).index(name))
        chosen = [fields[name] for name in wanted]
    else:
        chosen = list(_tensors(returned))
        if len(chosen) != len(wanted):
            what = f"the model returns {len(chosen)} tensors, the recipe names {len(wanted)} outputs"
            raise _outputs_error(what, "name every one, in order", None)
    for name, value in zip(wanted, chosen, strict=True):
        if not isinstance(value, torch.Tensor):
            what = f"output '{name}' is {type(value).__name__}, not a tensor"
            raise _outputs_error(what, "leave it out, or return a tensor", list(wanted).index(name))
    return dict(zip(wanted, chosen, strict=True))


def left_out(returned: Any, wanted: Sequence[str]) -> tuple[str, ...]:
    """Keys of a mapping or dataclass that hold something and are not among the declared outputs."""
    if not isinstance(returned, Mapping) and not dataclasses.is_dataclass(returned):
        return ()
    fields = dict(returned) if isinstance(returned, Mapping) else _fields(returned)
    return tuple(str(key) for key, value in fields.items() if value is not None and key not in wanted)


def optional_inputs(model: torch.nn.Module, plan: Plan) -> list[str]:
    """Parameters of ``forward`` with a default that the recipe leaves out."""
    signature = getattr(model, "stands_for", None) or inspect.signature(model.forward)
    parameters = signature.parameters.values()
    return [p.name for p in parameters if p.default is not p.empty and p.name not in plan.inputs]


def _fields(returned: Any) -> dict[str, Any]:
    return {field.name: getattr(returned, field.name) for field in dataclasses.fields(returned)}


def _tensors(returned: Any) -> Sequence[Any]:
    if isinstance(returned, list | tuple):
        return [tensor for item in returned if item is not None for tensor in _tensors(item)]
    if isinstance(returned, Mapping):
        return [tensor for item in returned.values() for tensor in _tensors(item)]
    return [returned]


def _outputs_error(symptom: str, fix: str, index: int | None) -> StepError:
    where = "outputs" if index is None else f"outputs[{index}]"
    return StepError(symptom, klass="tooling", fix=fix, where=where, usage=True)


def call(
    port: Port, inputs: Mapping[str, Array], shape: str, floats: torch.dtype | None = None
) -> dict[str, Array]:
    """Run the port on copies of numpy inputs; numpy outputs by name, half types as float32.

    ``floats`` is the type that float inputs are given in; of itself a half model gets its own type.

    Inputs that the model changed in place are added to ``port.modified``.
    """
    tensors = [torch.from_numpy(np.array(inputs[name])) for name in port.inputs]
    half = next((p.dtype for p in port.parameters() if p.dtype in (torch.float16, torch.bfloat16)), None)
    kind = floats or half
    given = [tensor.to(kind) if kind and tensor.is_floating_point() else tensor for tensor in tensors]
    try:
        with torch.no_grad():
            outputs = port(*given)
    except StepError:
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # process edge: it may raise anything
        sizes = ", ".join(f"{name} {list(inputs[name].shape)}" for name in port.inputs)
        where = "inputs" if shape == "export" else "axes"
        raise theirs(f"forward at shape '{shape}' ({sizes}) raised", error, where, "shape") from error
    for name, tensor in zip(port.inputs, tensors, strict=True):
        if not np.array_equal(tensor.float().numpy(), inputs[name].astype(np.float32), equal_nan=True):
            port.modified.add(name)
    return {name: _numpy(value) for name, value in zip(port.outputs, outputs, strict=True)}


def converted(port: Port, dtype: torch.dtype) -> tuple[Port | None, str]:
    """A copy of the port in a floating type, or None and why there is none: a model's own code may refuse it."""
    try:
        return copy.deepcopy(port).to(dtype), ""
    except (RuntimeError, TypeError, NotImplementedError) as error:
        return None, f"not run: the model cannot be copied: {error}"


def double(port: Port) -> tuple[Callable[[Mapping[str, Array], str], dict[str, Array]] | None, str]:
    """The model in FP64 as ``call(inputs, shape)`` and "run", or None and why there is none."""
    if sum(parameter.numel() for parameter in port.parameters()) > _MOST_IN_FP64:
        return None, "not run: too many parameters for a copy in FP64"
    copied, why = converted(port, torch.float64)
    if copied is None:
        return None, why

    def run(inputs: Mapping[str, Array], shape: str) -> dict[str, Array]:
        usual = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            return call(copied, inputs, shape, torch.float64)
        finally:
            torch.set_default_dtype(usual)

    return run, "run"


def _numpy(value: torch.Tensor) -> Array:
    value = value.detach()
    if value.dtype in (torch.bfloat16, torch.float16):
        value = value.float()
    return np.array(value.cpu().numpy())
