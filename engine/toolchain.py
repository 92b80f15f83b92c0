"""Toolchains: a Python interpreter with one TensorRT flavour and version in it. Never imports TensorRT."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import Failure, RecipeError, StepError, quoted
from engine.toolchains import places

if TYPE_CHECKING:
    from engine.process import Limits, Outcome

_WORKER = Path(__file__).parent / "worker"
DISTRIBUTION = {
    "tensorrt_rtx": "tensorrt-rtx",
    "tensorrt": "tensorrt",
}  # module -> name on the package index


@dataclass(frozen=True)
class Toolchain:
    """``spec`` is what the recipe says, ``python`` the interpreter, ``module`` tensorrt or tensorrt_rtx."""

    spec: str
    python: Path
    module: str
    version: str


def product(toolchain: Toolchain) -> str:
    """As messages name it: ``TensorRT-RTX 1.7.1``."""
    from engine.worker.explain import product_name

    return product_name(toolchain.module, toolchain.version)


def resolve(spec: str) -> Toolchain:
    """Find a toolchain: ``current``, ``tensorrt-rtx``, ``tensorrt``, ``NAME==VERSION`` or ``path:PYTHON``.

    ``current`` prefers TensorRT-RTX. ``NAME==VERSION`` is this environment's where that has it, otherwise one that
    ``portwright toolchain add`` made. ``path:`` starts that interpreter and asks it; whoever must not run what
    a recipe names calls :func:`find`. Raises RecipeError when there is none.
    """
    return _at_path(spec) if spec.startswith("path:") else find(spec)


def of_version(spec: str) -> Toolchain:
    """Like :func:`resolve`, but ``NAME==VERSION`` need not be installed: for questions about a version."""
    name, _, version = spec.partition("==")
    module = {written: module for module, written in DISTRIBUTION.items()}.get(name)
    if module is None or re.fullmatch(r"\d+(\.\d+)*", version) is None:
        return resolve(spec)
    return Toolchain(spec, Path(sys.executable), module, version)


def require_form(spec: str) -> None:
    """RecipeError for what is no SPEC; nothing is looked for."""
    name, _, version = spec.partition("==")
    plain = name == "current" and not version
    if plain or spec.startswith("path:") or name in DISTRIBUTION.values():
        return
    known = "current, tensorrt-rtx, tensorrt, tensorrt-rtx==VERSION, tensorrt==VERSION or path:PYTHON"
    raise RecipeError(f"unknown toolchain {quoted(spec)}", hint=f"expected {known}")


def find(spec: str) -> Toolchain:
    """Like :func:`resolve`, but nothing is started: of ``path:`` module and version stay empty."""
    if spec.startswith("path:"):
        return Toolchain(spec, _interpreter(spec), "", "")
    require_form(spec)
    name, _, version = spec.partition("==")
    modules = {"current": tuple(DISTRIBUTION), **{dist: (module,) for module, dist in DISTRIBUTION.items()}}
    for module in modules[name]:
        installed = _installed_version(module)
        if installed is not None and (not version or version == installed):
            return Toolchain(spec, Path(sys.executable), module, installed)
    if version and (kept := places.find(spec)):
        return Toolchain(spec, kept.python, kept.module, kept.version)
    raise _missing(spec, modules[name])


def _installed_version(module: str) -> str | None:
    """Version of a module that can be imported here, by its distribution's metadata alone."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return None
    for name in (module, *(f"{module}_cu{major}" for major in (13, 12)), f"{module}_bindings"):
        # the folder's name says it; importlib.metadata costs 30 ms to import
        for folder in Path(spec.origin).parents[1].glob(f"{name}-*.dist-info"):
            return folder.name.removesuffix(".dist-info").partition("-")[2]
    return _version_by_metadata(DISTRIBUTION[module])


def _version_by_metadata(distribution: str) -> str | None:
    import importlib.metadata

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _missing(spec: str, modules: Sequence[str]) -> RecipeError:
    here = [f"{DISTRIBUTION[m]} {v}" for m in DISTRIBUTION if (v := _installed_version(m))]
    wanted = spec if spec != "current" else DISTRIBUTION[modules[0]]
    installed = f"installed here: {', '.join(here)}" if here else "no TensorRT is installed here"
    make = f"portwright toolchain add {spec}" if "==" in spec else f"pip install {wanted}"
    return RecipeError(
        f"toolchain {spec} is not available; {installed}",
        hint=f"{make}, or name an interpreter that has it: path:/some/venv/bin/python",
    )


def _interpreter(spec: str) -> Path:
    """The file that ``path:`` names. RecipeError unless it is there and may be run; it is not run here."""
    written = spec.removeprefix("path:")
    if not written:
        raise RecipeError("'path:' names no interpreter", hint="path:/some/venv/bin/python")
    python = Path(os.path.abspath(os.path.expanduser(written)))
    if not os.path.isfile(python) or not os.access(python, os.X_OK):
        raise RecipeError(
            f"toolchain {quoted(spec)}: {quoted(str(python))} is not a program",
            hint="give the path of a Python interpreter that has TensorRT: path:/some/venv/bin/python",
        )
    return python


def _at_path(spec: str) -> Toolchain:
    python = _interpreter(spec)
    reasons = []
    for module in DISTRIBUTION:
        toolchain = Toolchain(spec, python, module, "")
        try:
            facts = probe(toolchain)
        except StepError as exc:
            raise RecipeError(f"toolchain {spec}: {exc.failure.symptom}", hint=exc.failure.evidence) from exc
        if "version" in facts:
            return replace(toolchain, version=facts["version"])
        reasons += [error["text"] for error in facts["errors"]]
    raise RecipeError(f"toolchain {spec} has no usable TensorRT: {'; '.join(reasons)}")


def has_gpu() -> tuple[bool, str]:
    """Whether the NVIDIA driver offers a GPU, and if not, why; asks the driver itself, not PyTorch."""
    from engine.worker.trt_worker import cuda_devices

    count, why = cuda_devices()
    return count > 0, why


def probe(toolchain: Toolchain, operators: Sequence[str] = (), seconds: float = 120) -> dict[str, Any]:
    """What this TensorRT can do: version, data_types, targets, operators, devices. StepError if it dies."""
    import tempfile

    from engine.process import Limits

    request = {"op": "probe", "module": toolchain.module, "operators": list(operators)}
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_worker(toolchain, request, Path(folder) / "log", Limits(seconds=seconds), None)
    if outcome.kind != "ok":
        evidence = "\n".join(outcome.log_tail)
        symptom = f"{toolchain.python} could not be asked about {toolchain.module}: {outcome.describe()}"
        raise StepError(Failure(symptom, where="build.toolchain", evidence=evidence))
    facts: dict[str, Any] = outcome.result
    return facts


def build(
    toolchain: Toolchain,
    request: Mapping[str, Any],
    *,
    log: Path,
    limits: Limits,
    on_message: Callable[[dict[str, Any]], None] | None = None,
) -> Outcome:
    """Build one engine in a worker process; the keys of ``request`` are those of engine/worker/trt_worker.py.

    ``op`` and ``module`` are filled in. On ``kind`` ``ok`` the outcome's ``result`` is the worker's, with its
    errors put into words; ``result["ok"]`` says whether there is an engine.
    """
    from engine.worker.explain import explained

    request = {**request, "op": "build", "module": toolchain.module}
    outcome = run_worker(toolchain, request, log, limits, on_message)
    return replace(outcome, result=explained(outcome.result)) if outcome.answered else outcome


def run_worker(
    toolchain: Toolchain,
    request: Mapping[str, Any],
    log: Path,
    limits: Limits,
    on_message: Callable[[dict[str, Any]], None] | None,
    script: str = "trt_worker.py",
) -> Outcome:
    """Run one of the scripts in ``worker/`` with the toolchain's own interpreter."""
    from engine.process import run_child

    launcher = [sys.executable, "-I", str(_WORKER / "fixed_addresses.py")]
    worker = [str(toolchain.python), "-I", str(_WORKER / script)]
    with places.in_use(toolchain.python):
        return run_child([*launcher, *worker], request, log=log, limits=limits, on_message=on_message)


def last_words(verbose_log: Path, count: int = 10) -> tuple[str, ...]:
    """The last lines that TensorRT logged, for when its process died without an answer."""
    if not verbose_log.exists():
        return ()
    with verbose_log.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - 64 * 1024))
        lines = stream.read().decode("utf-8", "replace").splitlines()
    return tuple(line[:500] for line in lines[-count:])
