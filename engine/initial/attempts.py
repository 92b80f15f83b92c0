"""One try at a time: the model at given shapes, or torch.export of it. The customer's code may raise anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from engine.errors import StepError
from engine.initial.watch import Need, NoTensor, Unmet, Watch

Mask = Literal["", "keeps", "drops"]  # what its ones do; "" is no mask


@dataclass
class Trial:
    """One input under trial. ``fixed`` maps an axis to why its size cannot be another.

    ``below`` is one more than the largest value, ``named`` the axis names that a hint, docstring or file gives.
    ``tied`` maps an axis to the symbol that a file has for it: equal symbols are one size.
    ``settled`` when type and rank are the user's or the file's.
    """

    dtype: str
    shape: list[int]
    below: int | None = None
    fixed: dict[int, str] = field(default_factory=dict)
    named: dict[int, str] = field(default_factory=dict)
    tied: dict[int, str] = field(default_factory=dict)
    settled: bool = False
    sized: bool = False
    mask: Mask = ""


@dataclass(frozen=True)
class Attempt:
    """``error`` is empty when the call returned; ``unmet`` is the need that an input did not meet, if any."""

    returned: Any
    error: str
    unmet: Unmet | None
    met: Mapping[str, Sequence[Need]]


class Bench:
    """The model and its inputs. Counts attempts and keeps the last ones for the error message."""

    def __init__(self, model: torch.nn.Module, say: Callable[[str], None], name: str = "") -> None:
        self.model = model
        self.name = name or type(model).__name__
        self.say = say
        self.count = 0
        self.history: list[str] = []
        parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
        self.dtype = parameter.dtype if parameter is not None else torch.float32

    def tensors(self, trials: Mapping[str, Trial]) -> dict[str, torch.Tensor]:
        """Seeded sample tensors, the same for the same trials."""
        return {name: _sample(trial, seed, self.dtype) for seed, (name, trial) in enumerate(trials.items())}

    def run(self, trials: Mapping[str, Trial], watched: bool = True) -> Attempt:
        """Call the model once."""
        inputs = self.tensors(trials)
        self.count += 1
        watch = Watch(self.model, inputs)
        returned, error, unmet = None, "", None
        try:
            with torch.no_grad():
                if watched:
                    with watch:
                        returned = self.model(**inputs)
                else:
                    returned = self.model(**inputs)
        except NoTensor as problem:
            raise StepError(
                f"{self.name}.forward looks up {problem.key!r} in '{problem.root}': a mapping, not a tensor",
                fix="wrap the model in a module whose forward names its tensors", usage=True,
            ) from None  # fmt: skip
        except Unmet as problem:
            error, unmet = str(problem), problem
        except Exception as problem:  # noqa: BLE001 - process edge: the customer's code may raise anything
            error = first_line(problem)
        if error:
            self.history.append(f"{describe(trials)}: {error}")
        return Attempt(returned, error, unmet, watch.met)

    def works(self, trials: Mapping[str, Trial]) -> bool:
        return not self.run(trials, watched=False).error


def export(port: torch.nn.Module, tensors: Sequence[torch.Tensor], shapes: Any) -> tuple[Any, str]:
    """torch.export's program and no error, or None and the error."""
    try:
        return torch.export.export(port, tuple(tensors), dynamic_shapes=(shapes,), strict=False), ""
    except Exception as problem:  # noqa: BLE001 - process edge: see above
        chain: list[BaseException] = [problem]
        while chain[-1].__cause__ is not None:
            chain.append(chain[-1].__cause__)
        return None, short(chain[-1])


def first_line(error: BaseException) -> str:
    if isinstance(error, StepError):  # our own words about what the runtime said
        return str(error)[:300]
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")[:300]


def short(error: BaseException) -> str:
    """An exporter's error without the advice on how to get a longer one."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    words = " ".join(line for line in lines if line and "TORCH_LOGS" not in line) or first_line(error)
    words = re.split(r" If you're using| Suggested fixes:| The error above", words)[0].removeprefix("- ")
    return f"{type(error).__name__}: {words}"[:300].rstrip(".")


def describe(trials: Mapping[str, Trial]) -> str:
    return ", ".join(f"{name} {trial.dtype} {trial.shape}" for name, trial in trials.items())


def _sample(trial: Trial, seed: int, floats: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, trial.dtype)
    if trial.mask:
        mask = torch.ones(trial.shape)
        mask.flatten(0, -2)[0, 1:] = 0  # a mask of ones alone is left out by some models
        return (mask if trial.mask == "keeps" else 1 - mask).to(dtype)
    if dtype.is_floating_point:
        half = floats in (torch.float16, torch.bfloat16)
        return torch.randn(trial.shape, generator=generator).to(floats if half else dtype)
    return torch.randint(0, trial.below or 2, trial.shape, generator=generator).to(dtype)
