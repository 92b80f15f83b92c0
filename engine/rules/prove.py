"""Proof by running: what a rule matches and what it puts there, on the same inputs, side by side.

``prove_rule`` uses the rule's own ``proof``; ``prove_application`` the matched part of a real graph.
"""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnx_ir as ir

from engine.errors import RecipeError, StepError
from engine.rules import op_proof, samples
from engine.rules.applied import application_prover, prove_application
from engine.rules.apply import RuleRefusedError, apply_rule
from engine.rules.evaluate import Evaluator
from engine.rules.forms import Form, forms
from engine.rules.language import Rule
from engine.rules.tally import Tally
from engine.rules.verdict import Proof

__all__ = ["application_prover", "prove_application", "prove_rule"]


def prove_rule(rule: Rule) -> Proof:
    """Run the rule's own proof: all its sizes, attributes, types and values.

    Combinations that ONNX does not allow or that the rule refuses are left out, but no size, attribute,
    type or opset may be left out altogether.
    """
    if rule.ops or rule.types:
        return op_proof.prove(rule)
    tally = Tally(rule.proof.equal)
    untried: dict[str, str] = {}
    tried: set[str] = set()
    for number, form in enumerate(forms(rule)):
        before, after = form.build(rule), form.build(rule)
        invalid = _invalid(before)
        if not invalid:
            try:
                apply_rule(after, rule, matches=1, prover=None)
            except RuleRefusedError as error:
                invalid = error.failure.symptom
            except (StepError, RecipeError) as error:
                return Proof(
                    False, f"the rule does not fire on its own proof ({form.label()}): {_words(error)}"
                )
        if invalid:
            untried |= dict.fromkeys(form.options(), invalid)
            continue
        tried |= set(form.options())
        why = _try_values(tally, rule, number, form, before, after)
        if why:
            return Proof(False, why)
    for option, invalid in untried.items():
        if option not in tried:
            return Proof(False, f"the proof never runs with {option}: {invalid}")
    return tally.proof("the proof compares no number")


def _try_values(tally: Tally, rule: Rule, number: int, form: Form, before: ir.Model, after: ir.Model) -> str:
    """Every combination of kinds of values for one structure; why the proof is no good, or nothing."""
    one, two = (Evaluator(model, rule.proof.reference) for model in (before, after))
    fed = {name: spec for name, spec in form.inputs.items() if not samples.is_constant(spec[1])}
    for trial, kinds in enumerate(itertools.product(*(form.kinds(rule, name) for name in fed))):
        rng = np.random.default_rng([number, trial])
        feeds = {
            form.inner(rule, name): samples.make(kind, np.dtype(spec[0]), form.shape(rule, name), rng)
            for (name, spec), kind in zip(fed.items(), kinds, strict=True)
        }
        shown = ", ".join(f"{name} = {samples.show(kind)}" for name, kind in zip(fed, kinds, strict=True))
        if not tally.add(one, two, feeds, f"{shown}; {form.label()}"):
            return f"the proof's own inputs do not run ({shown}; {form.label()})"
    return ""


def _words(error: StepError | RecipeError) -> str:
    return f"{error}: {error.failure.cause}" if isinstance(error, StepError) else str(error)


def _invalid(model: ir.Model) -> str:
    """Why ONNX itself does not allow this combination (a type that an opset lacks), or nothing."""
    try:
        onnx.shape_inference.infer_shapes(ir.to_proto(model), check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        return str(error).strip().splitlines()[0]
    return ""
