"""The key of a step's result: one digest over everything that :mod:`engine.needs` says it follows from."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from engine import compatibility, installed, toolchain
from engine.errors import RecipeError
from engine.needs import FILES, NEEDS, READS, Needs
from engine.plain import to_plain
from engine.plan import Plan
from engine.values import StepResult

Fields = dict[str, Any]
Digest = Callable[[Path], str]
READ = "read"  # the fact of a step that ran the customer's Python: what that read, see engine/watched.py
# Parts of the package that no step imports (a test holds this): what they do is done again on every run.
ABOVE = frozenset(("commands", "initial", "diff", "lock", "store", "upgrade"))
_TEXTS = frozenset(("because", "why"))  # in results: shown, and nothing follows from them
_PATHS = frozenset(("path", "file", "weights", "config", "cache"))


class Unknown(Exception):
    """Something that a result follows from cannot be told, so it can be neither found nor kept."""


def fields(step: str, plan: Plan, earlier: Mapping[str, StepResult], digest: Digest) -> Fields:
    """What the result of ``step`` follows from, by name, but for what its Python read (:func:`read_now`).

    Raises Unknown, and KeyError for a step without a line in the table.
    """
    needs = NEEDS[step]
    return {
        "step": step,
        "code": code(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "plan": {name: _planned(plan, name) for name in needs.plan},
        "results": {name: _result(name, earlier, needs) for name in needs.results},
        "packages": {name: found for name in needs.packages if (found := installed.version(name))},
        **{name: _MORE[name](plan, digest) for name in needs.more if name != READS},
    }


def key(found: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(found, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@functools.cache
def code() -> str:
    """sha256 over Portwright's own modules that a step may import: a result is of the code that made it."""
    package, whole = Path(__file__).resolve().parent, hashlib.sha256(compatibility.FILE.read_bytes())
    for folder, below, names in os.walk(package):
        below[:] = sorted(name for name in below if folder != str(package) or name not in ABOVE)
        for name in sorted(names):
            if name.endswith(".py"):
                path = Path(folder, name)
                whole.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return whole.hexdigest()


def read_now(names: Mapping[str, Iterable[str]], plan: Plan, digest: Digest) -> Fields:
    """What the customer's Python read on an earlier run, as it is now: see :mod:`engine.watched`."""
    files: dict[str, str | None] = {}
    for name in sorted(names["files"]):
        try:
            files[name] = digest(Path(plan.folder, name))
        except OSError:
            files[name] = None
    return {"files": files, "packages": {name: installed.version(name) for name in sorted(names["packages"])}}


def _planned(plan: Plan, name: str) -> Any:
    """A field of the plan as plain data, without paths of this machine."""
    value: Any = plan
    for part in name.split("."):
        value = getattr(value, part)
    return _bare(to_plain(value), frozenset())


def _bare(value: Any, without: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: os.path.basename(item) if name in _PATHS and isinstance(item, str) else _bare(item, without)
            for name, item in value.items()
            if name not in without
        }
    return [_bare(item, without) for item in value] if isinstance(value, list) else value


def _result(name: str, earlier: Mapping[str, StepResult], needs: Needs) -> Any:
    step, _, artifact = name.partition(":")
    if step not in earlier:
        raise Unknown(f"{step} has no result yet")
    result = earlier[step]
    files = {item.path: item.digest for item in result.artifacts.values()}
    if artifact == FILES:
        return {"status": result.status, "files": files}
    if artifact:
        found = result.artifacts.get(artifact)
        return {"status": result.status, artifact: found.digest if found else None}
    without = _TEXTS if READS in needs.more else _TEXTS | {READ}
    facts = _bare(to_plain(result.facts), without)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return {"status": result.status, "files": files, "facts": digest}


def _digests(paths: Iterable[Path], digest: Digest) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        for path in paths:
            inside = sorted(item for item in path.rglob("*") if item.is_file()) if path.is_dir() else [path]
            for file in inside:
                found[os.path.relpath(file, path.parent)] = digest(file)
    except OSError as error:
        raise Unknown(f"{error.filename} cannot be read") from None
    return found


def _files(plan: Plan, digest: Digest) -> dict[str, str]:
    """Every file that the recipe names for the model and the sample values."""
    model = plan.model
    named = [model.weights, model.file, model.config, *_of_values(plan.inputs.values())]
    return _digests((Path(item) for item in dict.fromkeys(named) if item), digest)


def _of_values(inputs: Iterable[Any]) -> list[str]:
    return [item.file.path for item in inputs if item.file] + [item.python.file for item in inputs if item.python]


def _case_files(plan: Plan, digest: Digest) -> dict[str, str]:
    named = [file for case in plan.stress.add for file in _of_values(case.inputs.values())]
    return _digests((Path(item) for item in dict.fromkeys(named)), digest)


def _asked(plan: Plan, digest: Digest) -> list[str]:
    """The quantised types that are asked for anywhere: without one nothing is calibrated."""
    precision = plan.precision
    asked = {precision.base, *(item.type for item in precision.overrides)}
    return sorted((asked | set(precision.search.base if precision.search else ())) & {"int8", "fp8"})


def _both(plan: Plan, digest: Digest) -> Any:
    """Of two exporters the one goes on that is within the limits."""
    return to_plain(plan.accept.onnx) if plan.exporter == "both" else None


def _toolchain(plan: Plan, digest: Digest) -> dict[str, Any]:
    """Raises Unknown where the GPU of this machine has a part in it: it has no name here."""
    try:
        found = toolchain.resolve(plan.build.toolchain)
    except RecipeError as error:
        raise Unknown(error.problems[0].what) from None
    if found.module == "tensorrt" or (plan.build.target is None and toolchain.has_gpu()[0]):
        raise Unknown("it is built for the GPU of this machine")
    # Wheels of one version are one thing; what lies behind a path is not known to be the same.
    python = str(found.python) if found.spec.startswith("path:") else None
    return {"module": found.module, "version": found.version, "python": python, "target": plan.build.target}


def _opset_limit(plan: Plan, digest: Digest) -> int | None:
    try:
        tool = toolchain.resolve(plan.build.toolchain)
        return compatibility.opset_limit(tool.module, tool.version)
    except (RecipeError, ValueError):
        return None


def _taken(plan: Plan, digest: Digest) -> int | None:
    """An ONNX file is taken over only where the toolchain takes its opset."""
    return _opset_limit(plan, digest) if plan.model.source == "onnx" else None


@functools.cache
def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{model or platform.processor()}, {os.cpu_count()} cores, {platform.node()}"


_MORE: Mapping[str, Callable[[Plan, Digest], Any]] = {
    "files": _files,
    "case_files": _case_files,
    "asked": _asked,
    "both": _both,
    "strict": lambda plan, digest: plan.accept.rounding is not None,
    "toolchain": _toolchain,
    "auto": lambda plan, digest: _toolchain(plan, digest) if plan.library else None,
    "opset_limit": _opset_limit,
    "taken": _taken,
    "cpu": lambda plan, digest: _cpu(),
}
