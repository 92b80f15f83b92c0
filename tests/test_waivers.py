"""Waivers: they cover a figure beyond its limit up to their last day, loudly, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import accept, waivers
from engine.claims import Claim
from engine.comparison import Comparison
from engine.errors import Exit
from engine.recipe import Limits, Waiver
from engine.record import Record
from engine.values import StepResult
from tests.conftest import Cli, record_of
from tests.test_accept import BEFORE, BUILT, GOOD, compared, record

BAD = replace(GOOD, max_abs=0.5)
DAY = "2027-01-31"
WAIVER = Waiver("accept.engine.max_abs", "jane@example.com", "the customer compares ranks only", DAY)


def judged(
    *waived: Waiver, date: str = DAY, half: Comparison = BAD, parity: Comparison = GOOD
) -> accept.Verdict:
    return accept.judge(run(*waived, date=date, half=half, parity=parity))


def run(*waived: Waiver, date: str = DAY, half: Comparison = BAD, parity: Comparison = GOOD) -> Record:
    done = record(compared("parity", parity), compared("rehearse", half), BUILT)
    return replace(done, plan=replace(done.plan, waivers=waived), date=date)


def status(verdict: accept.Verdict, name: str) -> Claim:
    return next(claim for claim in verdict.claims if claim.name == name)


def test_without_a_waiver_it_fails() -> None:
    assert judged().headline == "NOT ACCEPTED: accept.engine (rehearsed).max_abs"


def test_a_waived_claim_does_not_fail_the_verdict() -> None:
    verdict = judged(WAIVER)
    assert verdict.accepted
    assert verdict.headline.startswith("ACCEPTED WITH 1 WAIVER")
    claim = status(verdict, "accept.engine (rehearsed).max_abs")
    assert claim.status == "waived"
    assert claim.value == 0.5
    assert claim.why == f"waived by jane@example.com until {DAY}: the customer compares ranks only"
    assert [use.state for use in verdict.waivers] == ["used"]


def test_two_waivers_are_counted() -> None:
    second = replace(WAIVER, claim="accept.engine_mib")
    done = run(WAIVER, second)
    big = replace(BUILT, facts=BUILT.facts | {"engine_bytes": 99 * 2**20})
    done = replace(done, results=(*done.results[:-1], big))
    assert accept.judge(done).headline.startswith("ACCEPTED WITH 2 WAIVERS")


@pytest.mark.parametrize(
    ("date", "accepted"), [("2027-01-30", True), (DAY, True), ("2027-02-01", False), ("", False)]
)
def test_it_counts_up_to_its_last_day(date: str, accepted: bool) -> None:
    verdict = judged(WAIVER, date=date)
    assert verdict.accepted is accepted
    if not accepted:
        claim = status(verdict, "accept.engine (rehearsed).max_abs")
        assert claim.status == "fail"
        assert f"the waiver of jane@example.com expired on {DAY}" in claim.why
        assert [use.state for use in verdict.waivers] == ["expired"]


@pytest.mark.parametrize("value", [None, float("nan")])
def test_it_does_not_cover_a_figure_that_is_not_there(value: float | None) -> None:
    verdict = judged(WAIVER, half=replace(GOOD, max_abs=value))
    assert not verdict.accepted
    assert [use.state for use in verdict.waivers] == ["refused"]


def test_it_does_not_cover_an_output_that_is_missing() -> None:
    verdict = judged(WAIVER, half=Comparison("y", "min", "missing"))
    assert not verdict.accepted
    claim = status(verdict, "accept.engine (rehearsed).max_abs")
    assert claim.why.startswith("missing")
    assert claim.why.endswith("; the waiver of jane@example.com covers a figure, and there is none")


def test_another_claim_still_fails() -> None:
    verdict = judged(WAIVER, parity=BAD)
    assert not verdict.accepted


def test_a_step_that_failed_is_not_waived() -> None:
    done = replace(run(WAIVER), results=(*BEFORE, compared("parity", GOOD), compared("rehearse", BAD),
                                         StepResult("build", "not-run", "no TensorRT")))  # fmt: skip
    assert not accept.judge(done).accepted


def test_an_unused_one_is_reported() -> None:
    verdict = judged(WAIVER, half=GOOD)
    assert verdict.headline.startswith("ACCEPTED; ")
    (use,) = verdict.waivers
    assert (use.state, use.why) == ("unused", "the claim holds without it")


def test_known_claims_are_those_that_are_asked() -> None:
    asked = run().plan.accept
    assert waivers.known(replace(asked, fusion=None, engine_mib=None, onnx=Limits(cosine=0.9))) == (
        "accept.onnx.cosine", "accept.engine.max_abs",
    )  # fmt: skip
    assert "accept.engine_mib" in waivers.known(asked)
    assert "accept.fusion.layers" in waivers.known(asked)


WAIVED = f"""waivers:
  - {{claim: accept.onnx.max_abs, owner: jane, because: an example, expires: {DAY}}}
  - {{claim: accept.engine.max_abs, owner: joe, because: unused, expires: {DAY}}}
accept:
  onnx: {{max_abs: 1.0e-30}}
"""


@pytest.mark.parametrize("date", [DAY, "2027-02-01"])
def test_a_run_goes_on_behind_a_waived_parity_and_a_report_keeps_its_date(
    date: str, toy: Callable[..., Path], cli: Callable[..., Cli], monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine import record as records
    from engine import route

    folder = toy(("accept:\n  onnx: {max_abs: 1.0e-5}\n", WAIVED))
    monkeypatch.setattr(records, "today", lambda: date)
    outcome = route.run(folder, None, "lower", (), lambda event: None)
    stored = record_of(folder)
    if date == DAY:
        assert outcome.exit_code == Exit.ACCEPTED, outcome.verdict.headline
        assert stored["results"][-1]["step"] == "lower"
    else:
        assert outcome.exit_code == Exit.NOT_ACCEPTED
        assert stored["results"][-1]["step"] == "parity"
    before = (folder / "PORT_REPORT.md").read_text()
    top = before[: before.index("## What ran")]
    assert f"Judged by the date of the run, {date}." in top
    assert "| accept.engine.max_abs | joe | unused | 2027-01-31 | not needed | the claim was not run |" in top
    loud = f"> **WAIVED: accept.onnx.max_abs** by jane until {DAY}: an example"
    if date == DAY:
        assert "**Verdict: ACCEPTED WITH 1 WAIVER as far as it ran" in top
        assert loud in top
        assert "| **WAIVED**: waived by jane" in top
    else:
        assert loud not in top
        assert f"| **EXPIRED** | the waiver of jane expired on {DAY}; the run is of {date} |" in top
    done = cli("report", folder)
    assert done.code == int(outcome.exit_code), done.text
    assert (folder / "PORT_REPORT.md").read_text() == before


def test_a_record_of_before_has_no_date(tmp_path: Path) -> None:
    from engine import record as records

    path = records.write(run(WAIVER), tmp_path)
    data: dict[str, Any] = json.loads(path.read_text())
    assert data["date"] == DAY
    del data["date"]
    del data["digest"]
    path.write_text(records.text(data))
    assert not accept.judge(records.read(tmp_path)).accepted
