"""An input's part of the plan: type, shape, and how its sample values are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.digests import digest_file
from engine.recipe import PAIRS, AddedCase, Image, Input, Layout, LoadedRecipe, Mask, Padding, Values


@dataclass(frozen=True)
class PlannedMask:
    """``high`` None is the size of the axis; see the schema for the rest."""

    padding: Padding
    low: int
    high: int | None
    empty_rows: int
    keep: float
    drop: float


@dataclass(frozen=True)
class PlannedImage:
    """``mean`` and ``std`` hold one number, or one a channel."""

    layout: Layout
    low: int
    high: int
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class PlannedFile:
    """An array named ``key`` in a .npz or .safetensors file by absolute path."""

    path: str
    key: str


@dataclass(frozen=True)
class PlannedPython:
    file: str
    function: str
    digest: str


@dataclass(frozen=True)
class PlannedInput:
    """``kind`` says how values are made; ``numbers`` or one of the details belongs to it.

    Where the input ``masked_by`` drops, values are ``pad``.
    """

    dtype: str
    shape: tuple[int | str, ...]
    kind: str
    numbers: tuple[float, ...]
    masked_by: str = ""
    pad: float = 0.0
    same_as: str = ""
    mask: PlannedMask | None = None
    image: PlannedImage | None = None
    file: PlannedFile | None = None
    python: PlannedPython | None = None


_WORDS: dict[str, tuple[float, ...]] = {"normal": (0.0, 1.0), "ones": (), "zeros": (), "positions": ()}


def changed(index: int, case: AddedCase, loaded: LoadedRecipe) -> dict[str, PlannedInput]:
    """The inputs that case ``index`` of ``stress.add`` gives other values."""
    at = ("stress", "add", index, "values")
    return {
        name: make(name, replace(loaded.recipe.inputs[name], values=values), loaded, at)
        for name, values in case.values.items()
    }


def calibration(values: Mapping[str, str | Values], loaded: LoadedRecipe) -> dict[str, PlannedInput]:
    """The inputs that ``precision.calibration`` gives other values."""
    at = ("precision", "calibration", "values")
    inputs = loaded.recipe.inputs
    return {name: make(name, replace(inputs[name], values=item), loaded, at) for name, item in values.items()}


def make(
    name: str, item: Input, loaded: LoadedRecipe, at: tuple[str | int, ...] = ("inputs",)
) -> PlannedInput:
    """Resolve one input of a checked recipe; ``at`` is the key path of the mapping that it stands in."""
    values = item.values
    if values is None:
        floats = item.dtype.startswith("float")
        values = "normal" if floats else Values(integers=(0.0, 1.0))
    if isinstance(values, str):
        return PlannedInput(item.dtype, item.shape, values, _WORDS[values])
    kind = values.kinds[0]
    numbers = tuple(getattr(values, kind)) if kind in PAIRS else ()
    return PlannedInput(
        item.dtype, item.shape, kind, numbers, values.masked_by or "", values.pad or 0.0, values.same_as or "",
        _mask(values.mask), _image(values.image), _file(name, values, loaded, at),
        _python(name, values, loaded, at),
    )  # fmt: skip


def _mask(mask: Mask | None) -> PlannedMask | None:
    if mask is None:
        return None
    keep = 1.0 if mask.keep is None else mask.keep
    return PlannedMask(mask.padding, mask.low or 1, mask.high, mask.empty_rows or 0, keep, mask.drop or 0.0)


def _image(image: Image | None) -> PlannedImage | None:
    if image is None:
        return None
    low, high = image.range or (0, 255)
    return PlannedImage(
        image.layout, int(low), int(high), image.scale or 1.0, image.mean or (0.0,), image.std or (1.0,)
    )


def _file(name: str, values: Values, loaded: LoadedRecipe, at: tuple[str | int, ...]) -> PlannedFile | None:
    if values.file is None:
        return None
    folder = loaded.beside(*at, name)
    return PlannedFile(str((folder / values.file).resolve()), values.key or name)


def _python(
    name: str, values: Values, loaded: LoadedRecipe, at: tuple[str | int, ...]
) -> PlannedPython | None:
    if values.python is None:
        return None
    file_name, _, function = values.python.partition(":")
    file = loaded.beside(*at, name) / file_name
    return PlannedPython(str(file), function, digest_file(file))
