"""The plan: the recipe as resolved. Every default filled in, every name resolved, small files digested.

Pure: making a plan never imports torch, onnx, onnxruntime or tensorrt and never runs the model's code.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from engine import plan_inputs, plan_model, rule_files
from engine.digests import digest_file
from engine.paths import data_dir
from engine.plain import to_plain
from engine.plan_inputs import PlannedFile, PlannedInput
from engine.plan_model import PlannedModel, weights_path
from engine.recipe import (
    FLOATS,
    Accept,
    Axis,
    Calibration,
    Exporter,
    FloatType,
    IoPolicy,
    LeftOut,
    LoadedRecipe,
    Method,
    NodeType,
    Override,
    Recipe,
    Search,
    Simplify,
    Waiver,
)

__all__ = ["Plan", "PlannedInput", "PlannedModel", "concrete", "make", "weights_path"]

DEFAULT_OPSET = 18
DEFAULT_TIME_LIMIT_S = 3600
PARITY_SHAPES = ("min", "opt", "max", "odd")
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class PlannedRewrite:
    """A rule by absolute path; ``matches`` is the expected count or None for any but zero."""

    rule: str
    path: str
    digest: str
    matches: int | None
    because: str


@dataclass(frozen=True)
class PlannedCase:
    """A hard input that the recipe adds: ``inputs`` are those that differ from the recipe's own."""

    name: str
    sizes: Sizes
    inputs: Mapping[str, PlannedInput]
    because: str


@dataclass(frozen=True)
class PlannedStress:
    add: tuple[PlannedCase, ...] = ()
    leave_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class PlannedCalibration:
    """``inputs`` are those whose values differ from the recipe's own; ``cache`` and ``labels`` are absolute paths."""

    method: Method = "max"
    percentile: float = 99.99
    batches: int = 8
    inputs: Mapping[str, PlannedInput] = field(default_factory=dict)
    labels: PlannedFile | None = None
    cache: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)  # file name -> sha256


@dataclass(frozen=True)
class PlannedPrecision:
    """``base`` as written; ``floats`` is the type of all that is not quantised, the base itself where it is a float."""

    base: NodeType
    io: IoPolicy
    overrides: tuple[Override, ...]
    floats: FloatType
    calibration: PlannedCalibration | None = None  # None: nothing is quantised
    search: Search | None = None


@dataclass(frozen=True)
class PlannedBuild:
    """Toolchain by its recipe spelling; ``target`` is a compute capability such as ``sm89`` or None."""

    toolchain: str
    target: str | None
    workspace_mib: int | None
    time_limit_s: int
    memory_limit_mib: int | None


@dataclass(frozen=True)
class PlannedBench:
    rounds: int
    warmup: int


@dataclass(frozen=True)
class Plan:
    """Everything the steps need. ``shapes`` maps a shape's name to the size of each axis.

    With ``rewrites: auto``, ``library`` is the digest of all rules that may be chosen; it is empty otherwise.

    For an ONNX file as the start ``exporter`` is ``none``, and ``opset`` is None unless the recipe demands one.
    """

    name: str
    about: str
    recipe_file: str
    folder: str
    seed: int
    model: PlannedModel
    axes: Mapping[str, Axis]
    inputs: Mapping[str, PlannedInput]
    outputs: tuple[str, ...]
    shapes: Mapping[str, Sizes]
    opset: int | None
    exporter: Exporter | Literal["none"]
    simplify: Simplify
    rewrites: tuple[PlannedRewrite, ...]
    precision: PlannedPrecision
    build: PlannedBuild
    bench: PlannedBench
    accept: Accept
    waivers: tuple[Waiver, ...] = ()
    stress: PlannedStress = PlannedStress()
    library: str = ""

    @property
    def parity_shapes(self) -> tuple[str, ...]:
        """Names of the shapes that outputs are compared at; the export shape is never among them."""
        return tuple(name for name in PARITY_SHAPES if name in self.shapes)

    @property
    def digest(self) -> str:
        """sha256 of the plan as canonical JSON, without paths of the machine and without what is not said."""
        plain = to_plain(self)
        for key in ("folder", "recipe_file"):
            plain.pop(key)
        model = plain["model"]
        model.pop("weights")
        model |= {key: Path(model[key]).name for key in ("file", "config")}
        for rewrite in plain["rewrites"]:
            rewrite.pop("path")
        added = [item for case in plain["stress"]["add"] for item in case["inputs"].values()]
        calibration = plain["precision"]["calibration"]
        if calibration is None:
            plain["precision"].pop("floats")  # it is the base
        else:
            calibration["cache"] = Path(calibration["cache"]).name
            added += calibration["inputs"].values()
            if calibration["labels"]:
                calibration["labels"]["path"] = Path(calibration["labels"]["path"]).name
        for item in (*plain["inputs"].values(), *added):
            for detail, key in (("file", "path"), ("python", "file")):
                if item[detail]:
                    item[detail][key] = Path(item[detail][key]).name
        return hashlib.sha256(json.dumps(_said(plain), sort_keys=True).encode()).hexdigest()


def _said(value: Any) -> Any:
    """Without keys that hold nothing, so that a digest outlives keys which the language gains later."""
    if isinstance(value, dict):
        kept = {key: _said(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, "", [], {})}
    return [_said(item) for item in value] if isinstance(value, list) else value


def make(loaded: LoadedRecipe) -> Plan:
    """Resolve a checked recipe (see :mod:`engine.meaning`)."""
    recipe = loaded.recipe
    model = plan_model.make(loaded)
    return Plan(
        name=recipe.name,
        about=recipe.about or "",
        recipe_file=loaded.document.file,
        folder=str(loaded.folder),
        seed=recipe.seed or 0,
        model=model,
        axes=recipe.axes or {},
        inputs={name: plan_inputs.make(name, item, loaded) for name, item in recipe.inputs.items()},
        outputs=recipe.outputs,
        shapes=_shapes(recipe.axes or {}),
        opset=opset_of(recipe),
        exporter=_exporter(recipe),
        simplify=recipe.simplify or "none",
        rewrites=_rewrites(loaded),
        precision=_precision(loaded),
        build=_build(recipe),
        bench=_bench(recipe),
        accept=recipe.accept,
        waivers=recipe.waivers or (),
        stress=_stress(loaded),
        library=rule_files.digest_all(data_dir("rewrites").glob("*.yaml")) if recipe.rewrites == "auto" else "",
    )


def opset_of(recipe: Recipe) -> int | None:
    """The opset that the exported file must have; None for an ONNX file that may have any."""
    asked = recipe.export.opset if recipe.export else None
    return asked or (None if recipe.model.onnx else DEFAULT_OPSET)


def _exporter(recipe: Recipe) -> Exporter | Literal["none"]:
    if recipe.model.onnx:
        return "none"
    asked = recipe.export.exporter if recipe.export else None
    return asked or ("torchscript" if recipe.model.torchscript else "dynamo")


def _rewrites(loaded: LoadedRecipe) -> tuple[PlannedRewrite, ...]:
    planned = []
    for index, rewrite in enumerate(loaded.recipe.rules):
        own = rewrite.rule.endswith(".yaml")
        path = (
            loaded.beside("rewrites", index, "rule") / rewrite.rule
            if own
            else data_dir("rewrites") / f"{rewrite.rule}.yaml"
        )
        because = rewrite.because or ""
        planned.append(
            PlannedRewrite(path.stem, str(path), rule_files.digest(path), rewrite.matches, because)
        )
    return tuple(planned)


def _stress(loaded: LoadedRecipe) -> PlannedStress:
    written = loaded.recipe.stress
    if written is None:
        return PlannedStress()
    added = tuple(
        PlannedCase(item.name, item.axes or {}, plan_inputs.changed(index, item, loaded), item.because or "")
        for index, item in enumerate(written.add or ())
    )
    return PlannedStress(added, written.leave_out or ())


def _precision(loaded: LoadedRecipe) -> PlannedPrecision:
    written = loaded.recipe.precision
    if written is None:
        return PlannedPrecision("fp32", "keep", (), "fp32")
    base, overrides = written.base or "fp32", written.overrides or ()
    floats = next((kind for kind in FLOATS if kind == base), written.float or "fp16")
    calibration = _calibration(loaded, written.calibration) if written.quantises else None
    return PlannedPrecision(base, written.io or "keep", overrides, floats, calibration, written.search)


def _calibration(loaded: LoadedRecipe, written: Calibration | None) -> PlannedCalibration:
    if written is None:
        return PlannedCalibration()
    folder = loaded.beside("precision", "calibration")
    labels = None
    if written.labels:
        labels = PlannedFile(str((folder / written.labels.file).resolve()), written.labels.key or "labels")
    cache = str((folder / written.cache).resolve()) if written.cache else ""
    inputs = plan_inputs.calibration(written.values or {}, loaded)
    files = {item.file.path for item in inputs.values() if item.file} | {cache} - {""}
    files |= {labels.path} if labels else set()
    return PlannedCalibration(
        written.method or "max", written.percentile or 99.99, written.batches or 8, inputs, labels, cache,
        {Path(path).name: digest_file(Path(path)) for path in sorted(files)},
    )  # fmt: skip


def _build(recipe: Recipe) -> PlannedBuild:
    written = recipe.build
    return PlannedBuild(
        toolchain=(written.toolchain if written else None) or "current",
        target=written.target if written else None,
        workspace_mib=written.workspace_mib if written else None,
        time_limit_s=(written.time_limit_s if written else None) or DEFAULT_TIME_LIMIT_S,
        memory_limit_mib=written.memory_limit_mib if written else None,
    )


def _bench(recipe: Recipe) -> PlannedBench:
    rounds = recipe.bench.rounds if recipe.bench and recipe.bench.rounds is not None else 20
    warmup = recipe.bench.warmup if recipe.bench and recipe.bench.warmup is not None else 3
    return PlannedBench(rounds, warmup)


def concrete(shape: tuple[int | str, ...], sizes: Sizes) -> tuple[int, ...]:
    """``("batch", 3)`` as numbers."""
    return tuple(sizes[size] if isinstance(size, str) else size for size in shape)


def _shapes(axes: Mapping[str, Axis]) -> dict[str, dict[str, int]]:
    """Sizes of every axis at export, min, opt, max and ``odd`` (inside the profile, on no edge of it).

    Export sizes differ from axis to axis where the ranges allow it: equal sizes hide axes that were
    mixed up. A shape equal to the export shape is left out: parity there proves nothing about the axis.
    """
    shapes: dict[str, dict[str, int]] = {"export": {}}
    taken: set[int] = set()
    for name, axis in axes.items():
        size = _inside(axis, low=True, avoid={axis.min, axis.opt, axis.max, 1} | taken)
        shapes["export"][name] = size
        taken.add(size)
    shapes["min"] = {name: axis.min for name, axis in axes.items()}
    shapes["opt"] = {name: axis.opt for name, axis in axes.items()}
    shapes["max"] = {name: axis.max for name, axis in axes.items()}
    shapes["odd"] = {
        name: _inside(axis, low=False, avoid={axis.min, axis.opt, axis.max, shapes["export"][name]})
        for name, axis in axes.items()
    }
    if not axes:
        return {"export": {}, "opt": {}}
    seen: list[dict[str, int]] = [shapes["export"]]
    kept = {"export": shapes["export"]}
    for shape_name in PARITY_SHAPES:
        if shapes[shape_name] not in seen:
            kept[shape_name] = shapes[shape_name]
            seen.append(shapes[shape_name])
    return kept if len(kept) > 1 else kept | {"opt": shapes["opt"]}


def _inside(axis: Axis, low: bool, avoid: set[int]) -> int:
    free = [size for size in range(axis.min, min(axis.max, axis.min + 4096) + 1) if size not in avoid]
    if not free:
        inner = [size for size in (axis.opt, axis.max, axis.min) if size > 1]
        return inner[0] if inner else axis.min
    if low:
        return free[min(len(free) - 1, 1)]
    middle = math.sqrt(axis.min * axis.max) * 1.5
    return min(free, key=lambda size: (not _prime(size), abs(size - middle)))


def _prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))
