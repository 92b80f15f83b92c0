"""Digests of files that were read before, believed for as long as the file's stat is the same.

As git's index does: device, inode, size, mtime and ctime, all in nanoseconds. Whoever edits a file in place and puts
its mtime back cannot put back its ctime. A note counts until the machine starts anew: a file that was not yet on the
disk when the power went may be whole by its stat and hold zeros. What this cannot see (a disk that rots, a clock that
was set back) is found by ``cache verify`` for the store's own files, and by ``--fresh`` for those that a recipe names.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from engine.digests import digest_file
from engine.store import drafts

# A file that was changed less than this before it was read may be changed again within the same tick of its clock.
_TICK = 50_000_000  # ns
_CHECK = 16  # hex digits of a note's own digest


@dataclass(frozen=True)
class Seen:
    """The notes in ``folder``, one small file for each file that was read."""

    folder: Path
    drafts: Path

    def digest(self, path: Path) -> str:
        """sha256 of a file; it is read only where no note tells. Raises OSError when it cannot be read."""
        known = self.known(path)
        if known:
            return known
        at, before = time.time_ns(), os.stat(path)
        found = digest_file(path)
        if _text(before) == _text(os.stat(path)) and max(before.st_mtime_ns, before.st_ctime_ns) < at - _TICK:
            self._write(path, before, found)
        return found

    def known(self, path: Path, now_at: Path | None = None) -> str:
        """The digest that a note tells of the file as it is now; empty where none does.

        ``now_at`` is where the file that was noted as ``path`` lies since its folder was renamed.
        """
        try:
            said = self._file(path).read_text("ascii").split("\n")
            now = _text(os.stat(now_at or path))
        except (OSError, UnicodeDecodeError):
            return ""
        return said[1] if len(said) == 4 and said[0] == now and said[2] == _check(said[0], said[1]) else ""

    def note(self, path: Path, digest: str) -> None:
        """Remember ``digest`` for the file as it is now: it was just written, and nobody else writes to it."""
        self._write(path, os.stat(path), digest)

    def sound(self, note: Path) -> bool:
        """Whether a note is as it was written."""
        try:
            said = note.read_text("ascii").split("\n")
        except (OSError, UnicodeDecodeError):
            return False
        return len(said) == 4 and said[2] == _check(said[0], said[1]) and not said[3]

    def _write(self, path: Path, stat: os.stat_result, digest: str) -> None:
        text = _text(stat)
        whole = f"{text}\n{digest}\n{_check(text, digest)}\n".encode()
        with contextlib.suppress(OSError):  # without a note the file is read again
            drafts.write(self._file(path), self.drafts, lambda stream: stream.write(whole))

    def _file(self, path: Path) -> Path:
        name = hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()
        return self.folder / name[:2] / name[2:]


@functools.cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""  # not Linux


def _text(stat: os.stat_result) -> str:
    return f"{_boot()} {stat.st_dev} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"


def _check(text: str, digest: str) -> str:
    return hashlib.sha256(f"{text}\n{digest}".encode()).hexdigest()[:_CHECK]
