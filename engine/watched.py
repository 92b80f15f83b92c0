"""What the recipe's Python read while it ran: modules, packages and files that no recipe names.

A cached result is of the code that made it. That code is more than the file in the recipe: it imports its neighbours
and opens files. Python's audit hook sees every file that Python opens, and ``sys.modules`` every import; a file that
native code opens itself, beside nothing that Python reads, is not seen.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from engine import installed

_ENGINE = Path(__file__).resolve().parent
_WEIGHTS = frozenset((".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx"))
_NOT_FILES = ("/proc/", "/sys/", "/dev/")


class Watch:
    """While it is entered, remembers the files that Python opens to read and the modules that are imported."""

    def __init__(self, folder: Path, apart: tuple[Path, ...]) -> None:
        self._folder = folder
        paths = sysconfig.get_paths()
        self._sites = tuple({os.path.realpath(paths[key]) for key in ("purelib", "platlib")})
        standard = {os.path.realpath(paths[key]) for key in ("stdlib", "platstdlib")}
        apart_too = (_ENGINE, Path(tempfile.gettempdir()) / "torchinductor", *apart)
        self._apart = (*self._sites, *standard, *(os.path.realpath(item) for item in apart_too))
        self._opened: set[str] = set()
        self._written: set[str] = set()
        self._active = False

    def __enter__(self) -> Watch:
        self._modules = set(sys.modules)
        self._active = True
        sys.addaudithook(self._hook)  # it cannot be taken away again, only told to stop
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._active = False

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active or event != "open" or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        path = os.path.abspath(os.fsdecode(arguments[0]))
        (self._written if arguments[2] & (os.O_WRONLY | os.O_RDWR) else self._opened).add(path)

    def found(self, digest: Callable[[Path], str]) -> dict[str, dict[str, str]]:
        """``files``: sha256 by path, relative where it is below the recipe's folder; ``packages``: their versions.

        Of a folder from which a .json was read, the weights beside count too: native code opens those.
        """
        paths, packages = set(self._opened), set()
        for name in sorted(set(sys.modules) - self._modules):
            file = getattr(sys.modules[name], "__file__", None)
            if isinstance(file, str) and self._is_of_package(file):
                packages.add(name.partition(".")[0])
            elif isinstance(file, str):
                paths.add(os.path.abspath(file))
        counted = {path for path in paths - self._written if self._counts(path)}
        counted |= {str(file) for path in counted if path.endswith(".json") for file in _weights(Path(path).parent)}
        files = {self._shown(path): digest(Path(path)) for path in sorted(counted)}
        return {"files": files, "packages": _distributions(packages)}

    def _is_of_package(self, file: str) -> bool:
        return os.path.realpath(file).startswith(tuple(f"{site}{os.sep}" for site in self._sites))

    def _counts(self, path: str) -> bool:
        real = os.path.realpath(path)
        if real.endswith(".pyc") or real.startswith(_NOT_FILES) or not os.path.isfile(real):
            return False
        return not real.startswith(tuple(f"{item}{os.sep}" for item in self._apart))

    def _shown(self, path: str) -> str:
        return os.path.relpath(path, self._folder) if Path(path).is_relative_to(self._folder) else path


def _weights(folder: Path) -> list[Path]:
    return [item for item in folder.iterdir() if item.suffix in _WEIGHTS and item.is_file()]


def _distributions(modules: set[str]) -> dict[str, str]:
    """Versions of the distributions that top-level modules come from."""
    known = {name: version for name in modules if (version := installed.version(name))}
    others = modules - set(known)
    if others:  # named otherwise than what they are imported by
        by_module = importlib.metadata.packages_distributions()
        names = {name for module in others for name in by_module.get(module, ())}
        known |= {name: version for name in names if (version := installed.version(name))}
    return {installed.normal(name): version for name, version in sorted(known.items())}
