"""A rule as its file says it, for people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import document, schema
from engine.checks import rules
from engine.errors import Problem, RecipeError
from engine.needed import needs
from engine.rules import library, why
from engine.rules.why import Why
from engine.toolchain import DISTRIBUTION, Toolchain

_OPERATOR = re.compile(r"= *(?:[\w.]+\.)?(\w+) *[<(]")
_LIMITS = {"max_abs": "{:g} absolute", "max_rel": "{:g} relative", "max_eps": "{:g} roundings of the type"}


@dataclass(frozen=True)
class Summary:
    """``ops`` are the operators that the rule replaces or looks for; ``data`` is the file as plain data."""

    name: str
    ops: tuple[str, ...]
    klass: str
    tolerance: str
    needed_by: Mapping[str, str]
    opset: str
    why: Why
    path: str
    data: Mapping[str, Any]

    def speaks_of(self, tool: Toolchain) -> bool:
        """Whether it says anything about that kind of TensorRT; without a word it counts as not needed."""
        return DISTRIBUTION[tool.module] in self.needed_by

    def needed(self, tool: Toolchain) -> bool:
        return needs(self.needed_by, tool.module, tool.version)

    def types_text(self) -> str:
        return ", ".join(f"{narrow} in {wide}" for narrow, wide in self.data.get("types", {}).items())

    def needed_text(self) -> str:
        words = {"*": "all versions", "never": "no version"}
        return "; ".join(f"{product}: {words.get(text, text)}" for product, text in self.needed_by.items())

    def headings(self) -> tuple[tuple[str, str], ...]:
        """The fixed headings of a rule's documentation with their texts; a private rule may lack some."""
        parts = (
            ("What breaks", self.why.breaks),
            ("Versions", self.needed_text()),
            ("Idea", self.why.idea),
            ("Cost", self.why.cost or self._counted()),
            ("Tolerance", self.why.tolerance or self.tolerance),
        )
        return tuple((heading, text) for heading, text in parts if text)

    def proof_text(self) -> str:
        """What the rule is proven on by itself."""
        proof, own = self.data["proof"], []
        if "cases" in proof:
            count = len(proof["cases"])
            own.append(f"{count} graph{'' if count == 1 else 's'} of its own")
        if proof.get("suite"):
            own.append("ONNX's backend tests")
        return " and ".join(own) or "instances of its pattern"

    def _counted(self) -> str:
        """Operators for operators; empty where the replacement is no text."""
        if "replace" not in self.data:
            return ""
        made, gone = len(_operators(self.data["replace"])), len(_operators(self.data["match"]))
        return (
            f"at most {made} operators in place of {gone}; constants are cast once, when the rule is applied"
        )


def read_all(folder: Path | None = None) -> list[Summary]:
    """The whole library by name. Raises RecipeError with the problems of all files at once."""
    found: list[Summary] = []
    problems: list[Problem] = []
    for name in library.names(folder):
        try:
            found.append(read(library.path_of(name, folder)))
        except RecipeError as error:
            problems += error.problems
    if problems:
        raise RecipeError(problems)
    return found


def read(path: Path) -> Summary:
    """One rule; RecipeError with what is wrong with its form."""
    doc = document.read(path)
    problems = schema.problems(doc, "rule") or list(rules.head(doc, path))
    if problems:
        raise RecipeError(problems)
    data = doc.data
    return Summary(
        name=data["rule"],
        ops=_ops(data),
        klass=data["class"],
        tolerance=tolerance(data["proof"]["equal"]),
        needed_by=data["needed_by"],
        opset=_opset(data.get("opset", 18)),
        why=why.read(data["why"]),
        path=str(path),
        data=data,
    )


def _ops(data: Mapping[str, Any]) -> tuple[str, ...]:
    if "types" in data:
        return ()
    if "op" in data:
        return (data["op"],) if isinstance(data["op"], str) else tuple(data["op"])
    return tuple(dict.fromkeys(_operators(data["match"])))


def _operators(text: str) -> list[str]:
    return [op for op in _OPERATOR.findall(text) if op != "Constant"]


def _opset(written: Any) -> str:
    return f"{written} and newer" if isinstance(written, int) else f"{written[0]} to {written[1]}"


def tolerance(limits: Mapping[str, float]) -> str:
    parts = [_LIMITS[key].format(value) for key, value in limits.items() if value]
    return " + ".join(parts) or "exact"
