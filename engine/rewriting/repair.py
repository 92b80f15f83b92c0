"""One round at one file: rules at the nodes that the toolchain refuses, and what is left of its refusals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from engine.errors import RecipeError, StepError
from engine.refusals import Answer, Refusal
from engine.rewriting.candidates import Candidates
from engine.rewriting.result import Remaining, Tried, Used
from engine.rewriting.subject import Subject
from engine.rules.applications import Applications
from engine.rules.apply import apply_at
from engine.rules.by_type import apply_types
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
        self.widening = set[str]()  # the rules among them that changed types
        self.branching = set[str]()  # those that took one branch of an If
        self.unwidened: tuple[Remaining, ...] | None = None  # what remained before
        self.notes_before: list[str] = []
        self._widened_after = -1  # applications before the integer types were last widened
        self.fault: StepError | RecipeError | None = None  # a rule that could not go on
        self.last: list[str] = []  # what each round applied, and where
        self.why_not: dict[tuple[str, str], str] = {}  # node, rule -> why it does not fit

    def round(self, answer: Answer) -> bool:
        """Apply what fits the refused nodes; whether anything was changed."""
        ops = self.subject.node_names()
        before = {name: used.times for name, used in self.used.items()}
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
        fresh = {name: used.at[before.get(name, 0) :] for name, used in self.used.items()}
        self.last += [f"{name} at {', '.join(nodes[:3])}" for name, nodes in fresh.items() if nodes]
        return changed

    def endless(self, rounds: int) -> str:
        """What to say of a file that is still refused after the last round, which changed it like all before."""
        said = f"; the last applied {'; then '.join(self.last[-4:])}" if self.last else ""
        return f"stopped after {rounds} rounds{said}"

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
        left, notes, ends = self.remaining(answer), list(self.subject.notes), self._ends()
        kept = set() if any_io_types else {kind for _, _, kind in ends if kind in _LACKING}
        changed = False
        for rule in self.candidates.for_types():
            done, _ = apply_types(
                model, rule, self.candidates.prover(rule), _LACKING if any_io_types else (), kept
            )
            if done.accepted:
                self._note(rule, done)
                self.widening.add(rule.name)
                changed = True
        if not changed:
            return False
        self._widened_after = sum(used.times for used in self.used.values())
        for (what, name, was), (_, _, now) in zip(ends, self._ends(), strict=True):
            if was != now and was and now:
                self.subject.notes.append(
                    f"{what} '{name}' is {now.name.lower()} now; it was {was.name.lower()}"
                )
        self.subject.changed = True
        self.unwidened, self.notes_before = left, notes
        return True

    def _ends(self) -> list[tuple[str, str, ir.DataType | None]]:
        graph = self.subject.model.graph
        sides = (("input", graph.inputs), ("output", graph.outputs))
        return [(what, value.name or "", value.dtype) for what, values in sides for value in values]

    def take_back(self) -> bool:
        """Forget a widening that was all that was done, and did not help; the model must not be used then."""
        if self.unwidened is None or set(self.used) - self.widening:
            return False
        self.subject.changed, self.subject.notes, self.used = False, self.notes_before, {}
        return True

    def _refused_nodes(self, answer: Answer, ops: Mapping[str, str]) -> Iterator[str]:
        """By name; where TensorRT names an operator only, its nodes; where it names nothing, all that have a rule.

        A node in a branch is followed by the If that holds it, one of uint8 by those that its tensors come from and go
        to: TensorRT names the node that makes a tensor of a type that it lacks, and the cure may be at the next.
        """
        around = self.subject.around()
        for refusal in self._told(answer):
            if refusal.node in ops:
                node: str | None = refusal.node
                while node is not None:
                    yield node
                    node = around.get(node)
                yield from self.subject.along(refusal.node or "")
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
        if rule.branch:
            self.branching.add(rule.name)
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
            tried = self._tried(node, op, ops) if op else ()
            others = len(self.candidates.for_op(op)) if op and not tried else 0
            found[Remaining(refusal.node, op, refusal.text, refusal.raw, tried, others)] = None
        return tuple(found)

    def _tried(self, node: str | None, op: str, ops: Mapping[str, str]) -> tuple[Tried, ...]:
        """Rules that nearly fit, each with what is in its way, and those that were not tried."""
        tried = [Tried(rule.name, why) for rule in self.candidates.for_op(op)
                 if (why := self._why(node, op, rule.name, ops))]  # fmt: skip
        return (*tried, *(Tried(name, why) for name, why in self.candidates.left_out(op)))

    def _why(self, node: str | None, op: str, rule: str, ops: Mapping[str, str]) -> str:
        """At the node; where TensorRT names none, or the rule was not asked about it, at another of its operator."""
        if (node or "", rule) in self.why_not:
            return self.why_not[node or "", rule]
        return next((why for (other, name), why in self.why_not.items() if name == rule and ops.get(other) == op), "")


def _inputs_of_no_type(model: ir.Model, refusal: Refusal) -> Iterator[Remaining]:
    lacking = [value for value in model.graph.inputs if value.dtype in _LACKING]
    for value in lacking:
        kind = value.dtype.name.lower() if value.dtype else ""
        yield Remaining(None, None, f"TensorRT has no type {kind}: input '{value.name}'", refusal.raw)
    if not lacking:
        yield Remaining(None, None, refusal.text, refusal.raw)
