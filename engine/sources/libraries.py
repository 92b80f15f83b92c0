"""Models of torchvision, timm and transformers by name, from local files or with random weights."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from engine import customer
from engine.errors import StepError
from engine.plan import PlannedModel
from engine.schema import nearest
from engine.sources import weights


def load(planned: PlannedModel) -> torch.nn.Module:
    """Build the named model. Raises StepError when the library is missing, broken or knows no such name."""
    where = f"model.{planned.source}"
    # Set before any library is imported, since they read it then.
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    library = _library(planned.source, where)
    builders = {"torchvision": _torchvision, "timm": _timm, "transformers": _transformers}
    return builders[planned.source](library, planned, where)


def _library(name: str, where: str) -> Any:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        raise StepError(
            f"{name} is not installed", fix=f"pip install {name}", where=where, usage=True
        ) from None
    try:
        return importlib.import_module(name)
    except Exception as error:  # process edge: an installed library that does not fit this torch
        broken = customer.theirs(f"importing {name} raised", error, where).failure
        fix = f"install a {name} that was built for torch {torch.__version__}"
        raise StepError(replace(broken, fix=fix)) from error


def _torchvision(library: Any, planned: PlannedModel, where: str) -> torch.nn.Module:
    _known(planned.name, library.models.list_models(), "torchvision", where)
    build = library.models.get_model_builder(planned.name)
    arguments: dict[str, Any] = {**planned.arguments, "weights": None}
    if "weights_backbone" in _parameters(build):
        arguments["weights_backbone"] = None
    return _filled(_built(build, planned, where, **arguments), planned)


def _timm(library: Any, planned: PlannedModel, where: str) -> torch.nn.Module:
    _known(planned.name, library.list_models(), "timm", where)
    arguments = {**planned.arguments, "pretrained": False}
    return _filled(_built(library.create_model, planned, where, planned.name, **arguments), planned)


def _transformers(library: Any, planned: PlannedModel, where: str) -> torch.nn.Module:
    library.utils.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()
    cls = getattr(library, planned.name, None)
    if cls is None or not hasattr(cls, "from_pretrained"):
        _known(planned.name, [name for name in dir(library) if name[:1].isupper()], "transformers", where)
        raise StepError(f"transformers.{planned.name} is no model class", where=f"{where}.name", usage=True)
    folder = Path(planned.weights) if planned.weights and Path(planned.weights).is_dir() else None
    config = _config(library, planned, folder, where)
    if folder is not None:
        return _module(
            customer.call(
                f"{planned.name}.from_pretrained raised", "model.weights", cls.from_pretrained, folder,
                config=config, local_files_only=True, trust_remote_code=False,
            ),
            where,
        )  # fmt: skip
    build = cls.from_config if planned.name.startswith("AutoModel") else cls
    return _filled(_module(customer.call(f"{planned.name} raised", where, build, config), where), planned)


def _config(library: Any, planned: PlannedModel, folder: Path | None, where: str) -> Any:
    source = planned.config or str(folder)
    config = customer.call(
        f"the configuration {Path(source).name} raised", f"{where}.config" if planned.config else "model.weights",
        library.AutoConfig.from_pretrained, source, local_files_only=True, trust_remote_code=False,
    )  # fmt: skip
    for key, value in planned.arguments.items():
        if not hasattr(config, key):
            known = [name for name in config.to_dict() if not name.startswith("_")]
            raise StepError(
                f"{type(config).__name__} has no '{key}'", fix=nearest(key, known),
                where=f"{where}.arguments.{key}", usage=True,
            )  # fmt: skip
        setattr(config, key, value)
    return config


def _known(name: str, names: list[str], library: str, where: str) -> None:
    if name not in names:
        raise StepError(
            f"{library} has no '{name}'", fix=nearest(name, names), where=f"{where}.name", usage=True
        )


def _parameters(build: Callable[..., Any]) -> set[str]:
    import inspect

    return set(inspect.signature(build).parameters)


def _built(
    build: Callable[..., Any], planned: PlannedModel, where: str, *args: Any, **named: Any
) -> torch.nn.Module:
    return _module(
        customer.call(f"{planned.source} {planned.name} raised", where, build, *args, **named), where
    )


def _module(model: Any, where: str) -> torch.nn.Module:
    if not isinstance(model, torch.nn.Module):
        raise StepError(f"it is {type(model).__name__}, not a torch.nn.Module", where=where, usage=True)
    return model


def _filled(model: torch.nn.Module, planned: PlannedModel) -> torch.nn.Module:
    if planned.weights:
        weights.fill(model, Path(planned.weights), "", "model.weights")
    return model
