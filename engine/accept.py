"""The verdict: limits times measurements. A claim is pass, fail or not run with the reason; never assumed."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from engine import waivers
from engine.claims import Claim, Status
from engine.comparison import AT_LEAST, Comparison
from engine.plain import from_plain
from engine.plan import Plan
from engine.recipe import Limits
from engine.record import Record
from engine.steps import NAMES, STEPS
from engine.stress import constants, rounding
from engine.stress import judge as hard
from engine.values import StepResult
from engine.waivers import WaiverUse

PYTORCH = "parity with PyTorch"
REHEARSED = "accept.engine (rehearsed)"
_OPTIONAL = frozenset({"simplify", "rewrite", "fused", "verify", "bench", "score"})


@dataclass(frozen=True)
class Verdict:
    """``accepted`` holds when no claim fails unwaived and every step that had to run did."""

    accepted: bool
    headline: str
    claims: tuple[Claim, ...]
    waivers: tuple[WaiverUse, ...] = ()


def judge(record: Record, require: Sequence[str] = ()) -> Verdict:
    """Judge a run. Steps named in ``require`` count as failed when they were not run."""
    claims = [*_parity(record), *_engine(record), *_build(record), *_required(record, require)]
    claims += _missing(record)
    wanted = {step.name for step in STEPS[: NAMES.index(record.until) + 1]}
    claims = [claim for claim in claims if _step_of(claim) in wanted or claim.name.startswith("require.")]
    claims, uses = waivers.apply(claims, record.plan.waivers, record.date)
    accepted, headline = _headline(record, claims)
    return Verdict(accepted, headline, tuple(claims), uses)


def _headline(record: Record, claims: Sequence[Claim]) -> tuple[bool, str]:
    if record.interrupted:
        return False, "INTERRUPTED"
    if not record.finished:
        return False, "NOT FINISHED: the run was stopped from outside"
    if record.failure is not None:
        return False, f"NOT ACCEPTED: {record.failed_step} failed"
    failed = [claim for claim in claims if claim.status == "fail"]
    if failed:
        return False, f"NOT ACCEPTED: {', '.join(dict.fromkeys(claim.name for claim in failed))}"
    waived = len({waivers.path_of(claim.name) for claim in claims if claim.status == "waived"})
    word = f"ACCEPTED WITH {waived} WAIVER{'S' if waived > 1 else ''}" if waived else "ACCEPTED"
    issues = sum(issue.disposition == "open" for result in record.results for issue in result.issues)
    notes = [_count(issues, "open issue")] if issues else []
    if record.until != NAMES[-1]:
        return True, "; ".join([f"{word} as far as it ran (stopped after {record.until})", *notes])
    unproven = sum(claim.status == "not run" for claim in claims)
    notes = ([_count(unproven, "claim") + " not run"] if unproven else []) + notes
    return True, "; ".join([word, *notes])


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")


def _step_of(claim: Claim) -> str:
    heads = {
        "accept.onnx": "parity",
        "accept.rounding": "parity",
        PYTORCH: "parity",
        REHEARSED: "rehearse",
        "accept.engine (measured)": "verify",
    }
    return next((step for head, step in heads.items() if claim.name.startswith(head)), "build")


def comparisons(result: StepResult) -> tuple[Comparison, ...]:
    """The comparisons that a step recorded."""
    plain: Any = result.measurements.get("comparisons", [])
    found: tuple[Comparison, ...] = from_plain(tuple[Comparison, ...], plain)
    return found


def judge_limits(
    name: str, limits: Limits, found: Sequence[Comparison], evidence: str, plan: Plan | None = None
) -> list[Claim]:
    """One claim a limit, over all outputs and shapes: the worst value decides.

    Nothing compared is a failure, and with ``plan`` so is any of its outputs at any of its parity shapes
    that was not compared.
    """
    problems = [item for item in found if item.problem]
    if plan is not None and found:
        there = {(item.output, item.shape) for item in found}
        problems += [
            Comparison(output, shape, "was not compared")
            for output in plan.outputs
            for shape in plan.parity_shapes
            if (output, shape) not in there
        ]
    claims = []
    for field in fields(limits):
        limit = getattr(limits, field.name)
        if limit is None:
            continue
        sign = ">=" if field.name in AT_LEAST else "<="
        text, full = f"{sign} {limit:g}", f"{name}.{field.name}"
        if not found:
            claims.append(Claim(full, "fail", text, evidence=evidence, why="nothing was compared"))
        elif problems:
            first = problems[0]
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            where = f"{first.output} at {first.shape}"
            claims.append(Claim(full, "fail", text, None, where, evidence, first.problem + more))
        else:
            claims.append(_worst(full, field.name, text, float(limit), found, evidence))
    return claims


def _worst(
    full: str, metric: str, text: str, limit: float, found: Sequence[Comparison], evidence: str
) -> Claim:
    at_least = metric in AT_LEAST
    pick = min if at_least else max
    # NaN never wins a comparison, so it is looked for first.
    values = [(getattr(item, metric), item) for item in found]
    broken = [item for value, item in values if value is None or not math.isfinite(value)]
    if broken:
        where = f"{broken[0].output} at {broken[0].shape}"
        return Claim(full, "fail", text, None, where, evidence, "the figure is not finite")
    value, item = pick(values, key=lambda pair: pair[0])
    good = value >= limit if at_least else value <= limit
    where = f"{item.output} at {item.shape}"
    return Claim(full, "pass" if good else "fail", text, value, where, evidence)


def _not_run(record: Record, step: str) -> str:
    result = record.result(step)
    if result is None:
        if record.failed_step:
            return f"stopped when {record.failed_step} failed"
        return f"stopped after {record.results[-1].step}" if record.results else "nothing was run"
    return "" if result.status == "ok" else result.why


def _limits_claims(record: Record, name: str, step: str, limits: Limits, evidence: str) -> list[Claim]:
    why = _not_run(record, step)
    result = record.result(step)
    if why or result is None:
        return [
            Claim(f"{name}.{field.name}", "not run", limit_text(limits, field.name), evidence="", why=why)
            for field in fields(limits)
            if getattr(limits, field.name) is not None
        ]
    return judge_limits(name, limits, comparisons(result), evidence, record.plan)


def limit_text(limits: Limits, metric: str) -> str:
    """A limit with its sign, such as ``<= 1e-05``."""
    return f"{'>=' if metric in AT_LEAST else '<='} {getattr(limits, metric):g}"


def _parity(record: Record) -> list[Claim]:
    plan = record.plan
    if plan.model.source != "onnx":
        claims = _limits_claims(record, "accept.onnx", "parity", plan.accept.onnx, "compared")
        return [*claims, *_hard(record, "compared")]
    evidence = "compared with the ONNX file"
    why = "the port starts from an ONNX file: there is no PyTorch model to compare with"
    claims = _limits_claims(record, "accept.onnx", "parity", plan.accept.onnx, evidence)
    return [*claims, *_hard(record, evidence), Claim(PYTORCH, "not run", "agreement with PyTorch", why=why)]


def _hard(record: Record, evidence: str) -> list[Claim]:
    strict = record.plan.accept.rounding
    names = (hard.NAME, *((rounding.NAME, constants.NAME) if strict else ()))
    why = _not_run(record, "stress") or _not_run(record, "parity")
    stress, parity = record.result("stress"), record.result("parity")
    if why or stress is None or parity is None:
        return [Claim(name, "not run", "", why=why) for name in names]
    claims = [hard.claim(hard.judge(record.plan, stress, parity), evidence)]
    if strict:
        claims.append(rounding.claim(parity, "computed in FP64", strict))
        claims.append(constants.claim(parity, "estimated from the outputs"))
    return claims


def _engine(record: Record) -> list[Claim]:
    limits = record.plan.accept.engine
    step, evidence = "rehearse", "rehearsed"
    if record.plan.accept.rehearsal == "plan":
        # Where the plan cannot be followed the other rehearsal decides: it rounds more.
        why = _not_run(record, "fused")
        step, evidence = ("rehearse", f"rehearsed, every op ({why})") if why else ("fused", "rehearsed by the plan")
    rehearsed = _limits_claims(record, REHEARSED, step, limits, evidence)
    return rehearsed + _limits_claims(record, "accept.engine (measured)", "verify", limits, "measured")


def _build(record: Record) -> list[Claim]:
    result = record.result("build")
    why = _not_run(record, "build")
    facts = record.facts("build")
    claims = []
    status: Status = "pass" if result is not None and result.status == "ok" else "not run"
    if result is not None and result.status == "not-run":
        status = "fail"  # a port without an engine is no port
    claims.append(Claim("build", status, "an engine", evidence="built" if status == "pass" else "", why=why))
    fusion = record.plan.accept.fusion
    for key in ("attention", "layers"):
        bound = getattr(fusion, key) if fusion else None
        if bound is not None:
            claims.append(_bound(f"accept.fusion.{key}", bound, facts.get("fusion", {}).get(key), why))
    texts = facts.get("plan_proof", {})
    for name, shown in facts.get("plan_shows", {}).items():
        if name.startswith("overrides"):
            state: Status = "pass" if shown else "not run"
            because = "" if shown else f"the fused plan cannot show it: {texts[name]}"
            claims.append(Claim(f"fused plan carries {name}", state, "shown", evidence="built", why=because))
    limit = record.plan.accept.engine_mib
    if limit is not None:
        size = facts.get("engine_bytes")
        value = None if size is None else size / 2**20
        claims.append(_bound("accept.engine_mib", f"<= {limit:g}", value, why))
    return claims


def _bound(name: str, bound: str, value: float | None, why: str) -> Claim:
    match = re.fullmatch(r"(>=|<=|==) *([0-9.e+-]+)", bound)
    assert match is not None
    if value is None:
        if why:
            return Claim(name, "not run", bound, why=why)
        return Claim(name, "fail", bound, why="the build printed no fused plan to read it from")
    limit = float(match[2])
    good = {">=": value >= limit, "<=": value <= limit, "==": value == limit}[match[1]]
    return Claim(name, "pass" if good else "fail", bound, float(value), "", "built")


def _missing(record: Record) -> list[Claim]:
    """Steps that no verdict can do without; a step that was stopped before by a failure is not blamed."""
    stopped = (
        record.failure is not None
        or record.interrupted
        or any(
            claim.status == "fail"
            for claim in waivers.apply(_parity(record), record.plan.waivers, record.date)[0]
        )
    )
    if stopped:
        return []
    wanted = [step.name for step in STEPS[: NAMES.index(record.until) + 1] if step.name not in _OPTIONAL]
    return [
        Claim(f"require.{name}", "fail", "run", why=_not_run(record, name))
        for name in wanted
        if record.result(name) is None
    ]


def _required(record: Record, require: Sequence[str]) -> list[Claim]:
    claims = []
    for step in require:
        why = _not_run(record, step)
        if why:
            claims.append(Claim(f"require.{step}", "fail", "run", why=why))
    return claims
