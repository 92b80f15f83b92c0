"""The run record: everything that one run did, written whole after every step, read back by the report."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine import __version__, installed
from engine.errors import Failure, RecipeError
from engine.plain import from_plain, to_plain
from engine.plan import Plan
from engine.values import StepResult

FILE = "record.json"
FORMAT = 6
AGAIN = "run the recipe again: portwright run RECIPE"
PACKAGES = (
    "torch", "transformers", "onnx", "onnx-ir", "onnxscript", "onnxsim", "onnx-graphsurgeon",
    "onnxruntime", "onnxruntime-gpu", "numpy",
)  # fmt: skip


@dataclass(frozen=True)
class Record:
    """One run. ``results`` are in route order; ``failure`` and ``failed_step`` are set together.

    ``finished`` is false in what a run that was killed left behind. ``date`` is the day on which the run
    started, YYYY-MM-DD in UTC: waivers expire by it, so that a report can be rendered again later.
    """

    plan: Plan
    results: tuple[StepResult, ...]
    until: str
    failed_step: str = ""
    failure: Failure | None = None
    interrupted: bool = False
    finished: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    date: str = ""
    portwright: str = __version__
    format: int = FORMAT

    def result(self, step: str) -> StepResult | None:
        return next((item for item in self.results if item.step == step), None)

    def facts(self, step: str) -> Mapping[str, Any]:
        found = self.result(step)
        return found.facts if found else {}


def today() -> str:
    """The current day in UTC as YYYY-MM-DD."""
    return datetime.now(UTC).date().isoformat()


def environment() -> dict[str, str]:
    """Versions of what a run depends on; read from package metadata, nothing is imported."""
    found = {"python": platform.python_version(), "platform": platform.platform(terse=True)}
    found["machine"] = f"{platform.machine()}, {os.cpu_count()} cores"
    return found | {name: version for name in PACKAGES if (version := installed.version(name))}


def write(record: Record, out: Path, extra: Mapping[str, Any] | None = None) -> Path:
    """Write ``record.json``; it appears whole. ``extra`` adds top-level keys (the verdict)."""
    path = out / FILE
    draft = path.with_name(f".{FILE}.part")
    draft.write_text(text(to_plain(record) | dict(extra or {})), encoding="utf-8")
    os.replace(draft, path)
    return path


def text(plain: Mapping[str, Any]) -> str:
    """The file's text, with the digest over everything else in it."""
    return json.dumps(dict(plain) | {"digest": _digest(plain)}, indent=1, allow_nan=False) + "\n"


def _digest(plain: Mapping[str, Any]) -> str:
    """sha256 over the content as canonical JSON, without the digest itself."""
    content = {key: value for key, value in plain.items() if key != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read(path: Path) -> Record:
    """Read a record. Raises RecipeError when it is none, of another format, or not as a run wrote it."""
    file = path / FILE if path.is_dir() else path
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        what = f"{file}: cannot be read: {error.strerror}"
        raise RecipeError(what, hint="run the recipe first: portwright run RECIPE") from None
    except json.JSONDecodeError as error:
        what = f"{file}:{error.lineno}:{error.colno}: not JSON, so not a run record"
        raise RecipeError(what, hint=AGAIN) from None
    except (ValueError, RecursionError):
        raise RecipeError(f"{file}: not JSON, so not a run record", hint=AGAIN) from None
    if not isinstance(data, dict) or "format" not in data:
        raise RecipeError(f"{file}: not a run record", hint=AGAIN)
    if data["format"] != FORMAT:
        what = f"{file}: record format {data['format']}; this version reads {FORMAT}"
        raise RecipeError(what, hint=AGAIN)
    if data.pop("digest", None) != _digest(data):
        raise RecipeError(f"{file}: was changed since the run wrote it", hint=AGAIN)
    data.pop("verdict", None)
    try:
        loaded: Record = from_plain(Record, data)
    except TypeError as error:
        raise unusable(file) from error
    return loaded


def unusable(file: Path) -> RecipeError:
    """For a record whose digest is right and whose content no run of this version writes."""
    return RecipeError(f"{file}: not a run record that this version can use", hint=AGAIN)
