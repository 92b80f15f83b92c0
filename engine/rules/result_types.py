"""Whether a rule's replacement has the types and ranks of what it replaces, by ONNX's inference on its own proof."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping

import onnx
import onnx_ir as ir

from engine.document import Document
from engine.errors import Problem, StepError
from engine.rules.apply import apply_rule
from engine.rules.constants import dims_of, element_type
from engine.rules.forms import forms
from engine.rules.interval import Interval
from engine.rules.language import Rule
from engine.rules.match import Match
from engine.rules.pattern import Text
from engine.rules.verdict import Proof

MOST = 64  # structures of one proof that are looked at; types and opsets come first in them all


def problems(doc: Document, rule: Rule) -> Iterator[Problem]:
    """The first fault of each output of a rule with two texts; what they compute is for the proof to say."""
    if rule.replace is None:
        return
    text = Text(doc, ("replace",), doc.data["replace"])
    found: dict[str, Problem] = {}
    try:
        structures = list(_structures(rule))
    except (ValueError, TypeError) as error:  # an attribute that is no number, a type that no tensor has
        yield doc.problem(("proof",), f"proof: what it names makes no graph: {str(error).splitlines()[0]}", key=True)
        return
    for model, label in structures:
        faults: dict[str, str] = {}

        def look(
            match: Match, before: ir.Model, after: ir.Model, known: Mapping[ir.Value, Interval],
            faults: dict[str, str] = faults,
        ) -> Proof:  # fmt: skip
            faults |= _faults(match, before, after)
            return Proof(True, "")

        with contextlib.suppress(StepError):  # its proof says why it does not fire
            apply_rule(model, rule, prover=look)
        for name, why in faults.items():
            nth = 1 if name in rule.match.outputs else 0  # an output stands in the signature first
            found.setdefault(name, text.at_word(name, f"replace: {why} ({label})", nth=nth))
    yield from found.values()


def _structures(rule: Rule) -> Iterator[tuple[ir.Model, str]]:
    """One model of the proof for each combination of types, opset and attributes that ONNX allows."""
    seen: set[str] = set()
    for form in forms(rule):
        types = {name: spec[0] for name, spec in form.inputs.items()}
        key = repr((types, form.opset, form.attributes))
        if key in seen:
            continue
        model = form.build(rule)
        if _invalid(model):
            continue
        seen.add(key)
        label = ", ".join(f"{name} {kind}" for name, kind in types.items())
        yield model, label
        if len(seen) == MOST:
            return


def _faults(match: Match, before: ir.Model, after: ir.Model) -> dict[str, str]:
    """By the word of the text that is to blame: an output, or an operator that does not take its inputs."""
    invalid = _invalid(after)
    if invalid:
        told = re.search(r"\(op_type:(\w+).*?\): *(.*)", invalid)
        return {told[1] if told else "": f"not valid ONNX: {told[2] if told else invalid}"}
    found = {}
    for name, new in zip(match.rule.match.outputs, after.graph.outputs, strict=True):
        old = match.value(name)
        was, now = element_type(old), element_type(new)
        rank, new_rank = dims_of(old), dims_of(new)
        if was is not None and now is not None and was != now:
            found[name] = f"{name} is {now.numpy()}; match has {was.numpy()}"
        elif rank is not None and new_rank is not None and len(rank) != len(new_rank):
            found[name] = f"{name} has {len(new_rank)} axes; match has {len(rank)}"
    return found


def _invalid(model: ir.Model) -> str:
    try:
        onnx.shape_inference.infer_shapes(ir.to_proto(model), check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        return str(error).strip().splitlines()[-1].strip()
    return ""
