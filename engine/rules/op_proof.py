"""The own proof of a rule for operators or types: graphs that it names, and ONNX's backend test suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir

from engine.errors import StepError
from engine.rules import suite
from engine.rules.applied import prove_application
from engine.rules.apply import RuleRefusedError, apply_rule
from engine.rules.constants import Array
from engine.rules.equal import compare
from engine.rules.evaluate import CannotRunError, Evaluator
from engine.rules.interval import Interval
from engine.rules.language import ProofSpec, Rule
from engine.rules.match import Match
from engine.rules.verdict import Proof

IR_VERSION = 10


def prove(rule: Rule) -> Proof:
    """Every named graph must be rewritten and proven, and the suite's models give the suite's outputs.

    The rule's conditions may leave models of the suite out, but none of its operators or types altogether.
    """
    found: list[Proof] = []
    wanted = (*rule.ops, *rule.types)
    unseen = dict.fromkeys(wanted, "no case and no model of the suite has it")
    for label, model, case in [*named(rule), *_of_suite(rule)]:
        before = {node.op_type for node in model.graph} | {
            value.dtype.name.lower() for node in model.graph for value in node.outputs if value.dtype
        }
        proofs, refusal = _apply(rule, model)
        found += proofs
        failed = next((proof for proof in proofs if not proof.equal and proof.cases), None)
        if failed is not None:
            return replace(failed, why=f"{failed.why}; {label}")
        if refusal and case is None:
            return Proof(False, f"the rule does not fire on its own proof ({label}): {refusal}")
        for op in wanted:
            if op in before and unseen[op]:
                unseen[op] = refusal
        if not refusal and case is not None:
            why = _same_as_suite(model, case, rule.proof)
            if why:
                return Proof(False, f"{label}: {why}")
    for op, why in unseen.items():
        if why:
            return Proof(False, f"the proof never runs {op}: {why}")
    return _sum(found)


def named(rule: Rule) -> Iterator[tuple[str, ir.Model, None]]:
    low, high = rule.opset
    newest = min(high or onnx.defs.onnx_opset_version(), onnx.defs.onnx_opset_version())
    for number, text in enumerate(rule.proof.cases):
        protos = {opset: _of_text(text, opset) for opset in dict.fromkeys((low, newest))}
        # a type that came later leaves the lowest opset out
        valid = {opset: proto for opset, proto in protos.items() if _valid(proto)} or protos
        for opset, proto in valid.items():
            yield f"case {number}, opset {opset}", _model(proto), None


def _of_text(text: str, opset: int) -> onnx.ModelProto:
    imports = [onnx.helper.make_opsetid("", opset)]
    return onnx.helper.make_model(onnx.parser.parse_graph(text), opset_imports=imports, ir_version=IR_VERSION)


def _valid(proto: onnx.ModelProto) -> bool:
    try:
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError:
        return False
    return True


def _of_suite(rule: Rule) -> Iterator[tuple[str, ir.Model, suite.Case]]:
    for case in suite.of_ops(rule.ops) if rule.proof.suite else ():
        if rule.allows(case.opset):
            yield case.name, _model(case.model), case


def _model(proto: onnx.ModelProto) -> ir.Model:
    inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    for index, node in enumerate(inferred.graph.node):
        node.name = node.name or f"{node.op_type}_{index}"
    return ir.from_proto(inferred)


def _apply(rule: Rule, model: ir.Model) -> tuple[list[Proof], str]:
    """Proofs of all attempts, and why nothing was rewritten ("" when something was)."""
    proofs: list[Proof] = []

    def prover(match: Match, before: ir.Model, after: ir.Model, known: Mapping[ir.Value, Interval]) -> Proof:
        proofs.append(prove_application(match, before, after, known=known))
        return proofs[-1]

    try:
        apply_rule(model, rule, prover=prover)
    except RuleRefusedError as error:
        return proofs, error.failure.symptom
    except StepError as error:
        return proofs, f"{error}: {error.failure.cause}"
    return proofs, ""


def _same_as_suite(model: ir.Model, case: suite.Case, spec: ProofSpec) -> str:
    """The suite's outputs are rounded too: where they are off by noise, the rule's own tolerance counts."""
    try:
        found = Evaluator(model, spec.reference)(case.feeds())
    except CannotRunError as error:
        return f"after the rewrite it does not run: {error}"
    for (name, value), wanted in zip(found.items(), case.outputs, strict=True):
        why = difference(value, wanted, case.rtol, case.atol)
        if why and compare({name: wanted}, {name: value}, spec.equal).why:
            return f"output {name} {why}"
    return ""


def difference(found: Array, wanted: Array, rtol: float, atol: float) -> str:
    """Why ``found`` is not what the suite expects, or ""."""
    if found.shape != wanted.shape:
        return f"has shape {list(found.shape)}, not {list(wanted.shape)}"
    if found.dtype != wanted.dtype:
        return f"is {found.dtype}, not {wanted.dtype}"
    first, second = (array.astype(np.float64) for array in (found, wanted))
    if np.allclose(first, second, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    with np.errstate(invalid="ignore"):
        return f"is off by {np.nanmax(np.abs(first - second)):.3g}"


def _sum(found: list[Proof]) -> Proof:
    runtimes = tuple(sorted({name for proof in found for name in proof.runtimes}))
    skipped = tuple(dict.fromkeys(text for proof in found for text in proof.skipped))
    numbers = sum(proof.numbers for proof in found)
    why = "" if numbers else "the proof compares no number"
    worst = max((proof.max_abs for proof in found), default=0.0)
    return Proof(not why, why, sum(proof.cases for proof in found), numbers, worst, runtimes, skipped)
