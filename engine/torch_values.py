"""What PyTorch computes inside the model: every tensor of the traced program, or every module's result, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from engine.samples import Array
from engine.torch_model import Port


def of_program(
    program: Any, feeds: Mapping[str, Array], inputs: tuple[str, ...]
) -> tuple[dict[str, Array], list[Array]]:
    """Every tensor that a ``torch.export.ExportedProgram`` computes for ``feeds``, by its node; its outputs.

    The dynamo exporter gives the ONNX values these names.
    """
    found: dict[str, Array] = {}

    class Recording(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            value = super().run_node(n)
            if n.op == "call_function" and isinstance(value, torch.Tensor):
                found[n.name] = _numpy(value)
            return value

    with torch.no_grad():
        returned = Recording(program.module()).run(*_tensors(feeds, inputs))
    return found, [_numpy(value) for value in returned]


def of_modules(port: Port, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The result of every module that is called exactly once and returns one tensor, by module path."""
    found: dict[str, Array] = {}
    calls: dict[str, int] = {}

    def hook(path: str, returned: Any) -> None:
        calls[path] = calls.get(path, 0) + 1
        if isinstance(returned, torch.Tensor):
            found[path] = _numpy(returned)

    handles = [
        module.register_forward_hook(lambda _module, _given, returned, path=path: hook(path, returned))
        for path, module in port.model.named_modules()
        if path
    ]
    try:
        with torch.no_grad():
            port(*_tensors(feeds, port.inputs))
    finally:
        for handle in handles:
            handle.remove()
    return {path: value for path, value in found.items() if calls[path] == 1}


def _tensors(feeds: Mapping[str, Array], inputs: tuple[str, ...]) -> list[torch.Tensor]:
    return [torch.from_numpy(np.array(feeds[name])) for name in inputs]


def _numpy(value: torch.Tensor) -> Array:
    value = value.detach()
    return np.array(
        (value.float() if value.dtype in (torch.float16, torch.bfloat16) else value).cpu().numpy()
    )
