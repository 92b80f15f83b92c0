"""What a module holds between two calls: modes, parameters and buffers; and what of it changed.

Imported only inside the step host.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from engine.samples import Array


@dataclass(frozen=True)
class State:
    """Mode by module, checksum by parameter and buffer."""

    modes: Mapping[str, bool]
    sums: Mapping[str, tuple[Any, ...]]


def tensors(model: torch.nn.Module) -> dict[str, Array]:
    """Parameters and buffers by name as numpy views; tied ones under each name. Types numpy lacks are left out."""
    both = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: tensor.detach().numpy() for name, tensor in both if _plain(tensor)}


def _plain(tensor: torch.Tensor) -> bool:
    return tensor.dtype != torch.bfloat16 and tensor.layout == torch.strided and not tensor.is_quantized


def epsilons(model: torch.nn.Module) -> dict[str, float]:
    """The epsilon of every batch norm by module path."""
    kind = torch.nn.modules.batchnorm._BatchNorm
    return {name: float(module.eps) for name, module in model.named_modules() if isinstance(module, kind)}


def take(model: torch.nn.Module) -> State:
    """The state now. No weight is copied."""
    modes = {name: module.training for name, module in model.named_modules()}
    return State(modes, {name: _sum(array) for name, array in tensors(model).items()})


def changes(before: State, after: State) -> list[str]:
    """What differs, as short texts in the order of the model."""
    found = [
        f"{name or 'the model'} went to {'training' if after.modes[name] else 'eval'} mode"
        for name, mode in before.modes.items()
        if after.modes.get(name, mode) != mode
    ]
    for name, old in before.sums.items():
        if name not in after.sums:
            found.append(f"'{name}' is gone")
        elif after.sums[name] != old:
            found.append(f"'{name}' changed")
    return found + [f"'{name}' is new" for name in after.sums if name not in before.sums]


def _sum(array: Array) -> tuple[Any, ...]:
    whole = np.ascontiguousarray(array)
    return whole.shape, str(whole.dtype), zlib.crc32(whole.reshape(-1).view(np.uint8).data)
