"""TensorRT parses and builds in a worker process; then the types that it was given are proven."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import compatibility, fused_plan, modes_proof, toolchain, types_proof
from engine.errors import RecipeError, StepError
from engine.fused_plan import FusedLayer
from engine.plain import to_plain
from engine.plan import Plan, concrete
from engine.process import Limits, Outcome
from engine.rules import library
from engine.steps.context import Context, Done
from engine.values import Issue

_RANGE = ("min", "opt", "max")
_PHASES = {"load": 0, "parse": 1, "profile": 2, "build": 3, "write": 4}


def run(context: Context) -> Done:
    """Write ``engine/NAME[-TARGET].engine``. Raises StepError with TensorRT's own words when it refuses or dies."""
    plan = context.plan
    try:
        tool = toolchain.resolve(plan.build.toolchain)
    except RecipeError as error:
        return Done(skipped=f"{error.problems[0].what} ({error.problems[0].hint})")
    folder = context.folder("engine")
    engine = folder / f"{plan.name}{'-' + plan.build.target if plan.build.target else ''}.engine"
    verbose = context.out / "logs" / "build-verbose.log"
    request = _request(context, engine, verbose)
    request_file = folder / "request.json"
    by_hand = {"op": "build", "module": tool.module, "engine": "by_hand.engine", "verbose_log": "by_hand.log",
               "onnx": context.graph.relative_to(context.out).as_posix()}  # fmt: skip
    request_file.write_text(json.dumps(request | by_hand) + "\n", encoding="utf-8")
    outcome = toolchain.build(
        tool,
        request,
        log=context.out / "logs" / "build.log",
        limits=Limits(plan.build.time_limit_s, _bytes(plan.build.memory_limit_mib)),
        on_message=lambda message: _show(context, message),
    )
    result = _answer(outcome, verbose, context.earlier["lower"].facts["ops"])
    asked = json.loads(context.artifact("lower", "types").read_text(encoding="utf-8"))
    proof = _proven(asked, result)
    modes = _same_modes(asked, result)
    read = fused_plan.read_plan(verbose)
    layers = read.layers
    _quantised(asked, layers)
    kept = folder / "plan.json"
    kept.write_text(json.dumps(to_plain(read), indent=1) + "\n", encoding="utf-8")
    facts = {
        "module": tool.module,
        "version": result["version"],
        "target": plan.build.target,
        "engine_bytes": result["engine"]["bytes"],
        "network_layers": result["num_layers"],
        "types_proof": proof.text,
        "types_checked": proof.checked,
        "modes_proof": modes.text,
        **_plan_facts(layers, asked),
        "loads": compatibility.loads(tool.module, result["version"], plan.build.target),
        "findings": [f"{item['severity'].lower()}: {item['text']}" for item in result["log"]
                     if item["severity"] != "INFO"],
    }  # fmt: skip
    return Done(
        facts=facts,
        measurements={"seconds": result["seconds"]},
        artifacts={"engine": engine, "plan": kept, "request": request_file},
        issues=tuple(_issues(result) + _unseen(facts["plan_proof"], asked, layers)),
        peak_bytes=outcome.peak_bytes,
    )


def _plan_facts(layers: Sequence[FusedLayer], asked: Any) -> dict[str, Any]:
    """Counts out of the fused plan; empty where this TensorRT printed none."""
    if not layers:
        return {"fusion": {}, "fused_types": {}, "plan_proof": {}}
    proofs = types_proof.prove_plan(asked, layers)
    written: Counter[str] = Counter()
    for layer in layers:
        written.update({tensor.dtype for tensor in layer.outputs})
    summary = fused_plan.summary(layers)
    return {
        "fusion": {"layers": summary["layers"], "attention": summary["attention"]},
        "fused_types": dict(sorted(written.items())),
        "plan_proof": {name: item.text for name, item in proofs.items()},
        "plan_shows": {name: item.shows for name, item in proofs.items()},
    }


def _bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * 2**20


def _request(context: Context, engine: Path, verbose: Path) -> dict[str, Any]:
    plan = context.plan
    profile = {
        name: {which: list(concrete(item.shape, _sizes(plan, which))) for which in _RANGE}
        for name, item in plan.inputs.items()
        if any(isinstance(size, str) and plan.axes[size].min < plan.axes[size].max for size in item.shape)
    }
    return {
        "onnx": str(context.graph),
        "engine": str(engine),
        "profiles": [profile] if profile else [],
        "target": plan.build.target,
        "workspace": _bytes(plan.build.workspace_mib),
        "verbose_log": str(verbose),
        "flags": [],
    }


def _sizes(plan: Plan, which: str) -> dict[str, int]:
    return {name: getattr(axis, which) for name, axis in plan.axes.items()}


def _show(context: Context, message: Mapping[str, Any]) -> None:
    if message["kind"] == "progress":
        context.progress(f"{message['phase']}", message["step"], message["total"])
    elif message["kind"] == "stage":
        context.progress(f"TensorRT: {message['stage']}", _PHASES.get(message["stage"], 0), len(_PHASES))


def _answer(outcome: Outcome, verbose: Path, ops: Mapping[str, int]) -> dict[str, Any]:
    if outcome.kind != "ok":
        words = "\n".join((*toolchain.last_words(verbose), *outcome.log_tail[-5:]))
        raise StepError(
            f"the TensorRT worker {outcome.describe()}",
            klass="tooling",
            cause="TensorRT crashed, hung or ran out of its limits on this graph",
            fix="the last log lines say where it stood; if it hit a limit, raise it under build",
            where="build",
            evidence=words,
        )
    result: dict[str, Any] = outcome.result
    if not result["ok"]:
        first = result["errors"][0] if result["errors"] else {"text": "no reason given"}
        more = f" (and {len(result['errors']) - 1} more)" if len(result["errors"]) > 1 else ""
        raise StepError(
            f"{first['text'].strip()}{more} [{result['stage']}]",
            klass="op" if first.get("op") or first.get("node") or result["stage"] == "parse" else "tooling",
            cause=_suspects(first, ops) or str(first.get("code", "")),
            fix=_advice(first["text"], result["stage"], first.get("op") or ""),
            where="build",
            evidence="\n".join(json.dumps(error) for error in result["errors"][:5]),
        )
    return result


def _suspects(error: Mapping[str, Any], ops: Mapping[str, int]) -> str:
    """Where TensorRT names no node: what in the graph its builder knows least well."""
    held = ", ".join(f"{op} ({ops[op]})" for op in ("Loop", "If", "Scan") if op in ops)
    if not held or error.get("node"):
        return ""
    return f"TensorRT names no node; the graph has control flow: {held}"


def _advice(text: str, stage: str, op: str) -> str:
    rules = library.for_op(op) if op else ()
    if rules:
        return f"rules that start from {op}: {', '.join(rules)} (rewrites)"
    if re.search(r"\b(UInt8|U?Int16|UInt32)\b", text):
        return f"compute such types in wider ones: {', '.join(library.for_types())} (rewrites)"
    if re.search(r"\b(Half|Float|BFloat16)\b", text):
        return "give the node and its neighbours one type (precision.overrides)"
    if stage in ("parse", "build"):
        return "replace the op by a rule (rewrites), or change the model"
    return ""


def _proven(asked: Any, result: Mapping[str, Any]) -> types_proof.TypesProof:
    proof = types_proof.prove(asked, result["network"])
    if proof.wrong:
        node, tensor, wanted, found = proof.wrong[0]
        raise StepError(
            f"asked {wanted} for node {node}, TensorRT was given {found} (tensor {tensor};"
            f" {len(proof.wrong)} tensors in all)",
            klass="numeric",
            cause="the graph that was parsed is not the graph that was lowered",
            where="precision",
            evidence="\n".join(" ".join(item) for item in proof.wrong[:5]),
        )
    if proof.checked == 0 and asked:
        raise StepError(
            "no float tensor of the lowered graph was found in the parsed network: its precision is unproven",
            klass="numeric",
            where="precision",
        )
    return proof


def _quantised(asked: Any, layers: Sequence[FusedLayer]) -> None:
    """What was quantised must run so. TensorRT may restore the floats and compute in these without a word."""
    for name, proof in types_proof.prove_plan(asked, layers).items() if layers else ():
        if proof.wide:
            raise StepError(
                f"{len(proof.wide)} of {proof.nodes} {proof.asked} nodes do not run in {proof.asked} ({name})",
                klass="numeric",
                cause="TensorRT restores their operands and computes in the float type",
                fix="give them a float type (precision.overrides): the pairs cost time and accuracy for nothing",
                where="precision",
                evidence="\n".join(proof.wide),
            )


def _same_modes(asked: Any, result: Mapping[str, Any]) -> modes_proof.ModesProof:
    proof = modes_proof.prove(asked, result["network"])
    if proof.wrong:
        first = proof.wrong[0]
        raise StepError(
            f"node {first.node} ({first.op}) asks {first.name} {first.asked}, TensorRT took it for {first.found}"
            f" ({len(proof.wrong)} in all)",
            klass="numeric",
            cause=f"the importer of {result['module']} {result['version']} reads the attribute otherwise",
            fix=_advice("", "parse", first.op),
            where="build",
            evidence="\n".join(
                f"{item.node} {item.name}: {item.asked}, {item.found}" for item in proof.wrong[:5]
            ),
        )
    return proof


def _unseen(texts: Mapping[str, str], asked: Any, layers: Sequence[FusedLayer]) -> list[Issue]:
    """Types that the fused plan does not show. No fault by itself: all may be fused into one kernel, or folded away.

    Of a quantised type every node must be shown; where no plan was printed, none is.
    """
    proofs = types_proof.prove_plan(asked, layers)
    if not layers:
        return [
            Issue("build", "numeric", f"whether {proof.nodes} nodes run in {proof.asked} is not known ({name})",
                  "this TensorRT printed no fused plan", "look at the engine with its inspector on a GPU", "", "open")
            for name, proof in proofs.items() if types_proof.is_quantised(proof.asked)
        ]  # fmt: skip
    quantised = [
        Issue("build", "numeric", f"the fused plan does not show {proof.asked} for every node of {name}",
              "TensorRT folded them, or keeps them in a region that its plan does not open", "", texts[name], "open")
        for name, proof in proofs.items() if types_proof.is_quantised(proof.asked) and not proof.shows
    ]  # fmt: skip
    return quantised + [
        Issue(
            "build",
            "numeric",
            f"the fused plan does not show the type of {name}",
            cause="its nodes are inside fused layers whose inputs and outputs have other types",
            evidence=texts[name],
        )
        for name, proof in proofs.items()
        if not types_proof.is_quantised(proof.asked) and proof.shown == 0 and proof.hidden > 0
    ]


def _issues(result: Mapping[str, Any]) -> list[Issue]:
    """One issue for each text, however often TensorRT says it."""
    texts = Counter(
        item["text"].strip()
        for item in result["log"]
        if item["severity"] in ("ERROR", "INTERNAL_ERROR")
        or (item["severity"] == "WARNING" and "Int64 binding" not in item["text"])
    )
    return [
        Issue("build", "numeric" if "overflow" in text.lower() else "tooling", text,
              evidence=f"said {count} times" if count > 1 else "")
        for text, count in texts.items()
    ]  # fmt: skip
