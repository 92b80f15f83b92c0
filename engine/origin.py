"""Where a plan's model comes from, in words and digests. Imports no framework; reads the files it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.digests import digest_file
from engine.errors import StepError
from engine.plan import Plan, PlannedModel


def facts(plan: Plan) -> dict[str, Any]:
    """``source``, ``what``, ``reference`` and the sha256 of every file behind model and values.

    Raises StepError when a file has another sha256 than the recipe says, or cannot be read.
    """
    model = plan.model
    files: dict[str, str] = {}
    main = model.weights or (model.file if model.source in ("exported", "torchscript", "onnx") else "")
    if main:
        _add(files, Path(main), f"model.{model.source}" if main == model.file else "model.weights")
        _check_digest(model, Path(main), files)
    for file in (model.file, model.config):
        if file and file != main:
            _add(files, Path(file), "model")
    for name, item in plan.inputs.items():
        where = f"inputs.{name}.values"
        if item.file is not None:
            _add(files, Path(item.file.path), f"{where}.file")
        if item.python is not None:
            _add(files, Path(item.python.file), f"{where}.python")
    return {"source": model.source, "what": describe(plan), "reference": reference(model), "files": files}


def describe(plan: Plan) -> str:
    """One phrase for the report."""
    model = plan.model
    file = Path(model.file).name
    weights = f"weights {Path(model.weights).name}" if model.weights else ""
    loose = weights or f"random weights of seed {plan.seed}"
    settings = "".join(f", {key} {json.dumps(value)}" for key, value in model.arguments.items())
    texts = {
        "python": f"{file}:{model.function}" + (f", {weights}" if weights else ""),
        "checkpoint": f"module built by {file}:{model.function}, {weights}",
        "exported": f"exported program {file}",
        "torchscript": f"TorchScript file {file}",
        "onnx": f"ONNX file {file}",
    }
    return texts.get(model.source) or f"{model.source} {model.name}{settings}, {loose}"


def reference(model: PlannedModel) -> str:
    """What the outputs of every later stage are compared with."""
    return "the ONNX file" if model.source == "onnx" else "PyTorch"


def _add(files: dict[str, str], path: Path, where: str) -> None:
    """Digest ``path``, or all files below it; a name that another file has already gets its folder before it."""
    try:
        inside = [file for file in sorted(path.rglob("*")) if file.is_file()] if path.is_dir() else [path]
        base = path if path.is_dir() else path.parent
        for file in inside:
            name, digest = file.relative_to(base).as_posix(), digest_file(file)
            clash = files.get(name, digest) != digest
            files[f"{base.name}/{name}" if clash else name] = digest
    except OSError as error:
        raise StepError(f"{path.name} cannot be read: {error.strerror}", where=where, usage=True) from None


def _check_digest(model: PlannedModel, path: Path, files: dict[str, str]) -> None:
    expected, found = model.weights_sha256, files.get(path.name)
    if not expected or found == expected:
        return
    where = {"checkpoint": "model.checkpoint.sha256"}.get(model.source)
    where = where or ("model.weights.sha256" if model.weights else "model.sha256")
    raise StepError(
        f"the {'weights' if model.weights else 'model'} file {path.name} has another sha256 than the recipe says",
        klass="tooling",
        cause=f"sha256 is {found}",
        fix=f"use the file that the recipe was reviewed with, or update {where}",
        where=where,
        usage=True,
    )
