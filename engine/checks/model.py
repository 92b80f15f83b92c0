"""The model of a recipe: exactly one source, its files, and nothing beside it that the source has no use for."""

from __future__ import annotations

from collections.abc import Iterator

from engine.checks import files
from engine.errors import Problem
from engine.plan_model import FILES, LIBRARIES
from engine.recipe import SOURCES, LoadedRecipe, Weights

TORCHSCRIPT_OPSET = 20  # torch.onnx._constants.ONNX_TORCHSCRIPT_EXPORTER_MAX_OPSET of torch 2.9 to 2.13

_FETCHING = frozenset(
    {"weights", "weights_backbone", "pretrained", "pretrained_backbone", "pretrained_cfg", "checkpoint_path"}
)


def problems(loaded: LoadedRecipe) -> Iterator[Problem]:
    """Every problem under ``model``, and of ``export`` with this source."""
    at, model = loaded.document.problem, loaded.recipe.model
    sources = model.sources
    if len(sources) != 1:
        what = (
            f"model: names {len(sources)} sources: {', '.join(sources)}"
            if sources
            else "model: names no source"
        )
        hint = f"exactly one of: {', '.join(SOURCES)}"
        files_of = [loaded.document.place(("model", source)).file for source in sources]
        if len(set(files_of)) > 1:
            hint = (
                f"'{sources[0]}' is in {files_of[0]}, '{sources[1]}' in {files_of[1]}: remove one with null"
            )
        yield at(("model", sources[1]) if sources else ("model",), what, hint, key=True)
        return
    yield from _files(loaded)
    yield from _idle(loaded)
    yield from _downloads(loaded)
    yield from _export(loaded)


def _files(loaded: LoadedRecipe) -> Iterator[Problem]:
    model = loaded.recipe.model
    if model.python:
        yield from files.python(loaded, ("model", "python"), model.python)
    if item := model.checkpoint:
        where = ("model", "checkpoint")
        yield from files.python(loaded, (*where, "python"), item.python)
        yield from files.weights(loaded, where, Weights(item.package, item.path, item.sha256))
    for source in FILES:
        if written := getattr(model, source):
            yield from files.present(loaded, ("model", source), written)
    if model.transformers and model.transformers.config:
        yield from files.present(loaded, ("model", "transformers", "config"), model.transformers.config)
    if model.weights is not None:
        yield from files.weights(loaded, ("model", "weights"), model.weights)


def _idle(loaded: LoadedRecipe) -> Iterator[Problem]:
    """Keys that this source has no use for."""
    at, model = loaded.document.problem, loaded.recipe.model
    source = model.sources[0]
    if model.weights is not None and source not in ("python", *LIBRARIES):
        what = f"model.weights: '{source}' brings its own weights"
        yield at(("model", "weights"), what, "leave it out", key=True)
    if model.sha256 is not None and source not in FILES:
        hint = "it stands under 'checkpoint'" if source == "checkpoint" else "it stands under 'weights'"
        yield at(("model", "sha256"), f"model.sha256: is for {', '.join(FILES)}", hint, key=True)
    if model.external_sha256 is not None and source != "onnx":
        what = "model.external_sha256: is for the weight files beside an ONNX file"
        yield at(("model", "external_sha256"), what, "leave it out", key=True)
    if (item := model.checkpoint) and item.key and item.path.endswith(".safetensors"):
        what = "model.checkpoint.key: a .safetensors file has no levels"
        yield at(("model", "checkpoint", "key"), what, "leave it out", key=True)
    if model.transformers and not model.transformers.config and model.weights is None:
        what = "model.transformers: neither 'config' nor 'weights' says what to build"
        yield at(("model", "transformers"), what, "add one of them", key=True)


def _downloads(loaded: LoadedRecipe) -> Iterator[Problem]:
    """Arguments by which a library would fetch weights, or read some that the record does not know."""
    model = loaded.recipe.model
    for library, item in (("torchvision", model.torchvision), ("timm", model.timm)):
        for name in (item.arguments or {}) if item else ():
            if name in _FETCHING:
                where = ("model", library, "arguments", name)
                what = f"model.{library}.arguments: '{name}' would load other weights than the recipe's"
                yield loaded.document.problem(where, what, "name a local file under model.weights", key=True)


def _export(loaded: LoadedRecipe) -> Iterator[Problem]:
    at, recipe = loaded.document.problem, loaded.recipe
    exporter = recipe.export.exporter if recipe.export else None
    opset = recipe.export.opset if recipe.export else None
    where = ("export", "exporter")
    if recipe.model.onnx and exporter:
        yield at(where, "export.exporter: an ONNX file is not exported again", "leave it out", key=True)
    if recipe.model.torchscript and exporter in ("dynamo", "both"):
        what = "export.exporter: a TorchScript file is exported by tracing only"
        yield at(where, what, "exporter: torchscript, or leave it out")
    traced = exporter in ("torchscript", "both") or (
        recipe.model.torchscript is not None and exporter is None
    )
    if traced and opset is not None and opset > TORCHSCRIPT_OPSET:
        what = f"export.opset: the torchscript exporter writes opsets up to {TORCHSCRIPT_OPSET}, not {opset}"
        yield at(("export", "opset"), what, "exporter: dynamo writes newer ones")
