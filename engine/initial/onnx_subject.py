"""An ONNX file as the subject: its inputs are read, not guessed, and ONNX Runtime takes the place of forward."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
import torch

from engine import runtime, toolchain
from engine.errors import RecipeError, StepError
from engine.graph import boundary, files, inlined
from engine.initial import onnx_shapes
from engine.initial.asked import Asked, Hint
from engine.initial.signature import Guess, Signature
from engine.schema import nearest
from engine.sources import onnx_file

_NAMES = {kind: name for name, kind in boundary.DTYPES.items()}
_INPUT, _OUTPUT = r"[A-Za-z_][A-Za-z0-9_]*", r"[A-Za-z_][A-Za-z0-9_.]*"  # as in the recipe's schema
# What hands indices on as they are, by its first input.
_HANDED_ON = frozenset(
    ["Cast", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose",
     "Unsqueeze"]
)  # fmt: skip


class Runtime(torch.nn.Module):
    """A file called like a module: tensors by input name in, tensors by output name out."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.session = runtime.session(path)

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        found = runtime.run(self.session, {name: tensor.numpy() for name, tensor in inputs.items()})
        return {name: torch.from_numpy(np.array(value)) for name, value in found.items()}


@dataclass(frozen=True)
class File:
    """What is read from the file, and the file as something to call."""

    model: Runtime
    opset: int
    parameters: int
    taken: Signature


def read(asked: Asked) -> File:
    """Open the file and say what it takes. Raises StepError for a file that no recipe can start from."""
    path = Path(asked.file)
    graph = onnx_file.opened(path)
    _require_opset(graph, asked)
    onnx_file.plain_inputs(graph)
    inlined.inline(graph)
    inputs = {value.name or "": value for value in graph.graph.inputs}
    _require_types(graph, path)
    _require_hints(inputs, path, asked.inputs)
    weights = [value.const_value for value in files.all_initializers(graph)]
    parameters = sum(tensor.size for tensor in weights if tensor is not None)
    return File(Runtime(path), graph.opset_imports.get("", 0), parameters, _taken(inputs, path, asked))


def _require_opset(graph: ir.Model, asked: Asked) -> None:
    written = graph.opset_imports.get("", 0)
    if asked.opset is not None and asked.opset != written:
        what = f"--opset {asked.opset}: {Path(asked.file).name} has opset {written}"
        raise StepError(what, fix="leave --opset out, or convert the file", usage=True)
    try:
        onnx_file.require_opset(graph, asked.file, toolchain.resolve("current"))
    except RecipeError:
        return  # no toolchain is installed; the build step says so


def _require_types(graph: ir.Model, path: Path) -> None:
    if not graph.graph.inputs:
        raise StepError(f"{path.name} takes no inputs, so there is nothing to give it", usage=True)
    for what, values, form in (
        ("input", graph.graph.inputs, _INPUT),
        ("output", graph.graph.outputs, _OUTPUT),
    ):
        for value in values:
            if not re.fullmatch(form, value.name or ""):
                raise StepError(
                    f"{path.name}: {what} '{value.name}' has a name that a recipe cannot have",
                    fix="rename it in the file: a letter, then letters, digits and underscores", usage=True,
                )  # fmt: skip
            if not isinstance(value.type, ir.TensorType) or (what == "input" and value.dtype not in _NAMES):
                raise StepError(
                    f"{path.name}: {what} '{value.name}' is {_told(value)}, which a recipe cannot have",
                    fix=f"tensors of {', '.join(_NAMES.values())}" if what == "input" else "tensors only",
                    usage=True,
                )  # fmt: skip


def _told(value: ir.Value) -> str:
    if value.type is None:
        return "of no type"
    name = value.dtype.name.lower() if value.dtype is not None else "?"
    kinds = {ir.TensorType: "a tensor", ir.SequenceType: "a sequence", ir.OptionalType: "an optional"}
    return f"{kinds.get(type(value.type), 'no plain tensor')} of {name}"


def _require_hints(inputs: Mapping[str, ir.Value], path: Path, hints: Mapping[str, Hint]) -> None:
    for name, hint in hints.items():
        if name not in inputs:
            what = f"--input {name}: {path.name} has no input of that name"
            fix = nearest(name, inputs) or f"there are: {', '.join(inputs)}"
            raise StepError(what, fix=fix, usage=True)
        kind = _NAMES[inputs[name].dtype or ir.DataType.UNDEFINED]
        if hint.dtype != kind:
            what = f"--input {name}: it is {kind} in {path.name}, not {hint.dtype}"
            raise StepError(what, fix="give the type that the file has", usage=True)


def _taken(inputs: Mapping[str, ir.Value], path: Path, asked: Asked) -> Signature:
    kinds = {name: _NAMES[value.dtype or ir.DataType.UNDEFINED] for name, value in inputs.items()}
    trials = onnx_shapes.begin(inputs, kinds, path, asked)
    for name, trial in trials.items():
        trial.below = min(_tables(inputs[name]), default=None)
    guesses = {name: Guess(trial.dtype, tuple(trial.shape), "as in the file", fixed=True)
               for name, trial in trials.items()}  # fmt: skip
    return Signature(guesses, {}, start=trials)


def _tables(value: ir.Value) -> list[int]:
    """Sizes of the constant tables that ``value`` looks up, through nodes that hand its numbers on."""
    sizes: list[int] = []
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        for node, index in current.uses():
            if node.op_type == "Gather" and index == 1:
                sizes += _height(node)
            elif node.op_type in _HANDED_ON and index == 0 and id(node) not in seen:
                seen.add(id(node))
                waiting.extend(node.outputs)
    return sizes


def _height(node: ir.Node) -> list[int]:
    """Size of the axis that a Gather looks up, where it is a number in the file."""
    table = node.inputs[0]
    if table is None:
        return []
    shape = table.const_value.shape if table.const_value is not None else table.shape
    axis = node.attributes.get_int("axis", 0)
    size = shape[axis] if shape is not None else None
    return [size] if isinstance(size, int) and size > 0 else []
