"""A ``torch.nn.Module`` from whatever the recipe names. Nothing is ever downloaded.

Imported only inside the step host; torch is imported at the top on purpose.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from engine import customer
from engine.errors import StepError
from engine.plan import Plan, PlannedModel
from engine.sources import libraries, ranges, weights


def load(plan: Plan) -> torch.nn.Module:
    """The model of ``plan``, as its source gives it. Raises StepError for the user's faults."""
    loaders: dict[str, Callable[[PlannedModel], torch.nn.Module]] = {
        "python": load_python,
        "checkpoint": _checkpoint,
        "exported": functools.partial(_exported, plan=plan),
        "torchscript": _torchscript,
    }
    # Weights that nobody gives are random: by the recipe's seed, so that they repeat.
    torch.manual_seed(plan.seed)
    return loaders.get(plan.model.source, libraries.load)(plan.model)


def load_python(planned: PlannedModel) -> torch.nn.Module:
    """What the recipe's own function returns. Raises StepError when it raises or returns something else."""
    arguments = (Path(planned.weights),) if planned.weights else ()
    return _call(planned, "model.python", *arguments)


def _checkpoint(planned: PlannedModel) -> torch.nn.Module:
    model = _call(planned, "model.checkpoint.python")
    weights.fill(model, Path(str(planned.weights)), planned.key, "model.checkpoint")
    return model


def _call(planned: PlannedModel, where: str, *arguments: Path) -> torch.nn.Module:
    file = Path(planned.file)
    name = f"{file.name}:{planned.function}"
    function = getattr(customer.import_file(file, where), planned.function)
    model = customer.call(f"{name} raised", where, function, *arguments)
    if not isinstance(model, torch.nn.Module):
        symptom = f"{name} returned {type(model).__name__}, expected a torch.nn.Module"
        raise StepError(symptom, klass="tooling", where=where, usage=True)
    return model


class ExportedProgram(torch.nn.Module):
    """A loaded program, called by the names of its placeholders.

    It is interpreted node by node, so that a second export keeps each node's module path.
    """

    def __init__(self, program: Any) -> None:
        super().__init__()
        self.program = program.module()
        self.outputs = program.call_spec.out_spec
        self.names = tuple(program.graph_signature.user_inputs)
        kind = inspect.Parameter.KEYWORD_ONLY
        self.stands_for = inspect.Signature([inspect.Parameter(name, kind) for name in self.names])
        for module in self.modules():
            module.training = False

    def train(self, mode: bool = True) -> ExportedProgram:
        """Nothing: the program has no modes, and its graph module refuses to be asked."""
        return self

    def forward(self, **inputs: Any) -> Any:
        flat = [inputs[name] for name in self.names]
        with torch.fx.traceback.preserve_node_meta():
            outputs = torch.fx.Interpreter(self.program).run(*flat, enable_io_processing=False)
        return pytree.tree_unflatten(outputs, self.outputs)


def _exported(planned: PlannedModel, plan: Plan) -> torch.nn.Module:
    program = _opened(planned, torch.export.load)
    odd = [name for name in program.graph_signature.user_inputs if not isinstance(name, str)]
    if odd:
        what = f"{Path(planned.file).name} takes the constant {odd[0]!r} as an input"
        raise StepError(what, fix="export it again without that argument", where="model.exported", usage=True)
    ranges.check_loaded(program, plan)
    return ExportedProgram(program)


class TorchScript(torch.nn.Module):
    """A loaded script, called by name in the order of its own ``forward``."""

    def __init__(self, script: Any) -> None:
        super().__init__()
        self.script = script
        arguments = script.forward.schema.arguments[1:]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.names = tuple(argument.name for argument in arguments)
        self.stands_for = inspect.Signature(
            [
                inspect.Parameter(
                    argument.name,
                    kind,
                    default=argument.default_value
                    if argument.has_default_value()
                    else inspect.Parameter.empty,
                )
                for argument in arguments
            ]
        )

    def forward(self, **inputs: torch.Tensor) -> Any:
        return self.script(**inputs)


def _torchscript(planned: PlannedModel) -> torch.nn.Module:
    return TorchScript(_opened(planned, _load_script))


def _opened(planned: PlannedModel, opener: Callable[[str], Any]) -> Any:
    name, where = Path(planned.file).name, f"model.{planned.source}"
    try:
        return opener(planned.file)
    except Exception as error:  # process edge: torch's readers raise whatever they like
        raise customer.theirs(f"{name} cannot be loaded:", error, where) from error


def _load_script(file: str) -> Any:
    return torch.jit.load(file, map_location="cpu")  # type: ignore[no-untyped-call]
