"""The search for the cheapest types: what an assignment costs, which one is taken, and how it gets into the recipe."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from engine import recipe_patch, searching
from engine.diagnosis.cost import Cost, Sizes
from engine.errors import RecipeError
from engine.graph import files
from engine.precision import lower, selectors
from engine.precision.prepare import prepare
from engine.quantize import insert
from engine.recipe import FloatType, NodeType
from engine.steps import search
from tests.conftest import Cli

TEXT = """<ir_version: 10, opset_import: ["": 21]>
g (float[batch, 128] x) => (float[batch, 64] y) { [m] h = MatMul (x, w)  [r] y = Relu (h) }"""
ROWS, K, N = 4, 128, 64


def cost(tmp_path: Path, base: NodeType) -> Cost:
    proto = parser.parse_model(TEXT)
    weight = np.random.default_rng(0).normal(size=(K, N)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    onnx.save(proto, tmp_path / "g.onnx")
    whole = files.load(tmp_path / "g.onnx")
    prepare(whole)
    sizes = Sizes(whole, {"batch": ROWS})
    model = files.load(tmp_path / "g.onnx")
    assignment, done = insert.quantise(model, selectors.resolve(model, base, (), "fp16"), {"x": 4.0})
    report = lower.lower(model, assignment)
    return sizes.cost(model, report, done)


@pytest.mark.parametrize(
    ("base", "multiplications", "bits"),
    [
        ("fp32", 1.0, 32 * (K * N + 2 * ROWS * N)),
        # The cast of the input and that of the output are written too.
        ("fp16", 0.5, 16 * (K * N + ROWS * K + 2 * ROWS * N) + 32 * ROWS * N),
        # Codes instead of a cast; one scale in FP32 before Q, one and one a channel in FP16 behind; a zero.
        ("int8", 0.25, 8 * (K * N + ROWS * K + 1) + 16 * (2 * ROWS * N + N + 1) + 32 * (ROWS * N + 1)),
        ("int4", 0.5, 4 * K * N + 16 * (ROWS * K + 2 * ROWS * N + N) + 32 * ROWS * N),
    ],
)
def test_cost_by_hand(tmp_path: Path, base: NodeType, multiplications: float, bits: int) -> None:
    found = cost(tmp_path, base)
    assert found.multiplications == multiplications
    assert found.unknown == 0
    assert found.bytes == pytest.approx(bits / (32 * (K * N + 2 * ROWS * N)))
    assert found.whole == (found.multiplications + found.bytes) / 2


@pytest.mark.parametrize(
    ("before", "base", "after"),
    [
        ("precision:\n  base: fp16  # narrow\nbuild: {}\n", "int8",
         "precision:\n  base: int8  # narrow\n  float: fp16\nbuild: {}\n"),
        ("precision: {base: fp32, io: keep}  # 1\n", "int8", "precision: {base: int8, float: fp16, io: keep}  # 1\n"),
        ("precision: {base: int8, float: fp32}\n", "fp8", "precision: {base: fp8, float: fp16}\n"),
        ("precision: {base: fp32}\n", "fp16", "precision: {base: fp16}\n"),
        ("precision: {base: int8, float: fp32, io: keep}\n", "fp16", "precision: {base: fp16, io: keep}\n"),
        ("precision:\n  base: int8  # a\n  float: fp32\n  io: keep\n", "fp16",
         "precision:\n  base: fp16  # a\n  io: keep\n"),
    ],
)  # fmt: skip
def test_the_base_is_changed_and_nothing_else(before: str, base: str, after: str) -> None:
    assert recipe_patch.with_base(before, base, "fp16") == after


@pytest.mark.parametrize("text", ["portwright: 1\n", "precision: {io: keep}\n", "precision: fp16\n"])
def test_a_recipe_without_a_base_is_left_alone(text: str) -> None:
    with pytest.raises(RecipeError, match="left as it is"):
        recipe_patch.with_base(text, "int8", "fp16")


def point(base: str, whole: float, ratio: float | None, overrides: int = 0) -> dict[str, Any]:
    return {"base": base, "floats": "fp16", "overrides": [{}] * overrides, "margin": {"ratio": ratio},
            "cost": {"whole": whole, "multiplications": whole, "bytes": whole}}  # fmt: skip


def test_the_picture_shows_every_point() -> None:
    points = [point("int8", 0.3, 2.0), point("int8", 0.4, 0.5, 2), point("fp16", 0.5, None)]
    text = searching.drawn(points, 1)
    assert text.count("<circle") == 3
    assert "int8 + fp16, 2 exceptions" in text
    assert text.count("#2a7") == 1
    assert [row[0] for row in searching.rows({"points": points, "best": 1})] == ["int8 + fp16", "int8 + fp16", "fp16"]
    assert searching.rows({"points": points, "best": 1})[2][5] == "not finite"


@pytest.mark.parametrize(
    ("base", "bases", "own", "floats"),
    [
        ("int8", ("int8", "fp16", "fp32"), "fp32", "fp16"),
        ("int8", ("int8", "bf16", "fp16"), "fp16", "bf16"),
        ("fp8", ("int8", "fp8", "bf16"), "fp16", "bf16"),
        ("fp16", ("fp16", "fp32"), "fp32", "fp16"),
        ("bf16", ("bf16", "fp16"), "fp16", "bf16"),
        ("int8", ("int8", "fp8"), "bf16", "bf16"),
        ("int8", ("int8",), "fp32", "fp16"),
    ],
)
def test_the_float_type_beside_a_base(
    base: NodeType, bases: tuple[NodeType, ...], own: FloatType, floats: FloatType
) -> None:
    assert search._floats(base, bases, own) == floats


def test_a_float_base_is_written_without_a_float_type(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    folder = toy(("base: fp16", "base: fp32\n  search: {base: [fp16, fp32], budget: 40}"))
    done = cli("search", folder, "--apply")
    assert done.code == 0, done.text
    assert "fp16 + fp32" not in done.text
    text = (folder / "recipe.yaml").read_text()
    assert "base: fp16\n" in text
    assert "float:" not in text
    assert cli("check", folder).code == 0


def test_from_the_command_line(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    """INT8 holds as it is under a loose limit; with --apply the recipe says so and runs."""
    folder = toy(
        ("base: fp16", "base: fp16  # for now\n  search: {base: [int8, fp16], budget: 40}"),
        ("build: {target", "export: {opset: 21}\nbuild: {target"), ("max_abs: 2.0e-2", "max_abs: 2.0e-1"),
    )  # fmt: skip
    done = cli("search", folder, "--json", "--apply")
    assert done.code == 0, done.text
    found = json.loads(done.out)
    points = found["facts"]["points"]
    assert [item["base"] for item in points] == ["int8", "fp16"]
    assert points[0]["cost"]["whole"] < points[1]["cost"]["whole"] < 1
    assert found["facts"]["best"] == 0
    assert Path(found["picture"]).read_text().startswith("<svg")
    assert "base: int8  # for now\n  float: fp16\n" in (folder / "recipe.yaml").read_text()
    assert cli("run", folder, "--until", "rehearse").code == 0
    again = cli("search", folder)
    assert "the recipe says so already" in again.text


@pytest.mark.parametrize(
    ("edit", "told"),
    [(("  base: fp16\n", "  io: keep\n  search: {base: [fp16]}\n"), "precision.base: is missing"),
     (("base: fp16", "base: fp16\n  overrides:\n    - {module: first, type: int8, because: a test}"),
      "precision.overrides[0]: a search decides what is quantised")],
)  # fmt: skip
def test_what_cannot_be_searched_is_told_before_anything_runs(
    toy: Callable[..., Path], cli: Callable[..., Cli], edit: tuple[str, str], told: str
) -> None:
    folder = toy(edit, ("build: {target", "export: {opset: 21}\nbuild: {target"))
    done = cli("search", folder)
    assert done.code == 2, done.text
    assert told in done.text
    assert not (folder / "port").exists()


def test_a_change_that_would_be_refused_is_not_written(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    """An override repeats what the best base says: the checks would refuse the recipe."""
    folder = toy(
        ("  base: fp16", "  base: fp32\n  search: {base: [fp16]}\n  overrides: [{op: Relu, type: fp16, because: x}]"),
        ("max_abs: 2.0e-2", "max_abs: 2.0e-1"),
    )  # fmt: skip
    before = (folder / "recipe.yaml").read_text()
    done = cli("search", folder, "--apply")
    assert done.code == 1, done.text
    assert "not written, because the recipe would be refused then" in done.text
    assert (folder / "recipe.yaml").read_text() == before
    assert sorted(path.name for path in folder.glob(".search*")) == []
