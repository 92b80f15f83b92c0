"""An ONNX file as the start: run as the reference, and taken into the run's folder with its weights.

Imports onnx_ir; only inside the step host.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from engine import compatibility, runtime, toolchain
from engine.digests import digest_file
from engine.errors import RecipeError, StepError, quoted
from engine.graph import boundary, external, files, inlined, names, provenance, sound
from engine.plan import Plan
from engine.samples import Array

WEIGHTS = "export.weights"
COPIED = "source.weights"
_WHERE = "model.onnx"


class Reference:
    """The file in ONNX Runtime, CPU, graph optimisation off."""

    def __init__(self, plan: Plan) -> None:
        path = Path(plan.model.file)
        self.model = opened(path)
        self._files = self._digests()
        _check_pins(plan, self._files)
        sound.require(path, taken=True, original=True)
        self.session = runtime.session(path)
        self.outputs = plan.outputs
        takes = {item.name for item in self.session.get_inputs()}
        gives = [item.name for item in self.session.get_outputs()]
        _same(list(plan.inputs), takes, "input", path)
        _same(list(plan.outputs), set(gives), "output", path)
        boundary.check(self.model, plan)

    def call(self, inputs: Mapping[str, Array], shape: str) -> dict[str, Array]:
        found = runtime.run(self.session, inputs)
        return {
            name: found[name].astype(np.float32) if found[name].dtype == np.float16 else found[name]
            for name in self.outputs
        }

    def files(self) -> dict[str, str]:
        """sha256 of every weight file, by its location relative to the graph."""
        return self._files

    def _digests(self) -> dict[str, str]:
        tensors = [value.const_value for value in files.all_initializers(self.model)]
        outside = {str(item.location): item.path for item in tensors if isinstance(item, ir.ExternalTensor)}
        return {location: digest_file(Path(path)) for location, path in sorted(outside.items())}

    def facts(self) -> dict[str, Any]:
        weights = [value.const_value for value in files.all_initializers(self.model)]
        kinds = {tensor.dtype.name.lower() for tensor in weights if tensor is not None}
        return {
            "module": "ONNX file",
            "parameters": sum(tensor.size for tensor in weights if tensor is not None),
            "parameter_types": sorted(kinds),
        }


def _same(declared: list[str], there: set[str], what: str, path: Path) -> None:
    for name in declared:
        if name not in there:
            where = f"inputs.{name}" if what == "input" else f"outputs[{declared.index(name)}]"
            known = ", ".join(sorted(there))
            raise StepError(
                f"{path.name} has no {what} '{name}'", fix=f"there are: {known}", where=where, usage=True
            )
    left = sorted(there - set(declared))
    if left:
        raise StepError(
            f"{path.name} has the {what} '{left[0]}', which the recipe does not name",
            fix=f"declare it under {what}s", where=f"{what}s", usage=True,
        )  # fmt: skip


def _check_pins(plan: Plan, found: Mapping[str, str]) -> None:
    """With ``external_sha256`` every weight file must be listed, and be the one that is listed."""
    pins, where = plan.model.external_sha256, "model.external_sha256"
    if not pins:
        return
    name = Path(plan.model.file).name
    gone, left = sorted(set(pins) - set(found)), sorted(set(found) - set(pins))
    if gone:
        there = ", ".join(sorted(found)) or "none"
        raise StepError(f"{name} has no weights in {quoted(gone[0])}", fix=f"its weight files: {there}",
                        where=f"{where}.{gone[0]}", usage=True)  # fmt: skip
    if left:
        raise StepError(f"the weight file {left[0]} of {name} is not pinned", cause="the others are",
                        fix=f"add {left[0]}: {found[left[0]]}", where=where, usage=True)  # fmt: skip
    for location, pin in pins.items():
        if found[location] != pin:
            raise StepError(
                f"the weight file {location} has another sha256 than the recipe says",
                cause=f"sha256 is {found[location]}",
                fix=f"use the file that the recipe was reviewed with, or update {where}",
                where=where,
                usage=True,
            )


def opened(path: Path) -> ir.Model:
    """The graph, its weight files checked first. Raises StepError for a file that is none, or is not whole."""
    try:
        model = files.load(path)
        for value in files.all_initializers(model):
            if isinstance(value.const_value, ir.ExternalTensor):
                _require_inside(Path(value.const_value.location))
        external.check(path)
        return model
    except StepError as error:
        raise StepError(error.failure.symptom, cause=error.failure.cause, fix=error.failure.fix,
                        where=_WHERE, evidence=error.failure.evidence, usage=True) from error  # fmt: skip
    except Exception as error:  # process edge: protobuf and onnx_ir have their own types
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise StepError(
            f"{path.name} is not valid ONNX: {text}", where=_WHERE, evidence=str(error)[:2000], usage=True
        ) from error


def _require_inside(location: Path) -> None:
    """A file from elsewhere must not make us read, digest and copy whatever it names."""
    if location.is_absolute() or ".." in location.parts:
        raise StepError(
            f"weights at '{location}', which is outside the graph's own folder",
            fix="save the file again with its weights beside it",
        )


def adopt(plan: Plan, target: Path) -> tuple[ir.Model, list[Path]]:
    """Write the graph to ``target`` with its weight files beside it; return graph and copied files.

    Fixed sizes of the recipe are pinned, axes named, local functions inlined, unnamed nodes named.
    """
    model = opened(Path(plan.model.file))
    _check_opset(model, plan)
    copied = _copy(model, target.parent)
    inlined.inline(model)
    plain_inputs(model)
    names.name_nodes(model)
    if any("pkg.torch.onnx.name_scopes" in node.metadata_props for node in model.graph.all_nodes()):
        provenance.condense_dynamo(model, wrapper="")
    else:
        provenance.condense_torchscript(model, wrapper="")
    _pin(model, plan)
    boundary.name_axes(model, plan)
    files.save(model, target, extra=WEIGHTS)
    return model, copied


def _check_opset(model: ir.Model, plan: Plan) -> None:
    written = model.opset_imports.get("", 0)
    if plan.opset is not None and written != plan.opset:
        what = f"{Path(plan.model.file).name} has opset {written}; the recipe asks {plan.opset}"
        raise StepError(
            what, fix="leave export.opset out, or convert the file", where="export.opset", usage=True
        )
    try:
        require_opset(model, plan.model.file, toolchain.resolve(plan.build.toolchain))
    except RecipeError:
        return  # the build step says so


def require_opset(model: ir.Model, file: str, tool: toolchain.Toolchain) -> None:
    """Raise StepError for an opset that the toolchain does not take."""
    written = model.opset_imports.get("", 0)
    limit = compatibility.opset_limit(tool.module, tool.version)
    if written > limit:
        raise StepError(
            f"{Path(file).name} has opset {written}, above {limit}, the newest that {tool.module}"
            f" {tool.version} takes",
            cause="the parser itself would not say so",
            fix=f"write the file with opset {limit} or lower", where=_WHERE, usage=True,
        )  # fmt: skip


def _copy(model: ir.Model, folder: Path) -> list[Path]:
    """Copy the weight files into ``folder``, not through memory, and move the graph's references to the copies.

    Links would be cheaper, but the ONNX checker refuses linked files, the customer's own among them.
    """
    copies: dict[Path, str] = {}
    for value in files.all_initializers(model):
        tensor = value.const_value
        if not isinstance(tensor, ir.ExternalTensor):
            continue
        source = Path(tensor.path).resolve()
        name = copies.setdefault(source, f"{COPIED}.{len(copies)}" if copies else COPIED)
        value.const_value = ir.ExternalTensor(
            name, tensor.offset, tensor.length, tensor.dtype,
            shape=tensor.shape, name=tensor.name or "", base_dir=folder,
        )  # fmt: skip
    for source, name in copies.items():
        shutil.copyfile(source, folder / name)
    return [folder / name for name in copies.values()]


def plain_inputs(model: ir.Model) -> None:
    """Old files list their weights among the inputs as well."""
    for value in [value for value in model.graph.inputs if value.name in model.graph.initializers]:
        model.graph.inputs.remove(value)


def _pin(model: ir.Model, plan: Plan) -> None:
    for value in model.graph.inputs:
        item = plan.inputs.get(value.name or "")
        if item is None or value.shape is None or len(item.shape) != len(value.shape):
            continue
        sizes: list[Any] = [
            wanted if isinstance(wanted, int) and not isinstance(there, int) else there
            for wanted, there in zip(item.shape, value.shape, strict=True)
        ]
        value.shape = ir.Shape(sizes)
