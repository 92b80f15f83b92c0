"""Make and remove toolchains. Several processes may ask for the same one at once: one makes it, the others wait."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from engine import toolchain
from engine.errors import Failure, RecipeError, StepError, quoted
from engine.toolchains import capability, places
from engine.toolchains.places import Kept

Say = Callable[[str], None]
_INDEX = re.compile(r"(tensorrt-rtx|tensorrt)==\d+(\.\d+)*")
_ELSEWHERE = (
    "the wheels of full TensorRT fetch their libraries from https://pypi.nvidia.com; where that is not reached,"
    " install TensorRT by NVIDIA's own means and name its interpreter: path:/some/venv/bin/python"
)


def add(spec: str, say: Say) -> Kept:
    """The toolchain ``spec``, made where it is not there yet. RecipeError for a bad SPEC, StepError when it fails."""
    if _INDEX.fullmatch(spec):
        return _made(spec, say)
    if spec != "current" and not spec.startswith("path:"):
        raise RecipeError(f"unknown toolchain {quoted(spec)}",
                          hint="expected tensorrt-rtx==VERSION, tensorrt==VERSION, path:PYTHON or current")  # fmt: skip
    tool = toolchain.resolve(spec)  # an interpreter may have changed, so it is asked each time
    folder = places.folder_of(spec)
    with places.held(folder, alone=True):
        folder.mkdir(parents=True, exist_ok=True)
        say(f"asking {tool.python} what it can do")
        return places.mark_ready(folder, capability.ask(tool))


def _made(spec: str, say: Say) -> Kept:
    folder = places.folder_of(spec)
    with places.held(folder, alone=True):
        if there := places.read(folder):
            return there
        if folder.exists():
            shutil.rmtree(folder)
        try:
            return _fill(spec, folder, say)
        finally:  # also for an interrupt; after a kill the missing .ready says the same
            if places.read(folder) is None:
                shutil.rmtree(folder, ignore_errors=True)


def _fill(spec: str, folder: Path, say: Say) -> Kept:
    python = folder / "bin" / "python"
    name, _, version = spec.partition("==")
    uv = shutil.which("uv")
    say(f"making {folder} with {'uv' if uv else 'pip'}")
    if uv:
        _command([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], spec)
        _command([uv, "pip", "install", "--quiet", "--python", str(python), spec], spec)
    else:
        _command([sys.executable, "-m", "venv", str(folder)], spec)
        quiet = ["--quiet", "--no-input", "--disable-pip-version-check"]
        _command([str(python), "-I", "-m", "pip", "install", *quiet, spec], spec)
    say(f"asking {spec} what it can do")
    module = name.replace("-", "_")
    record = capability.ask(toolchain.Toolchain(spec, python, module, version))
    if record["version"] != version:
        raise StepError(f"{spec} was installed, and answers that it is {record['version']}")
    return places.mark_ready(folder, record)


def _command(command: Sequence[str], spec: str) -> None:
    """Run a tool that makes the environment; its last words are the reason where it fails."""
    without = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    environment = {key: value for key, value in os.environ.items() if key not in without}
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    if done.returncode == 0:
        return
    lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(ERROR|error)\b", line)] or lines[-3:]
    fix = _ELSEWHERE if spec.startswith("tensorrt==") else ""
    words = "; ".join(line[:300] for line in errors[:3]) or f"exit code {done.returncode}"
    text = f"toolchain {spec} cannot be made: {words}" + (f"\n        {fix}" if fix else "")
    raise StepError(Failure(text, fix=fix, where="build.toolchain", evidence="\n".join(lines[-20:])))


def remove(spec: str) -> Path:
    """Remove a toolchain, or what is left of one. RecipeError where there is none or it is in use."""
    folder = places.folder_of(spec)
    if not folder.is_dir():
        there = ", ".join(item.spec for item in places.kept()) or "none"
        raise RecipeError(f"there is no toolchain {quoted(spec)} in {places.root()}", hint=f"there: {there}")
    try:
        with places.held(folder, alone=True, wait=False):
            places.unmark(folder)
            shutil.rmtree(folder)
    except BlockingIOError:
        raise RecipeError(f"toolchain {spec} is in use", hint="wait for the runs that use it") from None
    return folder
