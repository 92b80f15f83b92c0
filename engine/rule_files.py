"""The files that decide what a rewrite rule does, and one digest for them. Reads no ONNX."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from engine.digests import digest_file

# Modules of engine/rules that rules' functions build with; a change in one changes what is put into a graph.
HELPERS = frozenset(("bags", "blocks", "fourier", "quantized", "resizing", "rounding", "surgeon"))
_RULES = Path(__file__).parent / "rules"


def of(rule: Path) -> tuple[Path, ...]:
    """The rule's YAML, the Python beside it, and the helper modules that this imports, directly or not."""
    python = rule.with_suffix(".py")
    if not python.exists():
        return (rule,)
    found = [python]
    for file in found:  # grows while it is gone through
        found += [helper for name in sorted(_imported(file)) if (helper := _RULES / f"{name}.py") not in found]
    return (rule, *found)


def _imported(file: Path) -> set[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return set()  # it cannot run, and its own bytes are in the digest
    return {name for node in ast.walk(tree) for name in _names(node) if name in HELPERS}


def _names(node: ast.AST) -> Iterator[str]:
    package = f"engine.{_RULES.name}"
    if isinstance(node, ast.Import):
        yield from (alias.name.removeprefix(f"{package}.") for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module == package:
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module.removeprefix(f"{package}.")


def digest(rule: Path) -> str:
    """sha256 over all of the rule's files; of a rule that is text alone, that of its file."""
    files = of(rule)
    return digest_file(rule) if len(files) == 1 else _together((file.name, digest_file(file)) for file in files)


def digest_all(rules: Iterable[Path]) -> str:
    """One digest for several rules, whatever order they are given in."""
    return _together(sorted((rule.name, digest(rule)) for rule in rules))


def _together(parts: Iterable[tuple[str, str]]) -> str:
    listed = "".join(f"{name} {said}\n" for name, said in parts)
    return hashlib.sha256(listed.encode()).hexdigest()
