"""Record and verdict to lock: a pure function that keeps only what repeats.

Left out: times, dates, paths, what belongs to the machine, at which shape an error was worst, and the engine's
sha256: TensorRT orders some tables by address, and the addresses follow even the size of the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from engine import schema
from engine.accept import Verdict
from engine.claims import Claim
from engine.lock import model
from engine.lock.figures import rounded
from engine.lock.model import (
    FORMAT,
    Lock,
    LockedClaim,
    LockedEngine,
    LockedExport,
    LockedGraph,
    LockedModel,
    LockedOverride,
    LockedPrecision,
    LockedQuantised,
    LockedRecipe,
    LockedRule,
    LockedWaiver,
)
from engine.record import PACKAGES, Record
from engine.steps import NAMES
from engine.waivers import WaiverUse, path_of

_STAGES = ("check", "simplify", "rewrite", "lower")  # steps after which the ops are counted
_SHOWN = {"check": "export"}  # the check step counts what the export step wrote


def whole(record: Record) -> bool:
    """Whether a run went to its end, so that there is something to lock."""
    return (
        record.finished
        and not record.interrupted
        and record.failure is None
        and record.until == NAMES[-1]
    )  # fmt: skip


def make(record: Record, verdict: Verdict) -> Lock:
    """The lock of a whole run. ``verdict`` is the recipe's own, without what a command required on top."""
    came = record.facts("source")["origin"]
    return Lock(
        claims={claim.name: _claim(claim, verdict.waivers) for claim in verdict.claims},
        lock=FORMAT,
        model=LockedModel(dict(came["files"]), came["source"], came["what"]),
        ops={_SHOWN.get(step, step): ops for step in _STAGES if (ops := record.facts(step).get("ops"))},
        packages={name: record.environment[name] for name in PACKAGES if name in record.environment},
        portwright=record.portwright,
        recipe=LockedRecipe(record.plan.digest, _language(), record.plan.name),
        rules=tuple(
            LockedRule(item["count"], len(item["refused"]), item["rule"])
            for item in record.facts("rewrite").get("applied", ())
        ),
        verdict=_verdict(verdict),
        waivers=tuple(
            LockedWaiver(use.claim, use.expires, use.owner, use.state)
            for use in sorted(verdict.waivers, key=lambda use: use.claim)
        ),
        engine=_engine(record),
        export=_export(record.facts("export")),
        graph=_graph(record),
        precision=_precision(record.facts("lower"), record.facts("calibrate")),
    )


def _language() -> int:
    version: int = schema.load("recipe")["properties"]["portwright"]["const"]
    return version


def _verdict(verdict: Verdict) -> model.Verdict:
    if not verdict.accepted:
        return "not accepted"
    waived = any(claim.status == "waived" for claim in verdict.claims)
    return "accepted with waivers" if waived else "accepted"


def _claim(claim: Claim, uses: tuple[WaiverUse, ...]) -> LockedClaim:
    value = None if claim.value is None else rounded(claim.name, claim.value)
    why = None if claim.status == "pass" or value is not None else _reason(claim, uses)
    return LockedClaim(claim.limit, claim.status, value, why)


def _reason(claim: Claim, uses: tuple[WaiverUse, ...]) -> str | None:
    """Why there is no figure, without what became of a waiver (that names the day) and what a machine has."""
    why = claim.why
    for use in uses:
        if use.claim == path_of(claim.name):
            why = why.removesuffix(use.why).removesuffix("; ")
    first = why.partition("\n")[0]
    return re.sub(r"(?:^| )\(.*\)$", "", first) or None


def _export(facts: Mapping[str, Any]) -> LockedExport | None:
    return LockedExport(facts["exporter"], facts["opset"]) if facts else None


def _graph(record: Record) -> LockedGraph | None:
    result = record.result("lower")
    if result is None or "graph" not in result.artifacts:
        return None
    weights = result.artifacts.get("weights")
    return LockedGraph(result.artifacts["graph"].digest, weights.digest if weights else None)


def _precision(facts: Mapping[str, Any], calibrated: Mapping[str, Any]) -> LockedPrecision | None:
    if not facts:
        return None
    overrides = tuple(
        LockedOverride(tuple(sorted(item["nodes"])), item["selector"], item["type"])
        for item in facts["overrides"]
    )
    others = {kind: tuple(sorted(nodes)) for kind, nodes in facts["others"].items()}
    found = facts.get("quantised")
    method, samples = calibrated.get("method", "none"), calibrated.get("samples", 0)
    quantised = found and LockedQuantised(tuple(sorted(found["kept"])), method, samples, dict(found["scales"]))
    return LockedPrecision(
        facts["base"], facts["casts"], dict(facts["node_types"]), facts["names"], others, overrides, quantised
    )


def _engine(record: Record) -> LockedEngine | None:
    facts = record.facts("build")
    if not facts:
        return None
    return LockedEngine(
        bytes=facts["engine_bytes"],
        fused=dict(facts["fusion"]),
        fused_types=dict(facts["fused_types"]),
        network_layers=facts["network_layers"],
        toolchain=f"{facts['module']} {facts['version']}",
        types_checked=facts["types_checked"],
        target=facts["target"],
    )
