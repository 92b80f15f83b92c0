"""Where toolchains lie and which of them may be used. Starts nothing, imports nothing heavy.

A virtual environment cannot be moved, so it is made in its last place; ``.ready`` is written when it is whole and has
answered. Without that file a folder is half-made, and nobody uses it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import RecipeError

VARIABLE = "PORTWRIGHT_TOOLCHAINS"
FORMAT = 1
_READY = ".ready"


@dataclass(frozen=True)
class Kept:
    """A toolchain that is whole: ``record`` is what it said of itself (see :mod:`engine.toolchains.capability`)."""

    spec: str
    folder: Path
    python: Path
    module: str
    version: str
    record: Mapping[str, Any]


def root() -> Path:
    """The folder of all toolchains: --toolchains, $PORTWRIGHT_TOOLCHAINS, or the user's data folder."""
    if written := os.environ.get(VARIABLE):
        return Path(written).expanduser().absolute()
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser().absolute() / "portwright" / "toolchains"


def folder_of(spec: str) -> Path:
    """Where the toolchain ``spec`` lies, or would lie."""
    name, _, version = spec.partition("==")
    if not version or spec.startswith("path:"):
        name, version = spec.partition(":")[0], hashlib.sha256(spec.encode()).hexdigest()[:12]
    return root() / f"{name}-{version}"


def find(spec: str) -> Kept | None:
    """The toolchain ``spec`` where it is there and whole."""
    return read(folder_of(spec))


def read(folder: Path) -> Kept | None:
    try:
        record = json.loads((folder / _READY).read_text(encoding="utf-8"))
        kept = Kept(record["spec"], folder, Path(record["python"]), record["module"], record["version"], record)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return kept if record.get("format") == FORMAT and os.access(kept.python, os.X_OK) else None


def kept() -> list[Kept]:
    """All that are whole, by name."""
    return [found for folder in _folders() if (found := read(folder)) is not None]


def half_made() -> list[Path]:
    """Folders of toolchains whose making was stopped, or which can no longer be used."""
    return [folder for folder in _folders() if read(folder) is None]


def _folders() -> list[Path]:
    try:
        return sorted(item for item in root().iterdir() if item.is_dir() and not item.name.startswith("."))
    except OSError:
        return []


def mark_ready(folder: Path, record: Mapping[str, Any]) -> Kept:
    """Write ``.ready``; it appears whole, and last."""
    draft = folder / f"{_READY}.part"
    draft.write_text(json.dumps({**record, "format": FORMAT}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(draft, folder / _READY)
    found = read(folder)
    assert found is not None
    return found


def unmark(folder: Path) -> None:
    """Taken away first, so that what is left of a removal that was stopped is not used."""
    (folder / _READY).unlink(missing_ok=True)


@contextlib.contextmanager
def held(folder: Path, *, alone: bool, wait: bool = True) -> Iterator[None]:
    """Hold the toolchain at ``folder``: ``alone`` to change it, otherwise beside others that use it.

    Raises BlockingIOError without ``wait`` where another process holds it.
    """
    lock = folder.parent / f".{folder.name}.lock"
    if alone:
        folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except PermissionError:
        descriptor = os.open(lock, os.O_RDONLY)  # a folder for many users, of which this one may only read
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def in_use(python: Path) -> Iterator[None]:
    """While a worker runs on ``python``, nobody removes it where it is one of ours."""
    folder = python.parent.parent
    if folder.parent != root() or read(folder) is None:  # the second: its maker asks it, and holds it alone
        yield
        return
    with held(folder, alone=False):
        if read(folder) is None:
            raise RecipeError(f"toolchain {folder.name} was removed", hint="portwright toolchain add it again")
        yield
