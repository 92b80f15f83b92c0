"""``run --write-rewrites``: ``rewrites: auto`` becomes the rules that a run chose, everything else stays as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine import document, formatting, ordering
from engine.errors import RecipeError
from engine.recipe import LoadedRecipe

_BLOCK = re.compile(
    r"""(?P<key>["']?rewrites["']?\s*:)[ \t]+["']?auto["']?[ \t]*(?P<rest>#[^\r\n]*)?(?P<end>\r?\n?)"""
)


def require(loaded: LoadedRecipe) -> None:
    """Raise RecipeError unless the recipe itself, and not one that it extends, says ``rewrites: auto``."""
    if loaded.recipe.rewrites != "auto":
        raise RecipeError("--write-rewrites: the recipe does not say rewrites: auto", hint="leave the option out")
    home = loaded.document.place(("rewrites",)).file
    if home != loaded.document.file:
        problem = loaded.document.problem(("rewrites",), f"--write-rewrites: rewrites: auto stands in {home}",
                                          f"write it into {loaded.document.file}, or run {home}")  # fmt: skip
        raise RecipeError([problem])


def write(loaded: LoadedRecipe, lines: Sequence[Any]) -> str:
    """Put ``lines`` (each with ``rule`` and ``matches``) into the recipe file. What was done, in words."""
    file = Path(loaded.document.file)
    before = file.read_bytes().decode()
    formatting.write(file, rewritten(before, lines, str(file)))
    count = f"{len(lines)} rule{'' if len(lines) == 1 else 's'}"
    return f"{file}: rewrites: auto became {count}; run it again for its lock"


def rewritten(text: str, lines: Sequence[Any], name: str = "<text>") -> str:
    """``text`` with the rules in the place of ``auto``; comments, order and layout of all else stay."""
    doc = document.parse(text, name)
    place = doc.place(("rewrites",))
    rows = text.splitlines(keepends=True)
    head, rest = rows[place.line - 1][: place.column - 1], rows[place.line - 1][place.column - 1 :]
    items = [f"{{rule: {item['rule']}, matches: {item['matches']}}}" for item in lines]
    whole = "".join(rows[place.line - 1 :])[place.column - 1 :]
    found = _BLOCK.match(head + rest)
    if found and items:
        end = found["end"] or "\n"
        comment = f"  {found['rest']}" if found["rest"] else ""
        new = [f"{found['key']}{comment}{end}", *(f"  - {item}{end}" for item in items)]
        rows[place.line - 1 : place.line] = new
        after = "".join(rows)
    else:
        flow = re.sub(r"""^["']?auto["']?""", f"[{', '.join(items)}]", whole, count=1)
        after = "".join(rows[: place.line - 1]) + head + flow
    expected = {**doc.data, "rewrites": [dict(item) for item in lines]}
    if document.parse(after, name).data != expected or ordering.comments(after) != ordering.comments(text):
        raise RecipeError(f"{name}: rewrites: auto cannot be replaced without changing something else; left as it is",
                          hint=f"write rewrites: [{', '.join(items)}]")  # fmt: skip
    return after
