"""Recipes and locks by name: a file, a folder, or ``REV:path`` out of git. Nothing is checked out, no filter is run."""

from __future__ import annotations

import os
import posixpath
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from engine import document, extends, recipe
from engine.document import LOCK_SUFFIX, Document
from engine.errors import Problem, RecipeError

_LARGEST = 64 * 2**20


def locate(spec: str, scratch: Path) -> Path:
    """The recipe or lock that ``spec`` names; of a git revision it is written below ``scratch`` with what it names.

    Raises RecipeError where there is no such file, revision or repository.
    """
    revision, colon, path = spec.partition(":")
    if is_lock(spec) and not colon and not Path(spec).exists():
        raise RecipeError(
            f"{spec}: no such lock file", "portwright run RECIPE writes it when it gets to the end"
        )
    if Path(spec).exists() or not colon:
        return Path(spec) if is_lock(spec) else recipe.find(Path(spec))
    if not revision:
        raise RecipeError(f"{spec}: no revision before the colon", "for example HEAD~1:recipes/mine")
    return _Tree(spec, revision, Path(path or ".")).write(scratch)


def is_lock(spec: str) -> bool:
    return spec.endswith(LOCK_SUFFIX)


def named(problem: Problem, spec: str, scratch: Path) -> Problem:
    """The problem with the revision's name in the place of the scratch folder."""
    head = f"{spec.partition(':')[0]}:"
    texts = {key: getattr(problem, key).replace(f"{scratch}/", head).replace(str(scratch), head)
             for key in ("what", "hint")}  # fmt: skip
    place = problem.place
    if place is not None and place.file.startswith(str(scratch)):
        place = replace(place, file=head + place.file[len(str(scratch)) + 1 :])
    return replace(problem, place=place, **texts)


@dataclass(frozen=True)
class _Blob:
    mode: str
    size: int


class _Tree:
    """The files of one revision of the repository that ``path`` lies in; ``path`` is taken from the current folder."""

    def __init__(self, spec: str, revision: str, path: Path) -> None:
        self.spec, self.revision = spec, revision
        near = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.is_dir())
        self.top = Path(
            self._git(near, "rev-parse", "--show-toplevel", why=f"{near} lies in no git repository")
        )
        why = f"no revision '{revision}' in {self.top}"
        commit = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        self.commit = self._git(self.top, *commit, why=why)
        self.path = os.path.relpath(path.absolute(), self.top).replace(os.sep, "/")
        self.files = dict(self._list())
        self.folders: dict[str, list[str]] = {}
        for name in self.files:
            for folder in PurePosixPath(name).parents:
                self.folders.setdefault(str(folder), []).append(name)

    def _git(self, folder: Path, *arguments: str, why: str) -> str:
        return self._run(folder, *arguments, why=why).decode("utf-8", "surrogateescape").strip("\n")

    def _run(self, folder: Path, *arguments: str, why: str) -> bytes:
        try:
            done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
        except OSError as error:
            raise RecipeError(f"{self.spec}: git cannot be run: {error.strerror}") from None
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise RecipeError(f"{self.spec}: {why}", said[-1] if said else "")
        return done.stdout

    def _list(self) -> Iterator[tuple[str, _Blob]]:
        listing = self._git(self.top, "ls-tree", "-r", "-z", "-l", self.commit, why="cannot be listed")
        for entry in filter(None, listing.split("\0")):
            head, _, name = entry.partition("\t")
            mode, kind, _, size = head.split()
            if kind == "blob" and mode != "120000":
                yield name, _Blob(mode, int(size))

    def write(self, scratch: Path) -> Path:
        name = self.path if self.path in self.files else posixpath.normpath(f"{self.path}/recipe.yaml")
        if name not in self.files:
            hint = "the path is taken from the current folder"
            kind = "lock file" if is_lock(self.spec) else "recipe"
            raise RecipeError(f"{self.spec}: there is no {kind} '{self.path}' in that revision", hint)
        self._copy(name, scratch)
        return scratch / name

    def _copy(self, name: str, scratch: Path) -> None:
        """Write a file, and those that a text in it names, so that what belongs together is found together."""
        target = scratch / name
        if target.exists() or self.files[name].size > _LARGEST:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(
            self._run(self.top, "cat-file", "blob", f"{self.commit}:{name}", why="cannot be read")
        )
        if not name.endswith((".yaml", ".yml")) or is_lock(name):
            return
        try:
            read = document.read(target, f"{self.revision}:{name}")
        except RecipeError:
            return  # said when the file itself is read, with its place
        self._refuse_base_outside(read, name)
        for text in set(_texts(read.data)):
            for path in (text, text.rpartition(":")[0]):
                for other in self._named(posixpath.normpath(posixpath.join(posixpath.dirname(name), path))):
                    self._copy(other, scratch)

    def _refuse_base_outside(self, read: Document, name: str) -> None:
        """Below the scratch folder such a path leads to whatever lies there, not to what the revision says."""
        base = read.data.get(extends.KEY) if isinstance(read.data, dict) else None
        if not isinstance(base, str):
            return
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), base))
        if path == ".." or path.startswith(("../", "/")):
            what = f"extends: '{base}' lies outside the repository, so that no revision holds it"
            hint = "move it into the repository, or compare two folders instead of revisions"
            raise RecipeError([read.problem((extends.KEY,), what, hint)])

    def _named(self, path: str) -> list[str]:
        """The file ``path``; of a folder its recipe, or all of it where there is none."""
        if path in self.files:
            return [path]
        if path == ".." or path.startswith("../"):
            return []
        inside = posixpath.normpath(f"{path}/recipe.yaml")
        if inside in self.files:
            return [inside]
        return self.folders.get(path, []) if path != "." else []


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        if data:
            yield data
    elif isinstance(data, dict | list):
        for item in data.values() if isinstance(data, dict) else data:
            yield from _texts(item)
