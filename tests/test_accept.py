"""The verdict: nothing passes that was not compared, is not finite, or was not run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from engine import accept, intake
from engine.comparison import Comparison
from engine.errors import Failure
from engine.plain import to_plain
from engine.recipe import Limits
from engine.record import Record
from engine.values import Issue, StepResult

GOOD = Comparison("y", "min", "", 4, 1e-6, 1e-7, 1e-6, 0.9999999, 1.0, 1.0, 1e-7)
FULL = Path(__file__).parent / "recipes" / "accept" / "full.yaml"


def statuses(limits: Limits, *found: Comparison) -> list[str]:
    return [claim.status for claim in accept.judge_limits("accept.onnx", limits, found, "compared")]


def test_within_and_beyond() -> None:
    assert statuses(Limits(max_abs=1e-5), GOOD) == ["pass"]
    assert statuses(Limits(max_abs=1e-7), GOOD) == ["fail"]
    assert statuses(Limits(max_abs=1e-6), GOOD) == ["pass"]


def test_smallest_value_counts_for_cosine_and_argmax() -> None:
    worse = replace(GOOD, cosine=0.5, argmax=0.5)
    assert statuses(Limits(cosine=0.9, argmax=0.9), GOOD) == ["pass", "pass"]
    assert statuses(Limits(cosine=0.9, argmax=0.9), GOOD, worse) == ["fail", "fail"]


def test_nothing_compared_is_a_failure() -> None:
    assert statuses(Limits(max_abs=1.0)) == ["fail"]


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_figure_that_is_none(value: float | None) -> None:
    assert statuses(Limits(max_abs=1e30), GOOD, replace(GOOD, max_abs=value)) == ["fail"]


def test_a_problem_fails_every_limit() -> None:
    bad = Comparison("z", "max", "missing")
    assert statuses(Limits(max_abs=1e30, cosine=0.1), GOOD, bad) == ["fail", "fail"]


def record(*results: StepResult, until: str = "score") -> Record:
    _, plan = intake.make_plan(FULL)
    return Record(plan, (*BEFORE, *results), until, finished=True)


CASE = {
    "name": "zeros.x",
    "kind": "zeros",
    "sizes": {},
    "why": "",
    "within": True,
    "state": "made",
    "because": "",
}
BEFORE = (
    *(StepResult(name, "ok") for name in ("source", "export", "check", "calibrate", "lower")),
    StepResult("stress", "ok", facts={"cases": [CASE], "noise": "run"}),
)


def compared(step: str, item: Comparison) -> StepResult:
    """A step that found ``item`` for every output at every shape."""
    _, plan = intake.make_plan(FULL)
    items = [
        replace(item, output=output, shape=shape) for output in plan.outputs for shape in plan.parity_shapes
    ]
    hard = [replace(item, output=output, shape="zeros.x") for output in plan.outputs]
    return StepResult(step, "ok", measurements={"comparisons": to_plain(items), "stress": to_plain(hard)})


BUILT = StepResult(
    "build", "ok", facts={"fusion": {"attention": 6, "layers": 80}, "engine_bytes": 2**20, "types_checked": 1}
)


def test_accepted_lists_what_is_not_run() -> None:
    done = record(
        compared("parity", GOOD), compared("rehearse", GOOD), BUILT, StepResult("verify", "not-run", "no GPU")
    )
    verdict = accept.judge(done)
    assert verdict.accepted
    assert "1 claim not run" in verdict.headline
    (claim,) = [claim for claim in verdict.claims if claim.status == "not run"]
    assert claim.why == "no GPU"


def test_required_steps() -> None:
    done = record(
        compared("parity", GOOD), compared("rehearse", GOOD), BUILT, StepResult("verify", "not-run", "no GPU")
    )
    assert not accept.judge(done, ["verify"]).accepted
    assert accept.judge(done, ["build"]).accepted


@pytest.mark.parametrize("step", ["parity", "rehearse"])
def test_an_output_at_a_shape_that_was_not_compared(step: str) -> None:
    whole = {name: compared(name, GOOD) for name in ("parity", "rehearse")}
    items = whole[step].measurements["comparisons"]
    whole[step] = StepResult(step, "ok", measurements={"comparisons": items[:-1]})
    verdict = accept.judge(record(whole["parity"], whole["rehearse"], BUILT))
    assert not verdict.accepted
    assert any("was not compared" in claim.why for claim in verdict.claims)


def test_failed_step_is_never_accepted() -> None:
    done = replace(record(compared("parity", GOOD)), failed_step="lower", failure=Failure("broke"))
    assert not accept.judge(done).accepted


def test_a_record_without_parity_is_not_accepted() -> None:
    assert not accept.judge(record(BUILT)).accepted


@pytest.mark.parametrize("name", ["source", "export", "check", "lower"])
def test_a_step_that_is_missing_without_a_reason(name: str) -> None:
    done = record(compared("parity", GOOD), compared("rehearse", GOOD), BUILT)
    done = replace(done, results=tuple(item for item in done.results if item.step != name))
    verdict = accept.judge(done)
    assert verdict.headline == f"NOT ACCEPTED: require.{name}"


def test_what_a_killed_run_left_is_not_accepted() -> None:
    done = record(compared("parity", GOOD), compared("rehearse", GOOD), BUILT)
    verdict = accept.judge(replace(done, finished=False))
    assert not verdict.accepted
    assert verdict.headline.startswith("NOT FINISHED")


def test_interrupted_is_not_accepted() -> None:
    assert not accept.judge(replace(record(), interrupted=True)).accepted


def test_stopped_early_says_so() -> None:
    done = record(compared("parity", GOOD), until="parity")
    verdict = accept.judge(done)
    assert verdict.accepted
    assert "stopped after parity" in verdict.headline
    assert "open issue" not in verdict.headline
    issue = Issue("parity", "numeric", "off outside the declared values", disposition="open")
    noted = replace(done, results=(*done.results[:-1], replace(done.results[-1], issues=(issue,))))
    assert accept.judge(noted).headline.endswith("(stopped after parity); 1 open issue")


@pytest.mark.parametrize(
    ("fusion", "passes"),
    [
        ({"attention": 1, "layers": 90}, True),
        ({"attention": 0, "layers": 90}, False),
        ({"attention": 1, "layers": 91}, False),
        ({}, False),
    ],
)
def test_fusion_bounds(fusion: dict[str, int], passes: bool) -> None:
    built = replace(BUILT, facts=BUILT.facts | {"fusion": fusion})
    done = record(compared("parity", GOOD), compared("rehearse", GOOD), built)
    assert accept.judge(done).accepted is passes


def test_engine_size() -> None:
    big = replace(BUILT, facts=BUILT.facts | {"engine_bytes": 13 * 2**20})
    assert not accept.judge(record(compared("parity", GOOD), compared("rehearse", GOOD), big)).accepted


def by_plan(*results: StepResult) -> Record:
    done = record(*results)
    return replace(done, plan=replace(done.plan, accept=replace(done.plan.accept, rehearsal="plan")))


def rehearsed(done: Record) -> set[tuple[str, str]]:
    return {
        (claim.status, claim.evidence) for claim in accept.judge(done).claims if "(rehearsed)" in claim.name
    }


def test_the_rehearsal_that_the_recipe_names_is_judged() -> None:
    bad = replace(GOOD, max_abs=9.0, mean_abs=9.0, rel_l2=0.9, cosine=0.2, argmax=0.02)
    one, other = compared("rehearse", bad), compared("fused", GOOD)
    assert rehearsed(record(one, BUILT, other)) == {("fail", "rehearsed")}
    assert rehearsed(by_plan(one, BUILT, other)) == {("pass", "rehearsed by the plan")}
    assert rehearsed(by_plan(compared("rehearse", GOOD), BUILT, compared("fused", bad))) == {
        ("fail", "rehearsed by the plan")
    }


def test_without_a_plan_the_rehearsal_that_rounds_more_decides() -> None:
    none = StepResult("fused", "not-run", "the build printed no fused plan")
    bad = compared("rehearse", Comparison("y", "min", "missing"))
    found = rehearsed(by_plan(bad, BUILT, none))
    assert found == {("fail", "rehearsed, every op (the build printed no fused plan)")}
    assert rehearsed(by_plan(compared("rehearse", GOOD))) == {
        ("pass", "rehearsed, every op (stopped after rehearse)")
    }
