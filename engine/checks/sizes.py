"""How large the inputs get at the largest sizes of the axes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from engine.document import KeyPath
from engine.errors import Problem
from engine.recipe import LoadedRecipe

BYTES = {"float32": 4, "float16": 2, "int64": 8, "int32": 4, "int8": 1, "uint8": 1, "bool": 1}
MAX_INPUTS_MIB = 4096


def largest(loaded: LoadedRecipe, shape: tuple[int | str, ...]) -> tuple[int, ...]:
    """The shape at the largest size of every axis; empty where an axis is not declared."""
    axes = loaded.recipe.axes or {}
    if any(isinstance(size, str) and size not in axes for size in shape):
        return ()
    return tuple(axes[size].max if isinstance(size, str) else size for size in shape)


def memory(loaded: LoadedRecipe) -> Iterator[Problem]:
    """Inputs that alone, at the largest sizes, pass the build's memory limit, or MAX_INPUTS_MIB without one."""
    build = loaded.recipe.build
    limit = build.memory_limit_mib if build else None
    sizes = {
        name: math.prod(largest(loaded, item.shape)) * BYTES[item.dtype]
        for name, item in loaded.recipe.inputs.items()
        if len(largest(loaded, item.shape)) == len(item.shape)
    }
    total = -(-sum(sizes.values()) // 2**20)
    if total <= (limit or MAX_INPUTS_MIB):
        return
    name = max(sizes, key=lambda key: sizes[key])
    against = "build.memory_limit_mib" if limit else "what a recipe may ask without build.memory_limit_mib"
    what = (
        f"the inputs alone take {total:,} MiB at the largest sizes, more than {limit or MAX_INPUTS_MIB:,} MiB"
    )
    hint = f"the largest is '{name}'; lower a size of it or raise the limit"
    yield loaded.document.problem(_widest(loaded, name, limit or MAX_INPUTS_MIB), f"{what} ({against})", hint)


def _widest(loaded: LoadedRecipe, name: str, limit_mib: int) -> KeyPath:
    """What to lower of an input: its widest axis, or its shape where axes of 1 would not do."""
    item = loaded.recipe.inputs[name]
    fixed = math.prod(size for size in item.shape if isinstance(size, int)) * BYTES[item.dtype]
    moving = [size for size in item.shape if isinstance(size, str)]
    if not moving or fixed > limit_mib * 2**20:
        return ("inputs", name, "shape")
    axes = loaded.recipe.axes or {}
    return ("axes", max(moving, key=lambda axis: axes[axis].max), "max")
