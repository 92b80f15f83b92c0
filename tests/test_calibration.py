"""Calibration data: what is taken, what is refused by name, what is warned of; and the whole route with INT8."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import intake, toolchain
from engine.checks import hardware
from engine.errors import StepError
from engine.quantize import data
from engine.recipe import load
from tests.conftest import MODEL, Cli, record_of

RNG = np.random.default_rng(3)
INT8 = ("base: fp16", "base: int8\n  float: fp16")
OPSET = ("build: {target: sm89}", "export: {opset: 21}\nbuild: {target: sm89}")


def recipe(toy: Callable[..., Path], calibration: str = "", **arrays: Any) -> Path:
    folder = toy(
        (INT8[0], INT8[1] + (f"\n  calibration: {calibration}" if calibration else "")), OPSET,
        ("max_abs: 2.0e-2", "max_abs: 2.0e-1"),
    )  # fmt: skip
    if arrays:
        np.savez(folder / "c.npz", **arrays)
    return folder


def opened(folder: Path) -> data.Data:
    _, plan = intake.make_plan(folder / "recipe.yaml")
    assert plan.precision.calibration is not None
    return data.open_data(plan, plan.precision.calibration)


FILE = "{values: {x: {file: c.npz, key: x}}}"


def test_a_file_is_taken_batch_after_batch(toy: Callable[..., Path]) -> None:
    x = RNG.normal(size=(40, 8)).astype(np.float32)
    found = opened(recipe(toy, FILE.replace("{values", "{batches: 10, values"), x=x))
    assert (found.batches, found.samples, found.own, found.issues) == (10, 40, ("x",), ())
    np.testing.assert_array_equal(np.concatenate([batch["x"] for batch in found]), x)


def test_without_values_the_recipes_own_are_taken_and_differ(toy: Callable[..., Path]) -> None:
    found = opened(recipe(toy))
    batches = [batch["x"] for batch in found]
    assert len(batches) == 8
    assert len({batch.tobytes() for batch in batches}) == 8
    assert [issue.disposition for issue in found.issues] == ["open"]
    assert "not from data of the task" in found.issues[0].symptom


@pytest.mark.parametrize(
    ("calibration", "arrays", "what", "where"),
    [
        (FILE, {"x": np.zeros((20, 8), np.float32)}, r"holds 20 samples; calibration takes 8 batches of 4",
         "precision.calibration.values.x.file"),
        ("{values: {x: {file: c.npz, key: x}}, labels: {file: c.npz}}",
         {"x": np.zeros((32, 8), np.float32), "labels": np.full(32, 3)},
         r"all 32 calibration samples are of one class \(3\)", "precision.calibration.labels"),
        ("{values: {x: {file: c.npz, key: x}}, labels: {file: c.npz}}",
         {"x": np.zeros((32, 8), np.float32), "labels": np.arange(9)}, "holds 9 labels for 32",
         "precision.calibration.labels"),
    ],
)  # fmt: skip
def test_refused(toy: Callable[..., Path], calibration: str, arrays: Any, what: str, where: str) -> None:
    with pytest.raises(StepError, match=what) as caught:
        opened(recipe(toy, calibration, **arrays))
    assert caught.value.failure.usage
    assert caught.value.failure.where == where


@pytest.mark.parametrize(("bad", "kind"), [(np.nan, "NaN"), (np.inf, "infinite")])
def test_values_that_are_not_finite_are_named(toy: Callable[..., Path], bad: float, kind: str) -> None:
    x = np.zeros((32, 8), np.float32)
    x[13, 2] = bad
    with pytest.raises(StepError, match=rf"'x' are not finite: batch 3 is {kind} at \[1, 2\]"):
        list(opened(recipe(toy, FILE, x=x)))


@pytest.mark.parametrize(
    ("labels", "what"),
    [(np.sort(np.arange(64) % 4), "2 of 4 classes are not among the calibration samples"),
     (np.array([0] * 31 + [1] + [0] * 32), "class 1 is in 1 of 32 calibration samples only")],
)  # fmt: skip
def test_classes_that_are_missing_or_rare_are_warned_of(toy: Callable[..., Path], labels: Any, what: str) -> None:
    both = "{values: {x: {file: c.npz, key: x}}, labels: {file: c.npz}}"
    found = opened(recipe(toy, both, x=RNG.normal(size=(64, 8)).astype(np.float32), labels=labels))
    assert [issue.symptom for issue in found.issues] == [what]


def test_few_samples_are_warned_of(toy: Callable[..., Path]) -> None:
    few = FILE.replace("{values", "{batches: 2, values")
    found = opened(recipe(toy, few, x=RNG.normal(size=(64, 8)).astype(np.float32)))
    assert [issue.symptom for issue in found.issues] == ["only 8 calibration samples"]


def test_the_whole_route(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    """INT8 from calibration data to the fused plan; a second override later needs no new calibration."""
    folder = recipe(toy, FILE, x=RNG.normal(size=(64, 8)).astype(np.float32))
    done = cli("run", folder)
    assert done.code == 0, done.text
    results = {item["step"]: item for item in record_of(folder)["results"]}
    facts = results["calibrate"]["facts"]
    facts.pop("read")
    assert facts == {"tensors": 2, "method": "max", "batches": 8, "samples": 32, "from": ["x"]}
    lower = results["lower"]["facts"]
    assert lower["node_types"]["int8"] == 2
    assert len(lower["quantised"]["scales"]) == 2
    proof = results["build"]["facts"]["plan_proof"]
    assert proof["base, int8"].startswith("2 of 2 nodes are in fused layers that read int8")
    lock = (folder / "recipe.lock.yaml").read_text()
    assert "scales:" in lock
    assert "method: max" in lock
    assert "### Quantised" in (folder / "PORT_REPORT.md").read_text()
    again = cli("run", folder, "--locked")
    assert again.code == 0, again.text


def test_a_cache_of_another_model_is_refused(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    folder = recipe(toy, "{cache: old.cache}")
    (folder / "old.cache").write_text("TRT-8601-EntropyCalibration2\nconv_12: 3c010a14\n")
    done = cli("run", folder, "--until", "lower")
    assert done.code == 2, done.text
    assert "recipe.yaml:" in done.text
    assert "old.cache has none of the 2 tensors that may be quantised here" in done.text
    assert "conv_12" in done.text
    (folder / "old.cache").write_text("TRT-8601-EntropyCalibration2\nx: 3d010a14\n")
    done = cli("run", folder, "--until", "rehearse")
    assert done.code in (0, 1), done.text
    found = {item["step"]: item for item in record_of(folder)["results"]}
    assert found["calibrate"]["issues"][0]["symptom"] == "old.cache has no scale for 1 of 2 tensors"
    assert len(found["lower"]["facts"]["quantised"]["kept"]) == 1
    assert json.loads((folder / "port" / "onnx" / "ranges.json").read_text()).keys() == {"x"}


def test_fp8_and_int4(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    text = MODEL.replace("16", "64").replace("(64, 4)", "(64, 64)")
    mixed = "base: int4\n  overrides:\n    - {module: first, type: fp8, because: a test}"
    folder = toy(("base: fp16", mixed), OPSET, ("max_abs: 2.0e-2", "max_abs: 5.0e-1"), model=text)
    done = cli("run", folder)
    assert done.code == 0, done.text
    results = {item["step"]: item for item in record_of(folder)["results"]}
    assert sorted(results["lower"]["facts"]["quantised"]["nodes"].values()) == ["fp8", "int4"]
    proof = results["build"]["facts"]["plan_proof"]
    assert proof["base, int4"].startswith("1 of 1 nodes have weights held in int4"), proof
    assert proof["overrides[0], fp8"].startswith("1 of 1"), proof


@pytest.mark.parametrize(("version", "told"), [("1.4.0.76", True), ("1.5.0.114", False)])
def test_a_toolchain_that_cannot_is_told_when_the_recipe_is_checked(
    toy: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, version: str, told: bool
) -> None:
    folder = recipe(toy)
    found = replace(toolchain.find("current"), module="tensorrt_rtx", version=version)
    monkeypatch.setattr(toolchain, "find", lambda spec: found)
    loaded = load(folder / "recipe.yaml")
    texts = [problem.what for problem in hardware.problems(loaded)]
    assert any("int8 needs tensorrt_rtx 1.5 or newer; the toolchain has 1.4.0.76" in text for text in texts) == told


def test_what_is_resolved_names_its_lines(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    both = "{batches: 9, values: {x: {file: c.npz, key: x}}, labels: {file: c.npz}}"
    folder = recipe(toy, both, x=np.zeros((64, 8), np.float32), labels=np.arange(64))
    shown = cli("show", "--resolved", folder).out
    lines = (folder / "recipe.yaml").read_text().splitlines()
    line = next(index for index, text in enumerate(lines, 1) if "batches" in text)
    floats = next(text for text in shown.splitlines() if text.strip().startswith("floats: fp16"))
    assert floats.endswith(f"recipe.yaml:{line - 1}")
    for key in ("batches: 9", "kind: file", "key: x", 'path: "'):
        found = [text for text in shown.splitlines() if text.strip().startswith(key)]
        assert found, key
        assert all(text.endswith(f"recipe.yaml:{line}") for text in found), found
    told = cli("plan", folder).out
    assert "base int8 beside fp16" in told
    assert "max over 9 batches of x" in told


def test_numbers_that_the_input_cannot_hold_are_refused(toy: Callable[..., Path]) -> None:
    """Those of the first batch are looked at with the file; what comes behind it would wrap around in silence."""
    folder = toy(
        (INT8[0], INT8[1] + "\n  calibration: {values: {x: {file: c.npz, key: x}}}"), OPSET,
        ("dtype: float32", "dtype: int32"),
    )  # fmt: skip
    x = np.zeros((64, 8), np.int64)
    x[9, 1] = 2**31
    np.savez(folder / "c.npz", x=x)
    with pytest.raises(StepError, match="calibration values of 'x' in batch 2 do not fit into int32"):
        list(opened(folder))


def test_a_recipe_whose_own_values_are_a_file_has_data(toy: Callable[..., Path]) -> None:
    folder = toy(INT8, OPSET, ("shape: [batch, 8]}", "shape: [batch, 8], values: {file: c.npz, key: x}}"))
    np.savez(folder / "c.npz", x=RNG.normal(size=(64, 8)).astype(np.float32))
    assert opened(folder).issues == ()
