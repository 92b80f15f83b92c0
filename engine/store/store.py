"""Entries by key: what a step came to, whole. Anything that is not as it was written is no entry.

An entry is written after its files, in one moment. Runs share the store; only ``prune`` shuts them out, for as long
as it removes files.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import RecipeError
from engine.plain import from_plain, to_plain
from engine.store import drafts
from engine.store.objects import Objects
from engine.store.seen import Seen
from engine.values import StepResult

FORMAT = 1
VARIABLE = "PORTWRIGHT_STORE"


def default_folder() -> Path:
    """``$PORTWRIGHT_STORE``, otherwise ``portwright`` in ``$XDG_CACHE_HOME`` (an absolute path) or ``~/.cache``."""
    if written := os.environ.get(VARIABLE):
        return Path(written).expanduser()
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path("~/.cache").expanduser()) / "portwright"


@dataclass
class Store:
    """``find`` and ``put`` never fail a run: what went wrong is left in ``troubles``, a line each."""

    folder: Path
    troubles: list[str] = field(default_factory=list)
    shut: bool = False  # after a failed write, for as long as this process runs

    def __post_init__(self) -> None:
        self.drafts = self.folder / "drafts"
        self.entries = self.folder / "entries"
        self.hints = self.folder / "hints"
        self.last = self.folder / "last"
        self.templates = self.folder / "templates"
        self.seen = Seen(self.folder / "seen", self.drafts)
        self.objects = Objects(self.folder / "objects", self.drafts, self.seen)

    @classmethod
    def open(cls, folder: Path) -> Store:
        """The store in ``folder``, made where there is none. Raises RecipeError when it cannot be used."""
        store = cls(Path(os.path.abspath(folder)))
        try:
            store.drafts.mkdir(parents=True, exist_ok=True)
            with store.locked(exclusive=False):
                drafts.sweep(store.drafts)
        except OSError as error:
            what = f"{folder}: cannot be used as the store: {error.strerror}"
            raise RecipeError(what, hint="choose another with --store, or --no-store") from None
        return store

    @contextlib.contextmanager
    def locked(self, exclusive: bool) -> Iterator[None]:
        """Hold the store: together with other runs, or alone to remove files."""
        with (self.folder / "lock").open("ab") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            yield

    def find(self, key: str) -> StepResult | None:
        """What the step came to, its files whole in the store; None where that is not known for certain."""
        path = self.entry(key)
        try:
            if not path.exists():
                return None
            result, fault = self._read(path)
            if result is not None:
                faults = (self._object_fault(item.digest, item.bytes) for item in result.artifacts.values())
                fault = next(filter(None, faults), "")
        except OSError as error:
            result, fault = None, f"cannot be read: {error.strerror}"
        if fault:
            self.troubles.append(f"stored entry {key[:12]} was not used: {fault}")
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the least recently used go first
        return result

    def place(self, result: StepResult, out: Path) -> bool:
        """Put the files of a found result into a run's folder; False where that did not work."""
        try:
            with self.locked(exclusive=False):
                for item in result.artifacts.values():
                    self.objects.place(item.digest, item.path, out)
        except OSError as error:
            self.troubles.append(f"stored files could not be used: {error.strerror}: {error.filename}")
            return False
        return True

    def put(self, key: str, result: StepResult, out: Path, of: str) -> bool:
        """Keep what a step came to, with its files in ``out``; ``of`` is the port's name, for ``cache list``."""
        if self.shut:
            return False
        try:
            with self.locked(exclusive=False):
                for item in result.artifacts.values():
                    self.objects.put(out / item.path, item.digest, item.bytes)
                plain = {"format": FORMAT, "key": key, "of": of, "result": to_plain(result)}
                self.write(self.entry(key), plain)
        except OSError as error:
            self.give_up(error)
            return False
        return True

    def give_up(self, error: OSError) -> None:
        """After one failed write no other is tried: a full disk would fail each, and say so each time."""
        self.shut = True
        self.troubles.append(f"nothing more is stored in {self.folder}: {error.strerror}")

    def hint(self, key: str, names: Mapping[str, Any]) -> None:
        """Remember which files and packages the Python read of a step whose other needs have this key."""
        with contextlib.suppress(OSError):  # without one the step runs again
            self.write(self._hint(key), {"format": FORMAT, **names})

    def hinted(self, key: str) -> dict[str, list[str]] | None:
        plain = _read_or_none(self._hint(key))
        if plain is None or plain.get("format") != FORMAT:
            return None
        return {kind: list(plain[kind]) for kind in ("files", "packages")}

    def _hint(self, key: str) -> Path:
        return self.hints / key[:2] / f"{key[2:]}.json"

    def remember(self, recipe: str, plain: Mapping[str, Any]) -> None:
        """Keep what the results of a recipe's last run followed from."""
        with contextlib.suppress(OSError):
            self.write(self._last(recipe), {"format": FORMAT, "recipe": recipe, **plain})

    def remembered(self, recipe: str) -> dict[str, Any]:
        plain = _read_or_none(self._last(recipe)) or {}
        return plain if plain.get("format") == FORMAT else {}

    def _last(self, recipe: str) -> Path:
        return self.last / f"{hashlib.sha256(os.fsencode(os.path.abspath(recipe))).hexdigest()}.json"

    def entry(self, key: str) -> Path:
        return self.entries / key[:2] / f"{key[2:]}.json"

    def write(self, path: Path, plain: Mapping[str, Any]) -> None:
        """Write a small file of the store, with the digest of its text in its first line. Raises OSError."""
        self.write_bytes(path, json.dumps(plain, separators=(",", ":")).encode() + b"\n")

    def write_bytes(self, path: Path, content: bytes) -> None:
        whole = hashlib.sha256(content).hexdigest().encode() + b"\n" + content
        drafts.write(path, self.drafts, lambda stream: stream.write(whole))

    def _read(self, path: Path) -> tuple[StepResult | None, str]:
        plain = read(path)
        if plain is None:
            return None, "its text is damaged"
        if plain.get("format") != FORMAT:
            return None, "it is of another version's format"
        try:
            return from_plain(StepResult, plain["result"]), ""
        except (KeyError, TypeError):
            return None, "it is of another version's format"

    def _object_fault(self, digest: str, size: int) -> str:
        why = self.objects.fault(digest, size)
        return f"file {digest[:12]} {why}" if why else ""


def read(path: Path) -> dict[str, Any] | None:
    """The content of a small file of the store; None when it is not as it was written. Raises OSError."""
    content = read_bytes(path)
    plain: dict[str, Any] | None = json.loads(content) if content is not None else None
    return plain


def read_bytes(path: Path) -> bytes | None:
    head, _, content = path.read_bytes().partition(b"\n")
    return content if hashlib.sha256(content).hexdigest().encode() == head else None


def _read_or_none(path: Path) -> dict[str, Any] | None:
    try:
        return read(path)
    except OSError:
        return None
