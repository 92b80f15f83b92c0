"""The store's files by their sha256, and how they come into it and out again.

An object shares no inode with the file of a run: ONNX refuses weights that have several hard links or are a symbolic
link, and whoever edits a run's folder must not reach the store. Where the file system can share blocks (XFS, Btrfs)
both are one copy on the disk; elsewhere the store holds one more, however many steps and runs refer to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from engine.store import drafts
from engine.store.seen import Seen

_READ_ONLY = 0o444
_FICLONE = 0x40049409  # ioctl: share the blocks of another file, where the file system can
EARLIER = ".earlier"  # in a run's folder: what the run before left, until this one has ended


@dataclass(frozen=True)
class Objects:
    folder: Path
    drafts: Path
    seen: Seen

    def path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest[2:]

    def put(self, file: Path, digest: str, size: int) -> None:
        """Take in a file that was just written and has this digest. Raises OSError."""
        self.seen.note(file, digest)
        if not self.fault(digest, size):
            return
        target = self.path(digest)
        drafts.write(target, self.drafts, lambda stream: copy(file, stream), _READ_ONLY)
        self.seen.note(target, digest)

    def fault(self, digest: str, size: int) -> str:
        """What is wrong with an object; empty when it is whole. One that changed since it was noted is read."""
        path = self.path(digest)
        try:
            if path.stat().st_size != size:
                return "has another size than it was written with"
            return "" if self.seen.digest(path) == digest else "was changed since it was written"
        except FileNotFoundError:
            return "is gone"
        except OSError as error:
            return f"cannot be read: {error.strerror}"

    def place(self, digest: str, name: str, out: Path) -> None:
        """Make ``name`` in a run's folder a file with this content. Raises OSError."""
        target, earlier = out / name, out / EARLIER / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if self.seen.known(target, earlier) == digest:
            os.replace(earlier, target)
        else:
            draft = target.with_name(f".{target.name}.part")
            with draft.open("wb") as stream:
                copy(self.path(digest), stream)
            os.replace(draft, target)
        self.seen.note(target, digest)


def copy(file: Path, stream: IO[bytes]) -> None:
    """The bytes of ``file``, shared with it where the file system can."""
    with file.open("rb") as source:
        with contextlib.suppress(OSError):
            fcntl.ioctl(stream.fileno(), _FICLONE, source.fileno())
            return
        shutil.copyfileobj(source, stream, 2**20)
