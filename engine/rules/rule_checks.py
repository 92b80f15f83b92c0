"""What can be wrong with a rule besides its form: names that do not fit together, each with its place."""

from __future__ import annotations

from collections.abc import Iterator

from engine.document import Document
from engine.errors import Problem
from engine.rules.pattern import Pattern, Text
from engine.schema import nearest


def match_problems(doc: Document, match: Pattern) -> Iterator[Problem]:
    text = Text(doc, ("match",), doc.data["match"])
    used = {name for node in match.nodes for name in node.inputs}
    for name in match.inputs:
        if name not in used:
            yield text.at_word(name, f"match: input {name} is never used, so nothing can be matched to it")
    for name in match.outputs:
        if match.producer(name) is None:
            yield text.at_word(name, f"match: output {name} is a constant; it must come from an operator")
    for name in _apart(match):
        yield text.at_word(name, f"match: {name} is not connected to the last output")


def _apart(match: Pattern) -> list[str]:
    """First outputs of the nodes that share no value, directly or not, with the node of the last output."""
    anchor = match.producer(match.outputs[-1])
    if anchor is None:
        return []
    reached = set(match.nodes[anchor[0]].inputs) | set(match.nodes[anchor[0]].outputs)
    for _ in match.nodes:
        for node in match.nodes:
            values = {n for n in (*node.inputs, *node.outputs) if n and n not in match.constants}
            reached |= values if values & reached else set()
    return [node.outputs[0] for node in match.nodes if not set(node.outputs) & reached]


def reference_problems(
    doc: Document, match: Pattern, replace: Pattern | None, context: Pattern | None
) -> Iterator[Problem]:
    known = match.names() | match.captures()
    for name, conditions in doc.data.get("where", {}).items():
        if name not in known:
            yield doc.problem(
                ("where", name), f"where: match has no '{name}'", nearest(name, known), key=True
            )
        for key, argument in conditions.items():
            if (key == "attribute") != (name in match.captures()):
                what = f"where.{name}: '{key}' is not for {'attributes' if key != 'attribute' else 'values'}"
                yield doc.problem(("where", name, key), what, key=True)
            if key == "size_of" and argument["value"] not in match.inputs:
                what = f"where.{name}.size_of: match has no input '{argument['value']}'"
                yield doc.problem(
                    ("where", name, key, "value"), what, nearest(argument["value"], match.inputs)
                )
    if replace:
        yield from _replace_problems(doc, match, replace)
    if context:
        text = Text(doc, ("proof", "context"), doc.data["proof"]["context"])
        for name in context.outputs:
            if name not in match.inputs:
                yield text.at_word(
                    name, f"proof.context: match has no input {name}", nearest(name, match.inputs)
                )
        for name in sorted(context.captures()):
            yield text.at_word(
                f"@{name}", f"proof.context: write the attribute out, @{name} has no meaning here"
            )


def _replace_problems(doc: Document, match: Pattern, replace: Pattern) -> Iterator[Problem]:
    text = Text(doc, ("replace",), doc.data["replace"])
    for name in replace.inputs:
        if name not in match.inputs:
            hint = nearest(name, match.inputs) or f"match has the inputs: {', '.join(match.inputs)}"
            yield text.at_word(name, f"replace: {name} is not an input of match", hint)
    for name in sorted(replace.captures() - match.captures()):
        hint = nearest(name, match.captures()) or "capture it in match with attribute: type = @name"
        yield text.at_word(name, f"replace: @{name} is not captured in match", hint)
    if replace.outputs != match.outputs:
        what = (
            f"replace: outputs ({', '.join(replace.outputs)}) differ from match ({', '.join(match.outputs)})"
        )
        yield text.at_word(replace.outputs[0], what, "name the same outputs in the same order")


def proof_problems(doc: Document, match: Pattern, context: Pattern | None) -> Iterator[Problem]:
    proof = doc.data["proof"]
    given_inputs = proof.get("inputs", {})
    made = set(context.outputs) if context else set()
    wanted = (set(match.inputs) - made) | (set(context.inputs) if context else set())
    for name in sorted(wanted - set(given_inputs)):
        yield doc.problem(("proof", "inputs"), f"proof.inputs: nothing is said about input {name}", key=True)
    for name in sorted(set(given_inputs) - wanted):
        hint = nearest(name, wanted)
        yield doc.problem(
            ("proof", "inputs", name), f"proof.inputs: no input is named {name}", hint, key=True
        )
    captured, given = match.captures(), set(proof.get("attributes", {}))
    for name in sorted(captured - given):
        what = f"proof.attributes: no values to try for @{name}"
        yield doc.problem(("proof", "attributes"), what, key=True)
    for name in sorted(given - captured):
        what = f"proof.attributes: match captures no @{name}"
        yield doc.problem(("proof", "attributes", name), what, nearest(name, captured), key=True)
    for name, spec in given_inputs.items():
        for index, size in enumerate(spec["shape"]):
            if isinstance(size, str) and size not in proof.get("axes", {}):
                what = f"proof.inputs.{name}.shape: axis '{size}' has no sizes"
                hint = nearest(size, proof.get("axes", {})) or f"add it: axes: {{{size}: [1, 3]}}"
                yield doc.problem(("proof", "inputs", name, "shape", index), what, hint)
