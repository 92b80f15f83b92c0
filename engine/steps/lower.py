"""Write the precision into the graph: base type and overrides, strongly typed."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import Failure, StepError
from engine.steps.context import Context, Done

if TYPE_CHECKING:
    import onnx_ir as ir

    from engine.precision.report import LoweringReport
    from engine.quantize.insert import Quantised

WEIGHTS = "lower.weights"
TYPES = "types.json"


def run(context: Context) -> Done:
    """Write ``onnx/lower.onnx``, its weights, and ``types.json``: what TensorRT must find in the parsed network."""
    from engine.graph import files
    from engine.precision import lower, selectors, verify
    from engine.quantize import insert
    from engine.quantize import verify as quantised_verify

    precision = context.plan.precision
    context.progress("selecting nodes", 0, 3)
    model = files.load(context.graph)
    try:
        assignment = selectors.resolve(model, precision.base, precision.overrides, precision.floats)
    except StepError as error:
        raise StepError(_with_history(error.failure, context)) from None
    context.progress("writing types", 1, 3)
    assignment, quantised = insert.quantise(model, assignment, context.ranges)
    report = lower.lower(model, assignment, io=precision.io)
    quantised_verify.require(model, quantised)
    target = context.folder("onnx") / "lower.onnx"
    files.save(model, target, WEIGHTS)
    context.progress("checking the lowered file", 2, 3)
    untried = verify.check_file(target)
    types = target.with_name(TYPES)
    types.write_text(json.dumps(typed_nodes(model, report, quantised), indent=0) + "\n", encoding="utf-8")
    artifacts: dict[str, Path] = {"graph": target, "types": types}
    if (target.parent / WEIGHTS).exists():
        artifacts["weights"] = target.parent / WEIGHTS
    facts = _facts(model, report, quantised, untried)
    issues = (*report.issues(), *quantised.issues())
    return Done(facts=facts, artifacts=artifacts, issues=issues)


def _with_history(failure: Failure, context: Context) -> Failure:
    """An override by node name that matches nothing is told which step took the node out."""
    from engine.graph import files
    from engine.precision import replaced

    found = re.match(r"precision\.overrides\[(\d+)\]", failure.where)
    wanted = context.plan.precision.overrides[int(found[1])].node if found else None
    if wanted is None or " no node is called " not in failure.symptom:
        return failure
    graphs = [(step, files.load(context.artifact(step, "graph")))
              for step, result in context.earlier.items() if "graph" in result.artifacts]  # fmt: skip
    history = [(step, before, after) for (_, before), (step, after) in pairwise(graphs)]
    became = replaced.explain(wanted, history)
    return replace(failure, cause=became) if became else failure


def _facts(model: ir.Model, report: LoweringReport, quantised: Quantised, untried: str) -> dict[str, Any]:
    from engine.graph import inventory
    from engine.graph.provenance import MODULE

    kinds = quantised.types(report.node_types)
    modules: dict[str, Counter[str]] = {}
    for node in model.graph.all_nodes():
        kind = kinds.get(node.name or "")
        if kind is not None:
            modules.setdefault(node.metadata_props.get(MODULE, ""), Counter())[kind] += 1
    counts = Counter(kinds.values())
    return {
        "base": report.base,
        "io": report.io,
        "node_types": dict(sorted(counts.items())),
        "casts": len(report.casts),
        "kept_wide": [f"{item.node} ({item.op}): {item.reason}" for item in report.kept_wide],
        "weight_bytes": report.weight_bytes + sum(quantised.weights.values()),
        "overrides": [
            {"selector": item.selector, "type": item.type, "because": item.because, "count": len(item.nodes),
             "nodes": sorted(item.nodes)}
            for item in report.overrides
        ],
        "others": _others(report, kinds),
        "names": hashlib.sha256("\n".join(sorted(kinds)).encode()).hexdigest(),
        "ops": inventory.take(model)["ops"],
        "modules": {module: dict(sorted(kinds.items())) for module, kinds in sorted(modules.items())},
        "not_tried": untried,
        **({"quantised": quantised.facts()} if quantised.nodes or quantised.kept else {}),
    }  # fmt: skip


def _others(report: LoweringReport, kinds: Mapping[str, str]) -> dict[str, list[str]]:
    """By type, the nodes that got another one than their override or the base asks."""
    asked = {name: item.type for item in report.overrides for name in item.nodes}
    found: dict[str, list[str]] = {}
    for name, kind in sorted(kinds.items()):
        if kind != asked.get(name, report.base):
            found.setdefault(kind, []).append(name)
    return found


def typed_nodes(model: ir.Model, report: LoweringReport, quantised: Quantised) -> list[dict[str, Any]]:
    """Every float node of the main graph: its type, the tensors it makes with their types, and its mode.

    A quantised node names the DQ nodes in front of it (``behind``); Q and DQ have the type ``pair``.
    """
    from engine.graph import modes
    from engine.precision.formats import PRECISIONS, QUANTISED

    names = {**PRECISIONS, **{dtype: name for name, dtype in QUANTISED.items()}}
    kinds = {**quantised.types(report.node_types), **dict.fromkeys(quantised.added, "pair")}
    taken = {name: index for index, item in enumerate(report.overrides) for name in item.nodes}
    found: list[dict[str, Any]] = []
    for node in model.graph:
        kind = kinds.get(node.name or "")
        known = names if kind == "pair" else PRECISIONS
        outputs = [
            {"name": value.name, "type": known[value.dtype]}
            for value in node.outputs
            if value.name and value.dtype is not None and value.dtype in known
        ]
        if kind is not None and outputs:
            found.append({"node": node.name, "op": node.op_type, "type": kind, "outputs": outputs,
                          "override": taken.get(node.name or "", -1)})  # fmt: skip
            if behind := quantised.readers.get(node.name or ""):
                found[-1]["behind"] = list(behind)
            mode = modes.expected(node)
            if mode is not None:
                found[-1]["mode"] = mode
    return found
