"""Which distributions are installed, by the names of their folders alone: importlib.metadata costs 15 ms to import."""

from __future__ import annotations

import functools
import os
import re
import sys


@functools.cache
def versions() -> dict[str, str]:
    """Version by normalised name; where two are on the path the first counts, as for an import."""
    found: dict[str, str] = {}
    for entry in sys.path:
        try:
            names = sorted(os.listdir(entry or "."))
        except OSError:
            continue
        for name in names:
            if name.endswith(".dist-info"):
                project, _, version = name.removesuffix(".dist-info").partition("-")
                found.setdefault(normal(project), version)
    return found


def normal(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def version(name: str) -> str | None:
    return versions().get(normal(name))
