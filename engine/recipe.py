"""The recipe as written: frozen, no defaults filled in. ``None`` means the recipe does not say.

The fields repeat ``schemas/recipe.schema.json``, where each is described; a test keeps both in step.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from engine import document as documents
from engine import extends, schema
from engine.document import Document
from engine.errors import RecipeError
from engine.plain import from_plain

FloatType = Literal["fp32", "fp16", "bf16"]
QuantType = Literal["int8", "fp8", "int4"]
NodeType = Literal["fp32", "fp16", "bf16", "int8", "fp8", "int4"]
FLOATS: tuple[FloatType, ...] = get_args(FloatType)
QUANTS: tuple[QuantType, ...] = get_args(QuantType)
Method = Literal["max", "entropy", "percentile"]
Exporter = Literal["dynamo", "torchscript", "both"]
Simplify = Literal["none", "onnxsim"]
IoPolicy = Literal["keep", "lower"]
Rounding = Literal["every-op", "plan"]
Padding = Literal["right", "left", "mixed", "none"]
Layout = Literal["chw", "hwc"]
Source = Literal[
    "python", "checkpoint", "exported", "torchscript", "onnx", "torchvision", "timm", "transformers"
]
SOURCES: tuple[Source, ...] = get_args(Source)
Argument = str | bool | int | float


@dataclass(frozen=True)
class Weights:
    package: str | None = None
    path: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Checkpoint:
    python: str
    path: str
    package: str | None = None
    key: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Named:
    """A model of a library by name."""

    name: str
    arguments: Mapping[str, Argument] | None = None


@dataclass(frozen=True)
class Transformers:
    name: str
    config: str | None = None
    arguments: Mapping[str, Argument] | None = None


@dataclass(frozen=True)
class Model:
    """Exactly one of :data:`SOURCES` is set in a recipe that passed the checks."""

    python: str | None = None
    checkpoint: Checkpoint | None = None
    exported: str | None = None
    torchscript: str | None = None
    onnx: str | None = None
    torchvision: Named | None = None
    timm: Named | None = None
    transformers: Transformers | None = None
    sha256: str | None = None
    external_sha256: Mapping[str, str] | None = None
    weights: Weights | None = None

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(source for source in SOURCES if getattr(self, source) is not None)


@dataclass(frozen=True)
class Axis:
    min: int
    opt: int
    max: int


@dataclass(frozen=True)
class Mask:
    padding: Padding
    low: int | None = None
    high: int | None = None
    empty_rows: int | None = None
    keep: float | None = None
    drop: float | None = None


@dataclass(frozen=True)
class Image:
    layout: Layout
    range: tuple[float, ...] | None = None
    scale: float | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Values:
    """Exactly one of :data:`KINDS` is set in a recipe that passed the checks."""

    normal: tuple[float, ...] | None = None
    uniform: tuple[float, ...] | None = None
    integers: tuple[float, ...] | None = None
    lengths: tuple[float, ...] | None = None
    mask: Mask | None = None
    image: Image | None = None
    positions: bool | None = None
    same_as: str | None = None
    file: str | None = None
    key: str | None = None
    python: str | None = None
    masked_by: str | None = None
    pad: float | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(kind for kind in KINDS if getattr(self, kind) is not None)


PAIRS = ("normal", "uniform", "integers", "lengths")
KINDS = (*PAIRS, "mask", "image", "positions", "same_as", "file", "python")


@dataclass(frozen=True)
class Input:
    dtype: str
    shape: tuple[int | str, ...]
    values: str | Values | None = None


@dataclass(frozen=True)
class Export:
    opset: int | None = None
    exporter: Exporter | None = None


@dataclass(frozen=True)
class LeftOut:
    case: str
    because: str


@dataclass(frozen=True)
class AddedCase:
    name: str
    values: Mapping[str, str | Values]
    axes: Mapping[str, int] | None = None
    because: str | None = None


@dataclass(frozen=True)
class Stress:
    add: tuple[AddedCase, ...] | None = None
    leave_out: tuple[LeftOut, ...] | None = None


@dataclass(frozen=True)
class Rewrite:
    rule: str
    matches: int | None = None
    because: str | None = None


@dataclass(frozen=True)
class Override:
    type: NodeType
    because: str
    module: str | None = None
    op: str | None = None
    node: str | None = None
    nth: int | None = None


@dataclass(frozen=True)
class Labels:
    """Classes of calibration samples: an array of whole numbers in a file."""

    file: str
    key: str | None = None


@dataclass(frozen=True)
class Calibration:
    method: Method | None = None
    percentile: float | None = None
    batches: int | None = None
    values: Mapping[str, str | Values] | None = None
    labels: Labels | None = None
    cache: str | None = None


@dataclass(frozen=True)
class Search:
    base: tuple[NodeType, ...]
    budget: int | None = None


@dataclass(frozen=True)
class Precision:
    base: NodeType | None = None
    float: FloatType | None = None
    io: IoPolicy | None = None
    overrides: tuple[Override, ...] | None = None
    calibration: Calibration | None = None
    search: Search | None = None

    @property
    def quantises(self) -> bool:
        """Whether the base, an override or a base that is to be tried is a quantised type."""
        tried = self.search.base if self.search else ()
        asked = (self.base, *tried, *(item.type for item in self.overrides or ()))
        return any(kind in QUANTS for kind in asked)


@dataclass(frozen=True)
class Build:
    toolchain: str | None = None
    target: str | None = None
    workspace_mib: int | None = None
    time_limit_s: int | None = None
    memory_limit_mib: int | None = None


@dataclass(frozen=True)
class Matrix:
    toolchains: tuple[str, ...] | None = None
    targets: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Bench:
    rounds: int | None = None
    warmup: int | None = None


@dataclass(frozen=True)
class Limits:
    """Limits on an output's error; see the schema for each metric's unit."""

    max_abs: float | None = None
    mean_abs: float | None = None
    rel_l2: float | None = None
    cosine: float | None = None
    argmax: float | None = None


@dataclass(frozen=True)
class Fusion:
    attention: str | None = None
    layers: str | None = None


@dataclass(frozen=True)
class Accept:
    onnx: Limits
    engine: Limits
    fusion: Fusion | None = None
    engine_mib: float | None = None
    rounding: float | None = None
    rehearsal: Rounding | None = None


@dataclass(frozen=True)
class Waiver:
    claim: str
    owner: str
    because: str
    expires: str


@dataclass(frozen=True)
class Recipe:
    portwright: int
    name: str
    model: Model
    inputs: Mapping[str, Input]
    outputs: tuple[str, ...]
    accept: Accept
    extends: str | None = None
    about: str | None = None
    seed: int | None = None
    axes: Mapping[str, Axis] | None = None
    export: Export | None = None
    stress: Stress | None = None
    simplify: Simplify | None = None
    rewrites: tuple[Rewrite, ...] | Literal["auto"] | None = None
    precision: Precision | None = None
    build: Build | None = None
    bench: Bench | None = None
    matrix: Matrix | None = None
    waivers: tuple[Waiver, ...] | None = None

    @property
    def rules(self) -> tuple[Rewrite, ...]:
        """The rules that it names; with ``rewrites: auto`` it names none."""
        return () if self.rewrites == "auto" or self.rewrites is None else self.rewrites


@dataclass(frozen=True)
class LoadedRecipe:
    """A recipe together with the document that holds its places and the folder it lies in.

    ``folders`` holds the folder of every file that the document was merged from, by shown name.
    """

    recipe: Recipe
    document: Document
    folder: Path
    folders: Mapping[str, Path] = field(default_factory=dict)

    def beside(self, *path: str | int) -> Path:
        """Folder that a relative path written at key path ``path`` is relative to."""
        return self.folders.get(self.document.place(path).file, self.folder)


def find(path: Path) -> Path:
    """The recipe file for ``path``: itself, or ``recipe.yaml`` in it when it is a folder."""
    if path.name.endswith(documents.LOCK_SUFFIX):
        raise RecipeError(f"{path}: a lock file, not a recipe", hint="name the recipe that it lies beside")
    file = path / "recipe.yaml" if os.path.isdir(path) else path
    if not os.path.exists(file):  # a path that is none, too long for one say, is an answer here, no error
        raise RecipeError(f"{path}: no such recipe", hint="name a recipe.yaml or the folder that holds one")
    return file


def load(path: Path) -> LoadedRecipe:
    """Read a recipe, merge what it extends, check the form. Raises RecipeError listing every problem."""
    file = find(path)
    document = documents.read(file)
    if not isinstance(document.data, dict):
        raise RecipeError([document.problem((), "a recipe is a mapping; this file holds something else")])
    document, folders = extends.resolve(document, file)
    found = schema.problems(document, "recipe")
    if found:
        raise RecipeError(found)
    data: dict[str, Any] = document.data
    return LoadedRecipe(from_plain(Recipe, data), document, file.resolve().parent, folders)
