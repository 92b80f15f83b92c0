"""Seeded sample inputs, and the files that hold them with the reference outputs.

Values depend on the seed, the input's name and the shape's name alone, so that a machine elsewhere
makes the same ones (numpy's PCG64 streams are stable).
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine import arrays, customer
from engine.errors import StepError
from engine.plan import Plan, PlannedInput, Sizes, concrete

Array = npt.NDArray[np.generic]
MOST_ELEMENTS = 2**31  # of one input; TensorRT's own limit on a tensor
Size = tuple[int, ...]


Change = Callable[[PlannedInput, Size, np.random.Generator, Any], Any]


def make(
    plan: Plan, shape: str, sizes: Sizes | None = None, changes: Mapping[str, Change] | None = None
) -> dict[str, Array]:
    """Sample inputs at the named shape, by input name. Runs the recipe's Python where an input asks for it.

    ``sizes`` are the axes of a shape that the plan does not name. A change gets an input's own values and gives
    others; inputs that follow the changed one follow the change.
    """
    made: dict[str, Array] = {}
    sizes = plan.shapes[shape] if sizes is None else sizes
    # An input that follows another one comes after it; the checks allow no longer chains than these.
    for name, item in sorted(
        plan.inputs.items(), key=lambda pair: (bool(pair[1].same_as), bool(pair[1].masked_by))
    ):
        size = concrete(item.shape, sizes)
        made[name] = _values(plan, name, item, size, shape, made, (changes or {}).get(name))
    return {name: made[name] for name in plan.inputs}


def _generator(plan: Plan, name: str, shape: str) -> np.random.Generator:
    return np.random.default_rng([plan.seed, zlib.crc32(name.encode()), zlib.crc32(shape.encode())])


def _values(
    plan: Plan,
    name: str,
    item: PlannedInput,
    size: Size,
    shape: str,
    made: Mapping[str, Array],
    change: Change | None = None,
) -> Array:
    if math.prod(size) > MOST_ELEMENTS:
        raise StepError(
            f"input '{name}' at shape '{shape}' would have {math.prod(size):,} elements",
            klass="shape", fix="use smaller axes", where="axes", usage=True,
        )  # fmt: skip
    rng = _generator(plan, name, shape)
    if item.same_as:
        return made[item.same_as].astype(item.dtype)
    kept = _kept(plan.inputs[item.masked_by], made[item.masked_by], size) if item.masked_by else None
    if item.kind == "positions" and kept is not None:
        values: Any = np.maximum(np.cumsum(kept, axis=-1) - 1, 0)
    elif item.kind == "integers" and shape == "odd":
        values = _few_integers(rng, item, size)
    elif item.kind in ("file", "python"):
        values = (_file if item.kind == "file" else _python)(name, item, size, rng)
    else:
        values = _KINDS[item.kind](rng, item, size)
    if change is not None:
        own = np.asarray(values).astype(item.dtype)
        values = change(item, size, _generator(plan, f"{name}/changed", shape), own)
    if kept is not None:
        values = np.where(kept, values, item.pad)
    cast: Array = np.asarray(values).astype(item.dtype)
    return cast


def _few_integers(rng: np.random.Generator, item: PlannedInput, size: Size) -> Array:
    """Only both ends and three other numbers, so that indices repeat and reach the ends."""
    low, high = (int(number) for number in item.numbers)
    return rng.choice(np.concatenate([[low, high], rng.integers(low, high, 3, endpoint=True)]), size)


def _kept(mask: PlannedInput, values: Array, size: Size) -> Array:
    """Where a mask keeps, spread over the axes behind its own."""
    drop = mask.mask.drop if mask.mask else 0.0
    kept: Array = values != np.asarray(drop, values.dtype)
    return np.broadcast_to(kept.reshape(kept.shape + (1,) * (len(size) - kept.ndim)), size)


def _lengths(rng: np.random.Generator, item: PlannedInput, size: Size) -> Array:
    width, (low, high) = size[-1], item.numbers
    lengths = rng.integers(min(int(low), width), min(int(high), width), size[:-1], endpoint=True)
    mask: Array = np.arange(width) < lengths[..., None]
    return mask


def _mask(rng: np.random.Generator, item: PlannedInput, size: Size) -> Array:
    mask, width = item.mask, size[-1]
    assert mask is not None
    low, high = min(mask.low, width), min(mask.high or width, width)
    lengths = rng.integers(low, high, size[:-1], endpoint=True)
    if mask.padding == "none":
        lengths = np.full(size[:-1], width)
    left = np.full(size[:-1], mask.padding == "left")
    if mask.padding == "mixed":
        left = rng.integers(0, 2, size[:-1]) == 1
    places = np.arange(width)
    kept = np.where(left[..., None], places >= width - lengths[..., None], places < lengths[..., None])
    if mask.empty_rows:
        kept.reshape(-1, width)[-mask.empty_rows :] = False
    return np.where(kept, mask.keep, mask.drop)


def _image(rng: np.random.Generator, item: PlannedInput, size: Size) -> Array:
    image = item.image
    assert image is not None
    pixels = rng.integers(image.low, image.high, size, endpoint=True)
    spread = (-1, 1, 1) if image.layout == "chw" else (-1,)
    mean, std = (np.asarray(numbers).reshape(spread) for numbers in (image.mean, image.std))
    values: Array = (pixels / image.scale - mean) / std
    return values


def _integers(rng: np.random.Generator, item: PlannedInput, size: Size) -> Array:
    low, high = (int(number) for number in item.numbers)
    return np.asarray(rng.integers(low, high, size, endpoint=True))


_KINDS: dict[str, Callable[[np.random.Generator, PlannedInput, Size], Any]] = {
    "normal": lambda rng, item, size: rng.normal(item.numbers[0], item.numbers[1], size),
    "uniform": lambda rng, item, size: rng.uniform(item.numbers[0], item.numbers[1], size),
    "integers": _integers,
    "lengths": _lengths,
    "mask": _mask,
    "image": _image,
    "positions": lambda rng, item, size: np.broadcast_to(np.arange(size[-1]), size),
    "ones": lambda rng, item, size: np.ones(size),
    "zeros": lambda rng, item, size: np.zeros(size),
}


def _file(name: str, item: PlannedInput, size: Size, rng: np.random.Generator) -> Any:
    """The leading slice of the stored array."""
    assert item.file is not None
    path, stored = Path(item.file.path), np.empty(())
    try:
        header = arrays.headers(path)[item.file.key]
        reason = arrays.misfit(header, item.dtype, size)
        stored = stored if reason else arrays.load(path, item.file.key)
    except KeyError:
        reason = f"there is no '{item.file.key}' in it"
    except (OSError, ValueError) as error:
        reason = str(error)
    if reason:
        where = f"inputs.{name}.values.file"
        raise StepError(f"values of '{name}' from {path.name}: {reason}", where=where, usage=True)
    taken = stored[tuple(slice(length) for length in size)]
    cast = taken.astype(item.dtype)
    if not item.dtype.startswith("float") and not np.array_equal(cast, taken):
        what = f"values of '{name}' from {path.name} do not fit into {item.dtype}"
        raise StepError(what, where=f"inputs.{name}.dtype", usage=True)
    return cast


def _python(name: str, item: PlannedInput, size: Size, rng: np.random.Generator) -> Any:
    """What the recipe's function returns, when it has the right form and repeats for the same generator."""
    assert item.python is not None
    file, where = Path(item.python.file), f"inputs.{name}.values.python"
    title = f"{file.name}:{item.python.function}"
    state = rng.bit_generator.state
    function = customer.function(file, item.python.function, where)
    first, second = None, None
    for _ in range(2):
        rng.bit_generator.state = state
        first, second = (
            second,
            customer.call(f"{title} raised", where, function, name, size, np.dtype(item.dtype), rng),
        )
        if not isinstance(second, np.ndarray) or second.shape != size or second.dtype != item.dtype:
            got = (
                f"{second.dtype} {list(second.shape)}"
                if isinstance(second, np.ndarray)
                else type(second).__name__
            )
            what = f"{title} returned {got} for '{name}', expected {item.dtype} {list(size)}"
            raise StepError(what, where=where, usage=True)
    if np.asarray(first).tobytes() != np.asarray(second).tobytes():
        what = f"{title} returned different values for the same generator state"
        raise StepError(what, fix="draw only from the generator that it is given", where=where, usage=True)
    return second


def save(path: Path, inputs: Mapping[str, Array], outputs: Mapping[str, Mapping[str, Array]]) -> None:
    """Write inputs and, by kind (``fp32``, ``half``), outputs into one ``.npz``; it appears whole."""
    arrays = {f"input/{name}": value for name, value in inputs.items()}
    for kind, named in outputs.items():
        arrays |= {f"{kind}/{name}": value for name, value in named.items()}
    draft = path.with_name(f".{path.name}.part")
    with draft.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]
    os.replace(draft, path)


def read(path: Path, kind: str) -> dict[str, Array]:
    """Arrays of one kind (``input``, ``fp32``, ``half``) by name; empty when the file has none."""
    with np.load(path, allow_pickle=False) as archive:
        prefix = f"{kind}/"
        return {key[len(prefix) :]: archive[key] for key in archive.files if key.startswith(prefix)}
