"""What two TensorRT versions take of ONNX's own node tests: the operators whose support changed, as a table.

    python benchmarks/toolchain_changes.py tensorrt-rtx==1.4.0.76 tensorrt-rtx==1.7.1.116 [--write]

Every model of the suite is built with both, without a target, its constant-like inputs as constants. ``--write`` puts
the table into docs/toolchain-changes.md. The last line is ``builds with the first / with the second / lost = ...``.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import onnx

from engine import refusals, toolchain, wording
from engine.rules.suite import Case, cases
from engine.toolchain import Toolchain
from rewrites import operator

PAGE = Path(__file__).resolve().parent.parent / "docs" / "toolchain-changes.md"


def asked(tool: Toolchain, paths: Sequence[Path]) -> list[refusals.Answer]:
    def shown(number: int) -> None:
        if number % 200 == 0:
            print(f"{tool.spec}: {number} of {len(paths)}", flush=True)

    return refusals.ask(tool, [refusals.Question(path) for path in paths], on_answer=shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    tools = [toolchain.resolve(spec) for spec in (arguments.first, arguments.second)]
    tests = cases()
    with tempfile.TemporaryDirectory() as name:
        paths = [Path(name) / f"{case.name}.onnx" for case in tests]
        for case, path in zip(tests, paths, strict=True):
            onnx.save(case.model, path)
        answers = [asked(tool, paths) for tool in tools]
    found = list(zip(tests, *answers, strict=True))
    new = [(case, one, other) for case, one, other in found if other.ok and not one.ok]
    lost = [(case, other, one) for case, one, other in found if one.ok and not other.ok]
    counts = [sum(answer.ok for answer in side) for side in answers]
    text = page(tools, len(tests), counts, rows(new), rows(lost))
    print(text)
    if arguments.write:
        PAGE.write_text(text)
    print(f"builds with the first / with the second / lost = {counts[0]} / {counts[1]} / {len(lost)}")


def rows(found: Sequence[tuple[Case, refusals.Answer, refusals.Answer]]) -> list[dict[str, str]]:
    """By operator: which models, and what the version said that refuses them."""
    groups: dict[str, list[tuple[Case, refusals.Answer]]] = {}
    for case, refused, _ in found:
        groups.setdefault(operator(case), []).append((case, refused))
    return [
        {
            "operator": op,
            "models": str(len(items)),
            "such as": items[0][0].name.removeprefix("test_"),
            "refused with": reason(items[0][1]),
        }
        for op, items in sorted(groups.items())
    ]


def reason(answer: refusals.Answer) -> str:
    text = answer.refusals[0].text if answer.refusals else "no reason given"
    lines = [line for line in text.splitlines() if line.strip()]
    return wording.cell(lines[0].strip()[:110] if lines else "no reason given")


def page(
    tools: Sequence[Toolchain], models: int, counts: Sequence[int], new: Sequence[dict[str, str]],
    lost: Sequence[dict[str, str]],
) -> str:  # fmt: skip
    first, second = (toolchain.product(tool) for tool in tools)
    names = [tool.spec for tool in tools]
    return "\n".join([
        f"# What changed from {first} to {second}",
        "",
        f"Of the {models:,} models of ONNX's own node tests {counts[0]:,} build with {first} and {counts[1]:,} with",
        f"{second}. Written by `python benchmarks/toolchain_changes.py {' '.join(names)} --write`.",
        "",
        f"## Builds from {second} on, or a version between", "", *markdown(new), "",
        f"## No longer builds with {second}", "", *markdown(lost), "",
    ])  # fmt: skip


def markdown(table: Sequence[dict[str, str]]) -> list[str]:
    if not table:
        return ["Nothing."]
    columns = list(table[0])
    return [
        f"| {' | '.join(columns)} |", "|" + "---|" * len(columns),
        *(f"| {' | '.join(row[column] for column in columns)} |" for row in table),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
