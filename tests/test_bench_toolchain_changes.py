"""The comparison of two TensorRT versions: what it counts as gained, lost and different. No TensorRT is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx.parser
import pytest

from engine.refusals import Answer, Refusal
from engine.rules.suite import Case
from engine.toolchain import Toolchain

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import toolchain_changes as bench  # noqa: E402

BUILDS = Answer("done", True)


def refused(text: str) -> Answer:
    return Answer("parse", False, (Refusal(text),))


def pair(op: str, old: Answer, new: Answer, name: str = "test") -> bench.Pair:
    text = f'<ir_version: 10, opset_import: ["" : 24]> g (float[2] x) => (float[2] y) {{ y = {op} (x) }}'
    return bench.Pair(Case(name, onnx.parser.parse_model(text), (), (), 0, 0), old, new)


def found(pairs: list[bench.Pair], old: dict[str, Any], new: dict[str, Any]) -> bench.Found:
    tools = [
        Toolchain(f"tensorrt-rtx=={version}", Path("python"), "tensorrt_rtx", version) for version in "12"
    ]
    return bench.Found(tools[0], tools[1], (old, new), pairs)


def test_only_operators_that_changed_have_a_row() -> None:
    pairs = [
        pair("Relu", BUILDS, BUILDS), pair("Sin", refused("no"), refused("no")),
        pair("Swish", BUILDS, BUILDS), pair("Swish", refused("old | says no\nmore"), BUILDS, "gained"),
        pair("Tan", BUILDS, refused("new says no"), "lost"),
    ]  # fmt: skip
    columns = ("operator", "models", "old builds", "new builds", "lost", "example", "refused because")
    assert [tuple(row[column] for column in columns) for row in bench.by_operator(pairs)] == [
        ("Swish", "2", "1", "2", "0", "gained", "old / says no"),
        ("Tan", "1", "1", "0", "1", "lost", "new says no"),
    ]


def test_a_refusal_without_words_says_where() -> None:
    rows = bench.by_operator([pair("Sin", Answer("build", False), BUILDS)])
    assert rows[0]["refused because"] == "refused at build without a word"


def test_importers_and_types_that_differ() -> None:
    old = {
        "operators": {"Swish": False, "Sin": True, "Tan": True},
        "types": {"any": {"int8": "no", "fp16": "builds"}},
    }
    new = {"operators": {"Swish": True, "Sin": True, "Tan": False},
           "types": {"any": {"int8": "builds", "fp16": "builds"}, "sm121": {"fp16": "builds"}}}  # fmt: skip
    both = found([], old, new)
    assert bench.importers(both) == (["Swish"], ["Tan"])
    assert bench.types(both) == [
        {"target": "any", "type": "int8", "old": "does not build", "new": "builds"},
        {"target": "sm121", "type": "all", "old": "-", "new": "has it"},
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--op", "Nope"], "no test has an operator Nope"),
        (["--op", "Swish", "--write", "page.md"], "--write needs all operators"),
        (["--op", "Swish", "--old", "tensorrt-rtx==0.0.0.1"], "tensorrt-rtx==0.0.0.1 is not available"),
    ],
)
def test_wrong_input_is_refused_before_anything_is_built(given: list[str], says: str, tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / "benchmarks" / "toolchain_changes.py"), *given]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_it_uses_the_benchmark_beside_it() -> None:
    """As ``benchmarks.rewrites`` it would be that of whichever checkout is installed."""
    assert bench.operator.__module__ == "rewrites"
