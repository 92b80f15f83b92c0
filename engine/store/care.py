"""What the store holds, keeping it within a size, and looking at every byte of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.digests import digest_file
from engine.plain import from_plain
from engine.store import drafts
from engine.store.store import Store, read, read_bytes
from engine.values import Artifact, StepResult

DEFAULT_SIZE = 20 * 2**30  # bytes
_NOTES_DAYS = 30  # a note that is older costs one reading of its file when it is gone


@dataclass(frozen=True)
class Entry:
    """One stored result. ``used`` is when it was last taken out, in seconds; ``bytes`` those of its files."""

    path: Path
    step: str
    recipe: str
    ended: str
    used: float
    artifacts: tuple[Artifact, ...]

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.artifacts)


@dataclass(frozen=True)
class Pruned:
    entries: int
    freed: int
    left: int


def entries(store: Store) -> list[Entry]:
    """Every readable entry, the last used first."""
    found = [entry for path in _files(store.entries) if (entry := _entry(path)) is not None]
    return sorted(found, key=lambda item: -item.used)


def size(store: Store) -> int:
    """Bytes of all files in the store."""
    total = 0
    for path in _files(store.folder):
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


def prune(store: Store, most: int) -> Pruned:
    """Remove the least recently used entries until the files of the others take no more than ``most`` bytes.

    Waits until no run takes out or puts in. Raises OSError.
    """
    with store.locked(exclusive=True):
        drafts.sweep(store.drafts)
        before, total = size(store), 0
        kept: set[str] = set()
        gone = 0
        for entry in entries(store):
            new = {item.digest: item.bytes for item in entry.artifacts if item.digest not in kept}
            if most and total + sum(new.values()) <= most and not gone:
                kept |= new.keys()
                total += sum(new.values())
            else:
                entry.path.unlink(missing_ok=True)
                gone += 1
        for path in _files(store.objects.folder):
            if path.parent.name + path.name not in kept:
                path.unlink(missing_ok=True)
        old = time.time() - _NOTES_DAYS * 86400
        for folder in (store.seen.folder, store.hints, store.templates):
            for path in _files(folder):
                if most == 0 or path.stat().st_mtime < old:
                    path.unlink(missing_ok=True)
        left = size(store)
    return Pruned(gone, before - left, left)


def keep_within(store: Store, most: int = DEFAULT_SIZE) -> None:
    """Prune where the store has grown too large; a run calls this when it stored something."""
    with contextlib.suppress(OSError):
        if size(store) > most:
            prune(store, most * 9 // 10)


def verify(store: Store) -> list[str]:
    """Read every file of the store; remove what is not as it was written, and say what that was. Raises OSError."""
    faults: list[str] = []
    with store.locked(exclusive=True):
        drafts.sweep(store.drafts)
        for path in _files(store.objects.folder):
            if digest_file(path) != path.parent.name + path.name:
                _remove(path, f"file {path.parent.name}{path.name[:10]} is not what was stored", faults)
        for path in _files(store.entries):
            entry = _entry(path)
            if entry is None:
                _remove(path, f"entry {path.parent.name}{path.name[:10]} is damaged", faults)
                continue
            missing = [item.path for item in entry.artifacts if not store.objects.path(item.digest).is_file()]
            if missing:
                what = f"{entry.step} of {entry.recipe}, run at {entry.ended}: {', '.join(missing)} is gone"
                _remove(path, what, faults)
        for folder in (store.hints, store.last, store.templates):
            for path in _files(folder):
                if read_bytes(path) is None:
                    _remove(path, f"{folder.name} {path.name[:10]} is damaged", faults)
        for path in _files(store.seen.folder):
            if not store.seen.sound(path):
                _remove(path, f"note {path.name[:10]} is damaged", faults)
    return faults


def _remove(path: Path, what: str, faults: list[str]) -> None:
    path.unlink(missing_ok=True)
    faults.append(what)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file()) if folder.is_dir() else iter(())


def _entry(path: Path) -> Entry | None:
    try:
        plain, used = read(path), path.stat().st_mtime
        if plain is None:
            return None
        result: StepResult = from_plain(StepResult, plain["result"])
    except (OSError, KeyError, TypeError):
        return None
    return Entry(path, result.step, plain["of"], result.ended, used, tuple(result.artifacts.values()))
