"""The shipped rules by name, without reading ONNX: what planning needs to list and digest them."""

from __future__ import annotations

import re
from pathlib import Path

from engine.errors import RecipeError, quoted
from engine.paths import data_dir
from engine.schema import nearest


def names(folder: Path | None = None) -> tuple[str, ...]:
    """Names of the rules in ``folder`` (the shipped library by default), sorted."""
    return tuple(sorted(path.stem for path in (folder or data_dir("rewrites")).glob("*.yaml")))


def path_of(name: str, folder: Path | None = None) -> Path:
    """The file of rule ``name``; RecipeError with the nearest name, or all names, when there is none."""
    folder = folder or data_dir("rewrites")
    path, known = folder / f"{name}.yaml", names(folder)
    if name not in known:
        raise RecipeError(f"no rewrite rule {quoted(name)}", nearest(name, known) or f"rules: {', '.join(known)}")
    return path


def for_op(op: str, folder: Path | None = None) -> tuple[str, ...]:
    """Names of the rules whose pattern holds operator ``op``; by their text, nothing is loaded."""
    wanted = re.compile(rf"= *{re.escape(op)} *[<(]")
    named = re.compile(rf"^op:(?=.*(?<![\w]){re.escape(op)}(?![\w]))", re.M)
    found = []
    for name in names(folder):
        text = path_of(name, folder).read_text(encoding="utf-8")
        pattern = re.split(r"\n(?=\w)", text.partition("\nmatch:")[2])[0]
        if wanted.search(pattern) or named.search(text):
            found.append(name)
    return tuple(found)


def for_types(folder: Path | None = None) -> tuple[str, ...]:
    """Names of the rules that change the types of a whole graph; by their text, nothing is loaded."""
    texts = ((name, path_of(name, folder).read_text(encoding="utf-8")) for name in names(folder))
    return tuple(name for name, text in texts if re.search(r"^types:", text, re.M))
