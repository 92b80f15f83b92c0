"""The model's part of the plan: which file or library it comes from, with what beside it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine.digests import digest_file
from engine.recipe import Argument, LoadedRecipe, Source, Weights

FILES: tuple[Source, ...] = ("exported", "torchscript", "onnx")
LIBRARIES: tuple[Source, ...] = ("torchvision", "timm", "transformers")


@dataclass(frozen=True)
class PlannedModel:
    """Where the model comes from; paths are absolute.

    ``file`` is the Python file or, for ``exported``, ``torchscript`` and ``onnx``, the model's own; ``digest``
    is of Python and configuration only (large files are digested when they are used). ``weights`` is a file
    or folder; ``weights_sha256`` is what ``weights``, or without it ``file``, must have. ``name`` and
    ``arguments`` are the library's, ``external_sha256`` is of the weight files beside an ONNX file.
    """

    file: str
    function: str
    digest: str
    weights: str | None
    weights_sha256: str | None
    source: Source = "python"
    key: str = ""
    name: str = ""
    config: str = ""
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    external_sha256: Mapping[str, str] = field(default_factory=dict)


def make(loaded: LoadedRecipe) -> PlannedModel:
    """Resolve the model of a checked recipe."""
    model = loaded.recipe.model
    source = model.sources[0]
    weights = model.weights
    path = str(weights_path(weights, loaded.beside("model", "weights", "path"))) if weights else None
    digest = weights.sha256 if weights else None
    if source == "python":
        return _python(loaded, str(model.python), path, digest)
    if source == "checkpoint":
        return _checkpoint(loaded)
    if source in FILES:
        file = loaded.beside("model", source) / str(getattr(model, source))
        beside = model.external_sha256 or {}
        return PlannedModel(str(file), "", "", None, model.sha256, source, external_sha256=beside)
    config = model.transformers.config if model.transformers else None
    settings = loaded.beside("model", "transformers", "config") / config if config else None
    if settings is not None and settings.is_dir():
        settings = settings / "config.json"
    named = getattr(model, source)
    return PlannedModel(
        "", "", digest_file(settings) if settings else "", path, digest, source,
        name=named.name, config=str(settings or ""), arguments=named.arguments or {},
    )  # fmt: skip


def _python(loaded: LoadedRecipe, written: str, weights: str | None, sha256: str | None) -> PlannedModel:
    name, _, function = written.partition(":")
    file = loaded.beside("model", "python") / name
    return PlannedModel(str(file), function, digest_file(file), weights, sha256)


def _checkpoint(loaded: LoadedRecipe) -> PlannedModel:
    item = loaded.recipe.model.checkpoint
    assert item is not None
    name, _, function = item.python.partition(":")
    file = loaded.beside("model", "checkpoint", "python") / name
    weights = Weights(item.package, item.path)
    path = weights_path(weights, loaded.beside("model", "checkpoint", "path"))
    return PlannedModel(
        str(file), function, digest_file(file), str(path), item.sha256, "checkpoint", item.key or ""
    )


def weights_path(weights: Weights, folder: Path) -> Path:
    """Where the weights lie. Raises ModuleNotFoundError for a package that is not installed."""
    if weights.package is None:
        return (folder / str(weights.path)).resolve()
    wanted = _plain_name(weights.package)
    for entry in filter(os.path.isdir, sys.path):
        for name in os.listdir(entry):
            # the folder's name says it; importlib.metadata costs 15 ms to import
            if name.endswith(".dist-info") and _plain_name(name.partition("-")[0]) == wanted:
                return Path(entry, str(weights.path))
    from importlib import metadata

    return Path(str(metadata.distribution(weights.package).locate_file(str(weights.path))))


def _plain_name(name: str) -> str:
    return name.replace("-", "_").replace(".", "_").lower()
