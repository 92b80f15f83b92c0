"""One round at one file: rules at the nodes that the toolchain refuses, and what is left of its refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from engine.graph import retype
from engine.graph.integer_types import WIDER
from engine.refusals import Answer, Refusal
from engine.rewriting.candidates import Candidates
from engine.rewriting.result import Remaining, Tried, Used
from engine.rewriting.subject import Subject
from engine.rules.apply import Applications, apply_at
from engine.rules.language import Rule, Tolerance

MOST_REASONS = 20  # nodes for which one rule says why it does not fit
_NO_TYPE = "Failed to convert ONNX date type"  # the parser's words for an input of a type that it lacks
# ONNX types of graph inputs that no TensorRT has; it names neither input nor type.
_LACKING = frozenset(
    (ir.DataType.INT16, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64, ir.DataType.COMPLEX64,
     ir.DataType.COMPLEX128, ir.DataType.STRING)
)  # fmt: skip


class Repair:
    """Everything done to one file so far."""

    def __init__(self, subject: Subject, candidates: Candidates) -> None:
        self.subject, self.candidates = subject, candidates
        self.used: dict[str, Used] = {}
        self.order: list[str] = []  # of the applications, one entry where a rule follows itself
        self.tolerance = Tolerance()  # sum of those of all applications
        self.reference = False  # a rule among them is judged by the reference evaluator alone
        self.corners = True  # all of them are meant for every number
        self.unwidened: tuple[Remaining, ...] | None = None  # what remained before
        self.notes_before: list[str] = []
        self._widened_after = -1  # applications before the integer types were last widened
        self.why_not: dict[tuple[str, str], str] = {}  # node, rule -> why it does not fit

    def round(self, answer: Answer) -> bool:
        """Apply what fits the refused nodes; whether anything was changed."""
        ops = self.subject.node_names()
        at: dict[str, list[str]] = {}
        rules: dict[str, Rule] = {}
        for node in self._refused_nodes(answer, ops):
            for rule in self.candidates.for_op(ops[node]):
                rules[rule.name] = rule
                at.setdefault(rule.name, []).append(node)
        changed = False
        for name, nodes in at.items():
            left = [node for node in nodes if node in ops]
            if left and self._apply(rules[name], left):
                changed = True
                ops = self.subject.node_names()
            changed |= self._ask_why(rules[name], [node for node in left if node in ops])
        self.subject.changed |= changed
        return changed

    def floats(self) -> list[str]:
        """What TensorRT does to float64 without a word."""
        kinds = {value.dtype for node in self.subject.model.graph.all_nodes() for value in node.outputs}
        return ["TensorRT computes float64 in float32"] if ir.DataType.DOUBLE in kinds else []

    def double_ends(self) -> str:
        """Inputs and outputs of float64, which TensorRT takes and gives as float32."""
        graph = self.subject.model.graph
        found = [
            f"{what} '{value.name}' is float64"
            for what, values in (("input", graph.inputs), ("output", graph.outputs))
            for value in values
            if value.dtype == ir.DataType.DOUBLE
        ]
        return ", ".join(found)

    def widen(self, any_io_types: bool, answer: Answer) -> bool:
        """Compute integer types that TensorRT lacks in wider ones; whether that changed the graph.

        It takes uint8 at the boundary before a cast, and none of the others; they stay unless ``any_io_types``.
        """
        applied = sum(used.times for used in self.used.values())
        if applied == self._widened_after:
            return False
        self._widened_after, model = applied, self.subject.model
        left, notes = self.remaining(answer), list(self.subject.notes)
        ends = {value.dtype for value in (*model.graph.inputs, *model.graph.outputs)}
        kept = set() if any_io_types else {kind for kind in _LACKING if kind in ends}
        types = {narrow: wide for narrow, wide in WIDER.items() if narrow not in kept}
        before = Counter(node.op_type for node in model.graph.all_nodes())
        done = retype.widen(model, _LACKING if any_io_types else (), types)
        after = Counter(node.op_type for node in model.graph.all_nodes())
        if done is None or (before == after and not done.inputs and not done.outputs):
            return False
        for what, changes in (("input", done.inputs), ("output", done.outputs)):
            self.subject.notes += [
                f"{what} '{name}' is {now} now; it was {was}" for name, (was, now) in changes.items()
            ]
        self.subject.changed = True
        self.unwidened, self.notes_before = left, notes
        return True

    def _refused_nodes(self, answer: Answer, ops: Mapping[str, str]) -> Iterator[str]:
        """By name; where TensorRT names an operator only, its nodes; where it names nothing, all that have a rule.

        A node in a branch is followed by the If that holds it.
        """
        around = self.subject.around()
        for refusal in self._told(answer):
            if refusal.node in ops:
                node: str | None = refusal.node
                while node is not None:
                    yield node
                    node = around.get(node)
            elif refusal.op:
                yield from (node for node, op in ops.items() if op == refusal.op)
            elif _NO_TYPE not in refusal.raw:
                yield from (node for node, op in ops.items() if self.candidates.for_op(op))

    def _told(self, answer: Answer) -> tuple[Refusal, ...]:
        return () if answer.lacks_shapes else answer.refusals

    def _apply(self, rule: Rule, nodes: Sequence[str]) -> bool:
        ranks = self.subject.ranks()
        done, nearest = apply_at(
            self.subject.model, rule, nodes, self.candidates.prover(rule), self.candidates.axes
        )
        for item in done.refused:
            self.why_not[item.node, rule.name] = item.why
        if len(nodes) == 1 and not done.accepted and not done.refused:
            self.why_not[nodes[0], rule.name] = nearest
        if done.accepted:
            self._note(rule, done)
            self.subject.note_ranks(ranks)
        return bool(done.accepted)

    def _ask_why(self, rule: Rule, nodes: Sequence[str]) -> bool:
        """Why the rule does not fit each node by itself; it was just tried at all of them together."""
        unknown = [one for one in nodes if (one, rule.name) not in self.why_not]
        return any([self._apply(rule, [node]) for node in unknown[:MOST_REASONS]])

    def _note(self, rule: Rule, done: Applications) -> None:
        if self.order[-1:] != [rule.name]:
            self.order.append(rule.name)
        proofs = [item.proof for item in done.accepted if item.proof is not None]
        before = self.used.get(rule.name) or Used(rule.name, 0, done.nodes_before, 0, 0, 0.0, ())
        self.used[rule.name] = replace(
            before,
            times=before.times + len(done.accepted),
            nodes_after=done.nodes_after,
            cases=before.cases + sum(proof.cases for proof in proofs),
            max_abs=max([before.max_abs, *(proof.max_abs for proof in proofs)]),
            at=(*before.at, *(item.node for item in done.accepted)),
        )
        self.reference |= rule.proof.reference
        self.corners &= rule.proof.corners()
        one, count = rule.proof.equal, len(done.accepted)
        self.tolerance = Tolerance(
            self.tolerance.max_abs + one.max_abs * count,
            self.tolerance.max_rel + one.max_rel * count,
            self.tolerance.max_eps + one.max_eps * count,
        )

    def remaining(self, answer: Answer) -> tuple[Remaining, ...]:
        """What the last answer still says, and for each node what was tried."""
        ops = self.subject.node_names()
        found: dict[Remaining, None] = {}
        for refusal in self._told(answer):
            if _NO_TYPE in refusal.raw and not refusal.op:
                found |= dict.fromkeys(_inputs_of_no_type(self.subject.model, refusal))
                continue
            node = refusal.node if refusal.node in ops else None
            op = ops[node] if node else refusal.op
            tried = self._tried(node, op) if op else ()
            found[Remaining(refusal.node, op, refusal.text, refusal.raw, tried)] = None
        return tuple(found)

    def _tried(self, node: str | None, op: str) -> tuple[Tried, ...]:
        tried = [Tried(rule.name, self.why_not.get((node or "", rule.name)) or "it fits no node")
                 for rule in self.candidates.for_op(op)]  # fmt: skip
        return (*tried, *(Tried(name, why) for name, why in self.candidates.left_out(op)))


def _inputs_of_no_type(model: ir.Model, refusal: Refusal) -> Iterator[Remaining]:
    lacking = [value for value in model.graph.inputs if value.dtype in _LACKING]
    for value in lacking:
        kind = value.dtype.name.lower() if value.dtype else ""
        yield Remaining(None, None, f"TensorRT has no type {kind}: input '{value.name}'", refusal.raw)
    if not lacking:
        yield Remaining(None, None, refusal.text, refusal.raw)
