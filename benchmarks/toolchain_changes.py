"""What changed between two TensorRT versions: ONNX's own node tests built on both, and what each says of itself.

    python benchmarks/toolchain_changes.py [--old tensorrt-rtx==1.4.0.76] [--new tensorrt-rtx==1.7.1.116] [--op Swish]
        [--write docs/toolchain-changes.md]

Both versions are asked at the same time, each in one process. With ``--op`` the table is of those operators alone.
The last line is ``models / old builds / new builds / lost = ...``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from engine import refusals, toolchain, wording
from engine.errors import RecipeError
from engine.refusals import Answer, Question
from engine.rules.suite import Case, cases, of_ops
from engine.toolchain import Toolchain
from engine.toolchains import capability, places
from rewrites import operator


@dataclass(frozen=True)
class Pair:
    """One model and the answers of the old and the new version."""

    case: Case
    old: Answer
    new: Answer

    @property
    def gained(self) -> bool:
        return self.new.ok and not self.old.ok

    @property
    def lost(self) -> bool:
        return self.old.ok and not self.new.ok


@dataclass(frozen=True)
class Found:
    old: Toolchain
    new: Toolchain
    records: tuple[Mapping[str, Any], Mapping[str, Any]]
    pairs: Sequence[Pair]


def compare(old: Toolchain, new: Toolchain, tests: Sequence[Case]) -> Found:
    with tempfile.TemporaryDirectory(prefix="portwright-") as folder, ThreadPoolExecutor(2) as both:
        paths = [Path(folder) / f"{case.name}.onnx" for case in tests]
        for case, path in zip(tests, paths, strict=True):
            onnx.save(case.model, path)
        answers = both.map(lambda tool: refusals.ask(tool, [Question(path) for path in paths]), (old, new))
        pairs = [Pair(*of_one) for of_one in zip(tests, *answers, strict=True)]
        records = tuple(both.map(_record, (old, new)))
    return Found(old, new, (records[0], records[1]), pairs)


def _record(tool: Toolchain) -> Mapping[str, Any]:
    """What was taken down when it was added; the one of this environment was not added and is asked."""
    kept = places.find(tool.spec)
    return kept.record if kept and kept.python == tool.python else capability.ask(tool)


def _why(answer: Answer) -> str:
    texts = [line.strip() for refusal in answer.refusals for line in refusal.text.split("\n") if line.strip()]
    text = texts[0] if texts else f"refused at {answer.stage} without a word"
    return textwrap.shorten(text, 160, placeholder=" ...").replace("|", "/")


def by_operator(pairs: Sequence[Pair]) -> list[dict[str, str]]:
    """A row for each operator of which a model changed sides, with the first reason that the refusing side gave."""
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(operator(pair.case), []).append(pair)
    rows = []
    for op, group in sorted(groups.items()):
        moved = [pair for pair in group if pair.gained or pair.lost]
        if moved:
            first = moved[0]
            rows.append(
                {"operator": op, "models": str(len(group)), "old builds": str(sum(p.old.ok for p in group)),
                 "new builds": str(sum(p.new.ok for p in group)), "lost": str(sum(p.lost for p in group)),
                 "example": first.case.name,
                 "refused because": _why(first.new if first.lost else first.old)}
            )  # fmt: skip
    return rows


def importers(found: Found) -> tuple[list[str], list[str]]:
    """Operators whose importer is in the new version alone, and in the old one alone."""
    old, new = (record["operators"] for record in found.records)
    names = sorted(set(old) | set(new))
    added = [name for name in names if new.get(name) and not old.get(name)]
    return added, [name for name in names if old.get(name) and not new.get(name)]


def types(found: Found) -> list[dict[str, str]]:
    """A row for each target and type on which the two records differ; a target that one lacks is a row of its own."""
    old, new = (record["types"] for record in found.records)
    rows = []
    for target in dict.fromkeys((*old, *new)):
        if target not in old or target not in new:
            sides = {"old": "has it" if target in old else "-", "new": "has it" if target in new else "-"}
            rows.append({"target": target, "type": "all", **sides})
            continue
        for kind in dict.fromkeys((*old[target], *new[target])):
            one, two = (_word(side[target].get(kind, "")) for side in (old, new))
            if one != two:
                rows.append({"target": target, "type": kind, "old": one, "new": two})
    return rows


def _word(answer: str) -> str:
    return "builds" if answer == "builds" else "does not build" if answer else "not asked"


def page(found: Found, command: str) -> str:
    old, new = f"`{found.old.spec}`", f"`{found.new.spec}`"
    added, removed = importers(found)
    names = [", ".join(f"`{name}`" for name in some) or "none" for some in (added, removed)]
    crashes = sum("crash" in (pair.old.stage, pair.new.stage) for pair in found.pairs)
    return "\n".join(
        [
            "# What changed between two TensorRT versions",
            "",
            f"Written by `{command}`; do not edit. The old version is {old}, the new one {new}.",
            "",
            "## Operators that build",
            "",
            f"{len(found.pairs)} node tests of the ONNX {onnx.__version__} package, small constant-like inputs as "
            f"initializers, each parsed and built as it is: {old} builds {sum(p.old.ok for p in found.pairs)}, {new} "
            f"{sum(p.new.ok for p in found.pairs)}. {sum(p.gained for p in found.pairs)} gained, "
            f"{sum(p.lost for p in found.pairs)} lost, {crashes} crashed a version.",
            "Built without a GPU and for no single target; nothing was run, so this says nothing of results. A test",
            "may use a newer opset than the old version was made for.",
            "",
            _table(by_operator(found.pairs)),
            "",
            "## Operators with an importer",
            "",
            "By the parser's own word, which is less than a build: an operator that is not here can still have changed",
            "above, and one that is here need not build.",
            "",
            f"Only in the new version: {names[0]}. Only in the old version: {names[1]}.",
            "",
            "## Data types that build",
            "",
            "By the record that `portwright toolchain add` takes down; `any` is a build that names no target.",
            "",
            _table(types(found)),
            "",
        ]
    )


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    if not rows:
        return "No difference."
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--old", default="tensorrt-rtx==1.4.0.76")
    parser.add_argument("--new", default="tensorrt-rtx==1.7.1.116")
    parser.add_argument("--op", action="append", default=[], help="only models that hold this operator")
    parser.add_argument("--write", type=Path, help="write the page here; without it the table is printed")
    options = parser.parse_args()
    if options.op and options.write:
        parser.error("--write needs all operators; leave --op out")
    try:
        old, new = toolchain.resolve(options.old), toolchain.resolve(options.new)
    except RecipeError as error:
        raise SystemExit(str(error)) from error
    tests = of_ops(options.op) if options.op else cases()
    if not tests:
        raise SystemExit(f"no test has an operator {' or '.join(options.op)}")
    found = compare(old, new, tests)
    if options.write:
        command = f"python benchmarks/toolchain_changes.py --old {options.old} --new {options.new} --write"
        options.write.write_text(page(found, f"{command} {options.write}"), encoding="utf-8")
    else:
        rows = by_operator(found.pairs)
        print(wording.table(rows, list(rows[0])) if rows else "no model changed sides")
    counts = [len(found.pairs), sum(p.old.ok for p in found.pairs), sum(p.new.ok for p in found.pairs)]
    lost = sum(p.lost for p in found.pairs)
    print(f"models / old builds / new builds / lost = {' / '.join(map(str, (*counts, lost)))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
