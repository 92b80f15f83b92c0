"""The output folder of a run: made, locked against a second run, and cleared of what an earlier run left.

A stale engine beside a new report would be a claim without a run, so nothing of an earlier run survives the
start of the next. For a run with a store it is set aside in ``.earlier`` until that has ended, so that files that come
out of the store are renamed and not copied. Only a folder that holds a run record, or none of our names, is touched.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.errors import RecipeError
from engine.record import FILE
from engine.store.objects import EARLIER

FOLDERS = ("engine", "logs", "onnx", "samples", "stress")
# A machine's fault or the user's, never ours: no space, no permission, a read-only or broken disk.
OUTSIDE = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.EFBIG,
        errno.EIO,
        errno.ENOTDIR,
    }
)
_LOCK = ".lock"
_FULL = 16 * 2**20  # bytes


@contextmanager
def claim(folder: Path, aside: bool = False) -> Iterator[None]:
    """Hold ``folder`` for one run; with ``aside`` what is in it is kept apart until the end.

    Raises RecipeError when it cannot be used, saying why.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise RecipeError(
            f"{folder}: cannot be written to: {error.strerror}", hint="choose another --out"
        ) from None
    try:
        _lock(lock, folder)
        _clear(folder, aside)
        yield
        shutil.rmtree(folder / EARLIER, ignore_errors=True)
    finally:
        os.close(lock)


def _lock(lock: int, folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        what = f"{folder}: another run is writing to this folder"
        raise RecipeError(what, hint="wait for it, or give --out another folder") from None


def _clear(folder: Path, keep: bool) -> None:
    there = [name for name in FOLDERS if (folder / name).exists()]
    if there and not (folder / FILE).is_file():
        what = f"{folder}: holds '{there[0]}' but no {FILE}, so it is not a folder of an earlier run"
        raise RecipeError(what, hint="choose another --out, or empty this one")
    aside = folder / EARLIER
    if aside.exists():
        shutil.rmtree(aside)
    if keep:
        aside.mkdir()
    for name in there:
        if keep:
            os.rename(folder / name, aside / name)
        else:
            shutil.rmtree(folder / name)
    (folder / "logs").mkdir()


def outside(error: OSError, folder: Path | None = None) -> str:
    """What an operating system error says when it is not ours to mend; empty otherwise.

    Some libraries report a failed write without an error number; a full disk under ``folder`` explains it.
    """
    if error.errno is None and folder is not None and shutil.disk_usage(folder).free < _FULL:
        return f"the disk is full: {shutil.disk_usage(folder).free:,} bytes free in {folder}"
    if error.errno not in OUTSIDE:
        return ""
    return f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror)
