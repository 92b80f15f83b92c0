"""Shared fixtures: small recipes in temporary folders, and the command line as a child process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from engine.store.store import VARIABLE

# The suite tries the same examples on every machine; `make fuzz` is where new ones are looked for.
settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")

# A shell that starts the suite in the background lets it ignore SIGINT, and so would the children that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent


# Results that the user's own runs left are not taken for those of a test, nor those of one test for another's.
_COUNT = count()
_STORES = tempfile.TemporaryDirectory(prefix="portwright-tests-")
os.environ[VARIABLE] = _STORES.name


@pytest.fixture(autouse=True)
def own_store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path_factory.getbasetemp() / f"store-{next(_COUNT)}"))


@dataclass(frozen=True)
class Cli:
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., Cli]:
    """Run ``portwright`` in a folder of its own."""

    def call(*args: str | Path, env: dict[str, str] | None = None, timeout: float = 300) -> Cli:
        command = [sys.executable, "-m", "engine.cli", *map(str, args)]
        path = os.environ | {"PYTHONPATH": str(ROOT)} | (env or {})
        done = subprocess.run(
            command, cwd=tmp_path, env=path, capture_output=True, text=True, timeout=timeout
        )
        return Cli(done.returncode, done.stdout, done.stderr)

    return call


MODEL = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first = nn.Linear(8, 16)
            self.norm = nn.LayerNorm(16)
            self.last = nn.Linear(16, 4)

        def forward(self, x):
            return self.last(torch.relu(self.norm(self.first(x))))

    def load():
        return Net().eval()
"""

RECIPE = """
    portwright: 1
    name: toy
    model: {python: model.py:load}
    axes:
      batch: {min: 1, opt: 4, max: 16}
    inputs:
      x: {dtype: float32, shape: [batch, 8]}
    outputs: [y]
    precision:
      base: fp16
    build: {target: sm89}
    bench: {rounds: 2, warmup: 1}
    accept:
      onnx: {max_abs: 1.0e-5}
      engine: {max_abs: 2.0e-2}
"""


def dedent(text: str) -> str:
    return textwrap.dedent(text).lstrip()


@pytest.fixture
def toy(tmp_path: Path) -> Callable[..., Path]:
    """Write a toy recipe and its model into a folder; ``edit`` pairs replace text in the recipe."""

    def make(*edit: tuple[str, str], model: str = MODEL, recipe: str = RECIPE) -> Path:
        folder = tmp_path / "toy"
        folder.mkdir(exist_ok=True)
        text = dedent(recipe)
        for old, new in edit:
            assert old in text, old
            text = text.replace(old, new)
        (folder / "recipe.yaml").write_text(text)
        (folder / "model.py").write_text(dedent(model))
        return folder

    return make


def record_of(folder: Path) -> dict[str, Any]:
    """The run record of a recipe folder."""
    data: dict[str, Any] = json.loads((folder / "port" / "record.json").read_text())
    return data
