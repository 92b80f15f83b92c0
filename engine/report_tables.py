"""The tables of the port report: what was compared, the precision map, the engine and the figures of the bench."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from engine.accept import comparisons
from engine.comparison import Comparison
from engine.record import Record
from engine.values import StepResult
from engine.wording import number, pattern_of, sizes_text


def compared(result: StepResult | None) -> list[dict[str, str]]:
    """One row a comparison of a step."""
    return [_comparison(item) for item in comparisons(result)] if result else []


def _comparison(item: Comparison) -> dict[str, str]:
    return {
        "output": item.output,
        "shape": item.shape,
        "max_abs": number(item.max_abs),
        "mean_abs": number(item.mean_abs),
        "rel_l2": number(item.rel_l2),
        "cosine": number(item.cosine),
        "problem": item.problem,
        "noise": _noise(item),
    }


def _noise(item: Comparison) -> str:
    """The reference's own rounding error, and what part of the error that is."""
    if item.noise is None:
        return "not run"
    part = f" ({100 * item.noise / item.max_abs:.2g} %)" if item.max_abs else ""
    return number(item.noise) + part


def exporters(record: Record) -> list[dict[str, str]]:
    """With ``exporter: both``: each graph against the reference, then one against the other."""
    result = record.result("export")
    plain: Any = result.measurements.get("exporters", {}) if result else {}
    titles = {"dynamo": "dynamo", "torchscript": "torchscript", "apart": "torchscript against dynamo"}
    return [
        {"graph": title, **_comparison(Comparison(**item))}
        for key, title in titles.items()
        for item in plain.get(key, [])
    ]


def half(record: Record) -> list[dict[str, str]]:
    """PyTorch itself in half precision, for scale."""
    result = record.result("rehearse")
    plain: Any = result.measurements.get("half", []) if result else []
    return [_comparison(Comparison(**item)) for item in plain]


def rehearsal(record: Record) -> dict[str, Any]:
    """Both rehearsals and what the instrumented runs found; empty where the first one was not run."""
    result = record.result("rehearse")
    if result is None or result.status != "ok":
        return {}
    source, growth = record.facts("source"), result.measurements["growth"]
    return {
        "rows": compared(result),
        "judged": _judged(record),
        "fused": _fused(record),
        "half": half(record),
        "half_missing": _missing(source.get("half", {})),
        "noise_missing": _missing(source.get("fp64", {})),
        "probed": [f"{shape} ({count} tensors)" if isinstance(count, int) else f"{shape}: not run: {count}"
                   for shape, count in result.facts["probed"].items()],
        "ranges": [item | {"shapes": ", ".join(item["shapes"]), "module": item["module"] or "-"}
                   for item in result.facts["ranges"]],
        "growth": growth | {"rows": [_grown(item) for item in growth["modules"]]},
    }  # fmt: skip


def _missing(told: Mapping[str, str]) -> list[str]:
    """Per reason the shapes at which a further reference was not run."""
    reasons: dict[str, list[str]] = {}
    for shape, text in told.items():
        if text != "run":
            reasons.setdefault(text, []).append(shape)
    return [f"{', '.join(shapes)}: {text}" for text, shapes in reasons.items()]


def _judged(record: Record) -> str:
    """Which of the two rehearsals the verdict is about."""
    if record.plan.accept.rehearsal != "plan":
        return "the first"
    result = record.result("fused")
    return "the second" if result is not None and result.status == "ok" else "the first, for want of the second"


def _fused(record: Record) -> dict[str, Any]:
    result = record.result("fused")
    if result is None or result.status != "ok":
        why = result.why if result is not None else "it comes after the build"
        return {"rows": [], "why": why}
    facts = result.facts
    counts = {key: facts[key] for key in ("inside", "border", "hidden")}
    return {"rows": compared(result), "why": "", "all": sum(counts.values()), **counts}


def _grown(item: Mapping[str, Any]) -> dict[str, str]:
    errors = {key: "not finite" if item[key] is None else number(item[key]) for key in ("before", "after")}
    return {"module": item["module"], "value": item["value"], **errors}


def precision(record: Record) -> dict[str, Any]:
    facts = record.facts("lower")
    if not facts:
        return {}
    groups: dict[str, Counter[str]] = {}
    for module, types in facts["modules"].items():
        groups.setdefault(pattern_of(module), Counter()).update(types)
    rows = [
        {"module": f"`{module}`" if module else "(root)", "types": ", ".join(f"{kind} x {count}"
         for kind, count in sorted(types.items()))}
        for module, types in sorted(groups.items())
    ]  # fmt: skip
    return {"rows": rows, "overrides": facts["overrides"], "base": record.plan.precision.base, "io": facts["io"],
            "quantised": _quantised(facts, record)}  # fmt: skip


def _quantised(facts: Mapping[str, Any], record: Record) -> dict[str, Any]:
    found = facts.get("quantised")
    if not found:
        return {}
    kinds = Counter(found["nodes"].values())
    calibrated = record.facts("calibrate")
    return {
        "floats": facts["base"],
        "nodes": ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none",
        "pairs": found["pairs"],
        "weight_bytes": f"{found['weight_bytes']:,}",
        "kept": found["kept"],
        "from": ", ".join(calibrated.get("from", [])),
        "samples": calibrated.get("samples", 0),
        "method": calibrated.get("method", ""),
        "scales": [{"tensor": name, "scale": number(scale)} for name, scale in found["scales"].items()],
    }


def build(facts: Mapping[str, Any], record: Record, prefix: str) -> dict[str, Any]:
    result = record.result("build")
    if not facts or result is None or result.status != "ok":
        return {}
    engine = result.artifacts["engine"]
    return {
        "path": prefix + engine.path,
        "bytes": f"{engine.bytes:,}",
        "mib": f"{engine.bytes / 2**20:.1f}",
        "digest": engine.digest,
        "toolchain": f"{facts['module']} {facts['version']}",
        "target": facts["target"] or "none named",
        "loads": facts["loads"],
        "layers": facts["network_layers"],
        "proof": facts["types_proof"],
        "plan_proof": facts["plan_proof"],
        "fusion": [{"what": key, "count": value} for key, value in facts["fusion"].items()],
        "fused_types": facts["fused_types"],
        "findings": facts["findings"],
    }


def bench(record: Record) -> dict[str, Any]:
    result = record.result("bench")
    if result is None or result.status != "ok":
        return {}
    figures = result.measurements["milliseconds"]
    return {
        "shape": f"{result.facts['shape']} ({sizes_text(result.facts['sizes'])})",
        "rounds": result.measurements["rounds"],
        "threads": result.measurements["threads"],
        "rows": [{"name": name, "p50": f"{item['p50']:.1f}", "p99": f"{item['p99']:.1f}",
                  "min": f"{item['min']:.1f}"}
                 for name, item in figures.items()],
    }  # fmt: skip
