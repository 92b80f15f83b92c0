"""Files that appear whole or not at all, and what a killed process left of those that did not.

Nothing is forced to the disk: what a machine that lost its power left is found by its digest (see ``seen.py``).
A draft is locked by the process that writes it; a draft that nobody holds is of a dead process, and is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

_ATTEMPTS = 5  # a sweep may take a draft in the moment before it is locked


@contextlib.contextmanager
def draft(folder: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """A new locked file in ``folder`` to write to; it is gone afterwards, unless it was renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    path, stream = _locked(folder)
    try:
        yield path, stream
    finally:
        path.unlink(missing_ok=True)
        stream.close()


def _locked(folder: Path) -> tuple[Path, IO[bytes]]:
    for _ in range(_ATTEMPTS):
        path = folder / secrets.token_hex(8)
        stream = path.open("xb")
        with contextlib.suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(stream.fileno()).st_nlink:
                return path, stream
        stream.close()
    raise OSError(f"no draft could be made in {folder}")


def write(target: Path, drafts: Path, fill: Callable[[IO[bytes]], object], mode: int = 0o644) -> None:
    """Let ``fill`` write a file that then appears as ``target`` in one moment. Raises OSError."""
    with draft(drafts) as (path, stream):
        fill(stream)
        stream.flush()
        os.fchmod(stream.fileno(), mode)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(path, target)


def sweep(folder: Path) -> int:
    """Remove the drafts of processes that are gone; return how many."""
    gone = 0
    for path in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(OSError), path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
            gone += 1
    return gone
