"""The second rehearsal as a step: it follows the plan that the build kept, or says why it cannot."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import accept, half_sums, intake, samples
from engine.comparison import Comparison
from engine.digests import digest_file
from engine.fused_plan import FusedLayer, FusedPlan
from engine.plain import to_plain
from engine.plan import Plan
from engine.precision.sums import Sum
from engine.recipe import Limits
from engine.steps import fused, rehearse
from engine.steps.context import Context
from engine.values import Artifact, StepResult
from tests.test_precision_shadow import lowered

FULL = Path(__file__).parent / "recipes" / "accept" / "full.yaml"
BODY = "g (float[n] x) => (float[n] y) <float h = {0.5}> { [a] s = Mul (x, x)  [b] y = Mul (s, h) }"
TOGETHER = FusedPlan((FusedLayer("k", "kgen", nodes=("a", "b")),))


def plan() -> Plan:
    _, made = intake.make_plan(FULL)
    return replace(made, shapes={"export": {}, "opt": {}})


def context(folder: Path, read: FusedPlan | None) -> Context:
    (folder / "onnx").mkdir()
    lowered(folder / "onnx", BODY, io="lower")
    (folder / "samples").mkdir()
    x = np.array([2.0, 300.0], np.float32)
    samples.save(
        folder / "samples" / "opt.npz",
        {"x": x},
        {"fp32": {"y": x * x / 2}, "fp64": {"y": x.astype(float) ** 2 / 2}},
    )
    earlier = {"lower": StepResult("lower", "ok", artifacts={"graph": kept(folder, "onnx/low.onnx")})}
    if read is None:
        earlier["build"] = StepResult("build", "not-run", "no TensorRT")
    else:
        (folder / "plan.json").write_text(json.dumps(to_plain(read)))
        earlier["build"] = StepResult("build", "ok", artifacts={"plan": kept(folder, "plan.json")})
    return Context(plan(), folder, earlier, lambda text, done, total: None)


def kept(folder: Path, path: str) -> Artifact:
    return Artifact(path, digest_file(folder / path), (folder / path).stat().st_size)


def found(done: Any) -> Comparison:
    [item] = accept.comparisons(StepResult("fused", "ok", measurements=done.measurements))
    return item


def test_a_fused_overflow_is_none(tmp_path: Path) -> None:
    done = fused.run(context(tmp_path, TOGETHER))
    item = found(done)
    assert item.problem == ""
    assert item.max_abs == 45000 % 32
    assert item.noise == 0.0
    assert done.facts == {"mode": fused.MODE, "inside": 1, "border": 1, "hidden": 0}


def test_between_two_layers_it_is_one(tmp_path: Path) -> None:
    body = [FusedLayer("k", "kgen", nodes=("a",)), FusedLayer("l", "kgen", nodes=("b",))]
    done = fused.run(context(tmp_path, FusedPlan(tuple(body))))
    assert (
        done.skipped
        == "none of 2 low-precision values is inside one fused layer: the first rehearsal rounds the same ones"
    )


@pytest.mark.parametrize(
    ("read", "why"),
    [
        (None, "no engine was built"),
        (FusedPlan(()), "the build printed no fused plan"),
        (replace(TOGETHER, unknown_lines=2), "2 lines of the fused plan could not be read"),
    ],
)
def test_without_a_whole_plan_it_says_why(tmp_path: Path, read: FusedPlan | None, why: str) -> None:
    assert fused.run(context(tmp_path, read)).skipped == why


def long(module: str, length: int = 4096, total: float = 100.0, result: float = 10.0) -> Sum:
    return Sum(f"node of {module}", "MatMul", module, length, total, result)


def told(limits: Limits, *found: Sum, scale: float = 2.0) -> list[str]:
    made = plan()
    made = replace(made, accept=replace(made.accept, engine=limits))
    sums = [rehearse._sum(item, shape) for shape in ("opt", "max") for item in found]
    measured = {"sums": sums, "comparisons": [to_plain(Comparison("y", "opt", scale=scale))]}
    issues = half_sums.issues(made, StepResult("rehearse", "ok", measurements=measured))
    assert all(issue.disposition == "open" for issue in issues)
    return [f"{issue.symptom}: {issue.cause}; {issue.evidence}" for issue in issues]


def test_one_issue_for_modules_that_differ_by_a_number() -> None:
    # sqrt(4096) * 2**-11 * 100 / 10 = 0.3125
    [text] = told(Limits(rel_l2=0.1), long("layer.0.dense"), long("layer.1.dense"), long("layer.1.dense"))
    assert "sums in layer.*.dense may not bear FP16 accumulation: MatMul of 4096 terms" in text
    assert "an error up to about 0.31 of the largest result; accept.engine.rel_l2 allows 0.1" in text
    assert text.endswith("at shape opt and 1 more")
    assert len(told(Limits(rel_l2=0.1), long("encoder"), long("decoder"))) == 2


@pytest.mark.parametrize(
    ("limits", "told_of"),
    [
        (Limits(rel_l2=0.5), False),
        (Limits(max_abs=0.7), False),  # of an output of 2
        (Limits(max_abs=0.6), True),
        (Limits(cosine=0.9), False),  # 0.447
        (Limits(cosine=0.99), True),
        (Limits(argmax=0.9), False),
        (Limits(rel_l2=0.5, max_abs=0.6), True),
    ],
)
def test_the_limit_is_the_strictest_of_the_recipe(limits: Limits, told_of: bool) -> None:
    assert bool(told(limits, long("a"))) == told_of


def test_an_overflow_of_partial_sums_is_told_whatever_the_limit() -> None:
    [text] = told(Limits(argmax=0.9), long("a", length=40, total=70000.0))
    assert "partial sums may reach 70000 and FP16 ends at 65504; the result is 10" in text
