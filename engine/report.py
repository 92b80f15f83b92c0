"""The port report: a pure function of record and verdict. All formatting happens here, none in the template."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine import origin, report_tables, reproduce
from engine.accept import Verdict, comparisons
from engine.claims import Claim
from engine.paths import data_dir
from engine.record import Record
from engine.steps import STEPS, does
from engine.store.store import Store
from engine.stress import view as hard
from engine.values import StepResult
from engine.waivers import WaiverUse
from engine.wording import cell, number, sizes_text, values_text

_SIGNS = {"pass": "pass", "fail": "**FAIL**", "not run": "not run", "waived": "**WAIVED**"}
_STATES = {
    "used": "**WAIVED**",
    "unused": "not needed",
    "expired": "**EXPIRED**",
    "refused": "**does not cover**",
}


def write(record: Record, verdict: Verdict, folder: Path, target: Path, store: Store | None = None) -> None:
    """Render the report to ``target``; ``folder`` is where its files lie, ``store`` may hold the compiled template."""
    text = render(record, verdict, folder, target.parent, store)
    draft = target.with_name(f".{target.name}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    draft.write_text(text, encoding="utf-8", errors="surrogateescape")
    os.replace(draft, target)


def render(record: Record, verdict: Verdict, folder: Path, beside: Path, store: Store | None = None) -> str:
    """The report as Markdown; file paths in it are relative to ``beside``."""
    import jinja2

    from engine.store.templates import Templates

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_dir("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        bytecode_cache=Templates(store) if store else None,
    )
    environment.filters["cell"] = cell
    template = environment.get_template("port_report.md.j2")
    prefix = os.path.relpath(folder, beside).replace(os.sep, "/")
    return template.render(view(record, verdict, "" if prefix == "." else f"{prefix}/", beside.resolve()))


def view(record: Record, verdict: Verdict, prefix: str, beside: Path) -> dict[str, Any]:
    """Everything the template prints, as text."""
    plan = record.plan
    build = record.facts("build")
    return {
        "name": plan.name,
        "prefix": prefix,
        "about": plan.about,
        "verdict": verdict.headline,
        "claims": [_claim(claim) for claim in verdict.claims],
        "waivers": [_waiver(use) for use in verdict.waivers],
        "model": _model(record),
        "reference": origin.reference(plan.model),
        "ran": [_step(step.name, does(step, plan.model.source), record)
                for step in STEPS if _status(record, step.name) == "ok"],
        "not_run": [
            {"name": step.name, "proves": step.proves, "status": _status(record, step.name),
             "why": _why(record, step.name)}
            for step in STEPS if _status(record, step.name) != "ok"
        ],
        "log_tail": _log_tail(record),
        "issues": [
            {"step": issue.step, "klass": issue.klass, "symptom": issue.symptom, "cause": issue.cause or "-",
             "fix": issue.fix or "-", "evidence": _short(issue.evidence) or "-", "state": issue.disposition}
            for result in record.results for issue in result.issues
        ],
        "shapes": [{"name": name, "sizes": sizes_text(sizes), "role": _role(name, plan.parity_shapes)}
                   for name, sizes in plan.shapes.items()],
        "inputs": [{"name": name, "form": f"{item.dtype} [{', '.join(map(str, item.shape))}]",
                    "made": values_text(item)} for name, item in plan.inputs.items()],
        "parity": report_tables.compared(record.result("parity")),
        "hard": hard.rows(plan, record.result("stress"), record.result("parity")),
        "told": hard.beyond_limits(record.result("stress"), record.result("parity")),
        "lookups": hard.looked_up(record.facts("parity")),
        "noise": record.facts("stress").get("noise", ""),
        "located": hard.located(record.facts("parity")),
        "exporters": report_tables.exporters(record),
        "rehearsal": report_tables.rehearsal(record),
        "rewrites": record.facts("rewrite").get("applied", []),
        "precision": report_tables.precision(record),
        "build": report_tables.build(build, record, prefix),
        "bench": report_tables.bench(record),
        "reproduce": reproduce.sections(record, prefix, beside),
        "files": [
            {"path": prefix + artifact.path, "bytes": f"{artifact.bytes:,}", "digest": artifact.digest}
            for result in record.results for artifact in result.artifacts.values()
        ],
        "date": record.date,
        "environment": dict(record.environment),
        "plan_digest": plan.digest,
        "portwright": record.portwright,
    }  # fmt: skip


def _claim(claim: Claim) -> dict[str, str]:
    return {
        "name": claim.name,
        "limit": claim.limit,
        "value": "-" if claim.value is None else number(claim.value),
        "where": claim.where or "-",
        "status": _SIGNS[claim.status],
        "evidence": claim.evidence or "-",
        "why": claim.why,
    }


def _waiver(use: WaiverUse) -> dict[str, str]:
    return {
        "claim": use.claim,
        "owner": use.owner,
        "because": use.because,
        "expires": use.expires,
        "state": _STATES[use.state],
        "why": use.why,
    }


def _model(record: Record) -> dict[str, Any]:
    """Where the model came from; files by digest once the source step has read them."""
    came = record.facts("source").get("origin", {})
    files = [{"path": path, "digest": digest} for path, digest in came.get("files", {}).items()]
    return {"what": origin.describe(record.plan), "source": record.plan.model.source, "files": files}


def _status(record: Record, step: str) -> str:
    result = record.result(step)
    return result.status if result else "not-run"


def _why(record: Record, step: str) -> str:
    result = record.result(step)
    if result is not None:
        return result.why
    if record.failed_step:
        return f"stopped when {record.failed_step} failed"
    return f"stopped after {record.results[-1].step}" if record.results else "nothing was run"


def _step(name: str, does: str, record: Record) -> dict[str, str]:
    result = record.result(name)
    assert result is not None
    return {
        "name": name,
        "does": does,
        "seconds": f"{result.seconds:.1f}",
        "memory": f"{result.peak_bytes / 2**20:.0f}",
        "outcome": _outcome(result) + (f"; reused, it ran at {result.ended}" if result.reused else ""),
    }


def _outcome(result: StepResult) -> str:
    facts = result.facts
    if result.step == "source":
        return f"{facts['module'].rsplit('.', 1)[-1]}, {facts['parameters']:,} parameters, two runs equal"
    if result.step == "export" and facts["exporter"] == "none":
        return f"taken over as it is, opset {facts['opset']}, {facts['nodes']} nodes, axes as declared"
    if result.step == "export":
        others = [
            f"{name} {state}" for name, state in facts.get("exporters", {}).items() if state != "goes on"
        ]
        of_both = f" (of both; {', '.join(others)})" if others else ""
        return (
            f"{facts['exporter']}{of_both}, opset {facts['opset']}, {facts['nodes']} nodes, axes as declared"
        )
    if result.step == "check":
        return f"valid; {facts['external_tensors']} external tensors whole"
    if result.step == "simplify":
        kept = "kept" if facts["kept"] else f"not kept ({facts['why']})"
        return f"{kept}"
    if result.step == "rewrite":
        chosen = f"rules chosen for {facts['auto']['toolchain']}; " if "auto" in facts else ""
        return f"{chosen}{facts['nodes_before']} nodes became {facts['nodes_after']}; every application proven"
    if result.step == "stress":
        made = sum(case["state"] == "made" for case in facts["cases"])
        return f"{made} of {len(facts['cases'])} cases made; FP64 reference: {facts['noise']}"
    if result.step == "parity":
        hard_ones = len(result.measurements["stress"])
        return f"{len(comparisons(result))} comparisons, {hard_ones} on hard inputs"
    if result.step == "rehearse":
        return f"{len(comparisons(result))} comparisons"
    if result.step == "fused":
        return f"{len(comparisons(result))} comparisons; {facts['inside']} values not rounded"
    if result.step == "lower":
        types = ", ".join(f"{count} {kind}" for kind, count in sorted(facts["node_types"].items()))
        return f"float nodes: {types or 'none'}; {facts['casts']} casts"
    if result.step == "calibrate":
        return f"{facts['tensors']} tensors, {facts['method']}, {facts['samples']} samples"
    if result.step == "build":
        return f"{facts['module']} {facts['version']}, {facts['engine_bytes'] / 2**20:.1f} MiB"
    return "done"


def _log_tail(record: Record) -> list[str]:
    result = record.result(record.failed_step) if record.failed_step else None
    return list(result.log_tail) if result else []


def _short(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    joined = " / ".join(lines[-2:])
    return joined if len(joined) <= 240 else "..." + joined[-237:]


def _role(name: str, parity_shapes: Sequence[str]) -> str:
    if name == "export":
        return "traced only, not compared"
    return "compared, on no edge of the profile" if name == "odd" else "compared"
