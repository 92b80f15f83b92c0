"""Digests of files."""

from __future__ import annotations

import hashlib
from pathlib import Path


def digest_file(path: Path) -> str:
    """sha256 of a file as hex, streamed."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
