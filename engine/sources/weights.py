"""State dicts: read without running code, put into a module strictly, every mismatch in one error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from engine import customer
from engine.errors import StepError
from engine.schema import nearest

_SHOWN = 5  # keys of each kind in the message; all of them go into the evidence
State = Mapping[str, torch.Tensor]


def fill(model: torch.nn.Module, path: Path, key: str, where: str) -> None:
    """Load the file's state dict into ``model``. Raises StepError listing missing, unexpected, mis-shaped keys."""
    state = read(path, key, where)
    own = model.state_dict()
    present = {own[name].data_ptr() for name in own if name in state and own[name].numel()}
    # Tied weights are stored once: a name that shares its memory with one that is there is not missing.
    missing = [name for name in own if name not in state and own[name].data_ptr() not in present]
    unexpected = [name for name in state if name not in own]
    shapes = [
        f"{name} is {list(state[name].shape)}, the model has {list(own[name].shape)}"
        for name in own
        if name in state and own[name].shape != state[name].shape
    ]
    if missing or unexpected or shapes:
        raise _mismatch(path, where, missing, unexpected, shapes)
    model.load_state_dict(dict(state), strict=False)


def read(path: Path, key: str, where: str) -> dict[str, torch.Tensor]:
    """Names and tensors of a .safetensors or a ``torch.save`` file, of the mapping under ``key`` in it."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            found: Any = load_file(path)
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except ImportError:
        raise StepError("safetensors is not installed", fix="pip install safetensors", where=where) from None
    except Exception as error:  # process edge: both readers raise many types
        refused = customer.theirs(f"{path.name} cannot be read as weights alone:", error, where)
        fix = "save the tensors alone: torch.save(model.state_dict(), ...) or safetensors.torch.save_file"
        raise StepError(refused.failure.symptom, fix=fix, where=where, evidence=refused.failure.evidence,
                        usage=True) from error  # fmt: skip
    return _state(found, path, key, where)


def _state(found: Any, path: Path, key: str, where: str) -> dict[str, torch.Tensor]:
    for part in key.split(".") if key else ():
        if not isinstance(found, Mapping) or part not in found:
            there = [str(name) for name in found] if isinstance(found, Mapping) else []
            fix = nearest(part, there) or f"there are: {', '.join(there[:8])}"
            raise StepError(f"{path.name} holds no '{part}'", fix=fix, where=f"{where}.key", usage=True)
        found = found[part]
    if isinstance(found, Mapping) and found and all(torch.is_tensor(value) for value in found.values()):
        return dict(found)
    inner = (
        [str(name) for name, value in found.items() if isinstance(value, Mapping)]
        if isinstance(found, Mapping)
        else []
    )
    fix = f"name it: key: {inner[0]}" if inner else "save model.state_dict() alone"
    raise StepError(
        f"{path.name} is no state dict: it holds more than tensors", fix=fix, where=where, usage=True
    )


def _mismatch(
    path: Path, where: str, missing: Sequence[str], unexpected: Sequence[str], shapes: Sequence[str]
) -> StepError:
    groups = (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
    parts = [f"{len(names)} {word}: {_some(names)}" for word, names in groups if names]
    return StepError(
        f"{path.name} does not fit the model; keys " + "; ".join(parts),
        klass="tooling",
        fix=_hint(missing, unexpected),
        where=where,
        evidence="\n".join(f"{word}: {name}" for word, names in groups for name in names),
        usage=True,
    )


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _hint(missing: Sequence[str], unexpected: Sequence[str]) -> str:
    """The prefix by which all names differ, when that is the whole story."""
    for first, second, text in ((unexpected, missing, "in the file"), (missing, unexpected, "in the model")):
        for name in first[:1]:
            prefix = name.partition(".")[0] + "."
            if second and {item.removeprefix(prefix) for item in first} == set(second):
                return f"every name starts with '{prefix}' {text} only; save the state dict without it"
    return "build the model with the settings that the weights were trained with"
