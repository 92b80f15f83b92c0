"""Two exporters side by side, and the rule that says whose graph goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import accept, intake
from engine.comparison import Comparison
from engine.errors import Failure, StepError
from engine.exporters import both
from engine.exporters.both import Tried, choose
from engine.plan import Plan
from engine.recipe import Limits
from engine.values import Issue
from tests.conftest import Cli
from tests.test_export import exported, run
from tests.test_silent import net

BOTH = ("precision:", "export: {exporter: both}\nprecision:")


@pytest.fixture
def plan(toy: Callable[..., Path]) -> Plan:
    return intake.make_plan(toy(BOTH))[1]


def compared(error: float) -> Tried:
    return Tried(comparisons=(Comparison("y", "min", "", 1, error, error, error, 1.0, 1.0),))


GOOD, BAD = compared(1e-7), compared(1e-3)
FAILED = Tried(failure=Failure("it raised", "op", cause="a cause", evidence="its whole text"))


def test_dynamo_goes_on_when_it_is_healthy(plan: Plan) -> None:
    choice = choose({"dynamo": GOOD, "torchscript": GOOD}, plan)
    assert choice.exporter == "dynamo"
    assert choice.states == {"dynamo": "goes on", "torchscript": "within accept.onnx"}
    assert choice.issues == ()


def test_torchscript_goes_on_when_dynamo_is_beyond_the_limits(plan: Plan) -> None:
    choice = choose({"dynamo": BAD, "torchscript": GOOD}, plan)
    assert choice.states == {"dynamo": "beyond accept.onnx", "torchscript": "goes on"}
    (issue,) = choice.issues
    assert issue.symptom == (
        "dynamo gives another result: max_abs of 'y' at min is 0.001, the limit is 1e-05"
    )
    assert (issue.fix, issue.disposition) == ("the port goes on with torchscript's graph", "open")


@pytest.mark.parametrize("loser", both.EXPORTERS)
def test_an_exporter_that_fails_is_an_open_issue_with_its_whole_reason(loser: str, plan: Plan) -> None:
    tried = {name: FAILED if name == loser else GOOD for name in both.EXPORTERS}
    choice = choose(tried, plan)
    assert choice.exporter != loser
    assert choice.states[loser] == "failed"
    (issue,) = choice.issues
    assert issue.symptom == f"the {loser} exporter failed: it raised"
    assert (issue.klass, issue.cause, issue.evidence) == ("op", "a cause", "its whole text")
    assert issue.disposition == "open"


def test_neither(plan: Plan) -> None:
    with pytest.raises(StepError) as caught:
        choose({"dynamo": FAILED, "torchscript": BAD}, plan)
    assert str(caught.value) == (
        "neither exporter gives the model: dynamo: it raised; torchscript: max_abs of 'y' at min is 0.001,"
        " the limit is 1e-05"
    )
    assert caught.value.failure.where == "export.exporter"
    assert "its whole text" in caught.value.failure.evidence


def test_issues_of_the_graph_that_does_not_go_on_are_notes(plan: Plan) -> None:
    issue = Issue("export", "export", "odd", disposition="open")
    other = Tried(issues=(issue,), comparisons=GOOD.comparisons)
    (kept,) = choose({"dynamo": GOOD, "torchscript": other}, plan).issues
    assert (kept.symptom, kept.disposition) == ("torchscript (not the graph that goes on): odd", "noted")
    (kept,) = choose({"dynamo": other, "torchscript": GOOD}, plan).issues
    assert kept == issue


figures = st.one_of(st.none(), st.floats(0, 2), st.just(math.nan), st.just(math.inf))
limits = st.one_of(st.none(), st.floats(0.1, 1))


@given(
    st.lists(st.builds(Comparison, st.just("y"), st.just("min"), st.sampled_from(["", "missing"]), st.just(1),
                       figures, figures, figures, figures, figures), max_size=3),
    st.builds(Limits, limits, limits, limits, limits, limits),
)  # fmt: skip
def test_healthy_is_what_the_verdict_calls_a_pass(found: list[Comparison], asked: Limits) -> None:
    claims = accept.judge_limits("accept.onnx", asked, found, "")
    if claims:
        assert (both.beyond(asked, found) == "") == all(claim.status == "pass" for claim in claims)


def test_both_files_stay_and_the_report_says_who_went_on(
    toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    folder = toy(BOTH)
    done = cli("run", folder, "--until", "parity")
    assert done.code == 0, done.text
    facts = exported(folder)["facts"]
    assert (facts["exporter"], facts["asked"]) == ("dynamo", "both")
    assert facts["exporters"] == {"dynamo": "goes on", "torchscript": "within accept.onnx"}
    files = folder / "port" / "onnx"
    chosen, dynamo, traced = (
        onnx.load(files / f"export{part}.onnx") for part in ("", ".dynamo", ".torchscript")
    )
    assert chosen.graph == dynamo.graph
    assert chosen.graph != traced.graph
    apart = exported(folder)["measurements"]["exporters"]["apart"]
    assert {item["shape"] for item in apart} == {"min", "opt", "max", "odd"}
    assert all(item["max_abs"] <= 1e-5 for item in apart)
    text = (folder / "PORT_REPORT.md").read_text()
    assert "dynamo (of both; torchscript within accept.onnx)" in text
    assert "## Two exporters" in text
    assert "| torchscript against dynamo | y | odd |" in text


def test_a_model_that_only_torchscript_takes(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    """A branch on a size: dynamo refuses the axis; what was traced is right at every size, as parity shows."""
    folder = toy(BOTH, model=net("return x + 1 if x.shape[0] > 4 else 1 + x"))
    done = run(folder, cli)
    assert done.code == 0, done.text
    assert exported(folder)["facts"]["exporters"] == {"dynamo": "failed", "torchscript": "goes on"}
    symptoms = [issue["symptom"] for issue in exported(folder)["issues"] if issue["disposition"] == "open"]
    assert (
        "the dynamo exporter failed: the model takes axis 'batch' only as 1..4; the recipe asks 1..16"
        in symptoms
    )
    assert "the tracer took a value at model.py:6 for a constant" in symptoms


def test_neither_exporter_ends_the_run(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    folder = toy(BOTH, model=net("return x * 1000 if x.sum() > 1e6 else x"))
    done = run(folder, cli)
    assert done.code == 3, done.text
    assert "neither exporter gives the model: dynamo: torch.export failed" in done.text
    assert "torchscript: the model branches on the value of a tensor at model.py:6" in done.text
    assert "recipe.yaml:9:10" in done.text


def test_a_rerun_repeats_the_facts(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    folder = toy(BOTH)
    assert run(folder, cli).code == 0
    first = exported(folder)
    assert run(folder, cli).code == 0
    again = exported(folder)
    assert json.dumps(first["facts"]) == json.dumps(again["facts"])
    assert {name: item["digest"] for name, item in first["artifacts"].items()} == {
        name: item["digest"] for name, item in again["artifacts"].items()
    }
