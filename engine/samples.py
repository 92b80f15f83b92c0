"""Seeded sample inputs, and the files that hold them with the reference outputs.

Values depend on the seed, the input's name and the shape's name alone, so that a machine elsewhere
makes the same ones (numpy's PCG64 streams are stable).
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.errors import StepError
from engine.plan import Plan, PlannedInput, concrete

Array = npt.NDArray[np.generic]
MOST_ELEMENTS = 2**31  # of one input; TensorRT's own limit on a tensor


def make(plan: Plan, shape: str) -> dict[str, Array]:
    """Sample inputs at the named shape, by input name."""
    return {name: _values(plan, name, item, shape) for name, item in plan.inputs.items()}


def _values(plan: Plan, name: str, item: PlannedInput, shape: str) -> Array:
    size = concrete(item.shape, plan.shapes[shape])
    if math.prod(size) > MOST_ELEMENTS:
        raise StepError(
            f"input '{name}' at shape '{shape}' would have {math.prod(size):,} elements",
            klass="shape", fix="use smaller axes", where="axes", usage=True,
        )  # fmt: skip
    rng = np.random.default_rng([plan.seed, zlib.crc32(name.encode()), zlib.crc32(shape.encode())])
    first, second = item.numbers if item.numbers else (0.0, 0.0)
    values: Array
    if item.kind == "normal":
        values = rng.normal(first, second, size)
    elif item.kind == "uniform":
        values = rng.uniform(first, second, size)
    elif item.kind == "integers":
        values = _integers(rng, int(first), int(second), size, few=shape == "odd")
    elif item.kind == "lengths":
        values = _lengths(rng, int(first), int(second), size)
    else:
        values = np.ones(size) if item.kind == "ones" else np.zeros(size)
    return values.astype(item.dtype)


def _integers(rng: np.random.Generator, low: int, high: int, size: tuple[int, ...], few: bool) -> Array:
    """Whole numbers; with ``few`` only both ends and three others, so that indices repeat and reach the ends."""
    if not few:
        return rng.integers(low, high, size, endpoint=True)
    return rng.choice(np.concatenate([[low, high], rng.integers(low, high, 3, endpoint=True)]), size)


def _lengths(rng: np.random.Generator, low: int, high: int, size: tuple[int, ...]) -> Array:
    width = size[-1]
    lengths = rng.integers(min(low, width), min(high, width), size[:-1], endpoint=True)
    mask: Array = np.arange(width) < lengths[..., None]
    return mask


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
