"""A rewrite rule as written in ``rewrites/<name>.yaml``: read, checked as a whole, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import document, schema
from engine.checks import rules
from engine.document import Document
from engine.errors import Problem, RecipeError
from engine.rules import library, op_rule_checks, rule_checks, why
from engine.rules.pattern import Pattern, Text, parse
from engine.rules.why import Why
from engine.values import IssueClass

DEFAULT_OPSET = 18


@dataclass(frozen=True)
class InputSpec:
    """How a proof fills one input: each of ``dtypes`` with each kind of ``values`` at ``shape``."""

    dtypes: tuple[str, ...]
    shape: tuple[str | int, ...]
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Tolerance:
    """``|a - b| <= max_abs + max_rel * |a| + max_eps * eps * max(1, |a|)``, ``a`` being the one before.

    ``eps`` is the spacing of the element type at 1 (2**-23 for float32), so that one limit serves several.
    """

    max_abs: float = 0.0
    max_rel: float = 0.0
    max_eps: float = 0.0


@dataclass(frozen=True)
class ProofSpec:
    """The rule's own proof: every combination of sizes, attributes and values is run and compared.

    ``context`` computes match inputs from proof inputs, so that the conditions of ``where`` hold. A rule
    for operators is proven on ``cases`` (graphs in ONNX text) and on the ``suite`` of ONNX's own backend
    tests instead; ``values`` are the kinds of values for inputs by name.
    """

    axes: Mapping[str, tuple[int, ...]]
    attributes: Mapping[str, tuple[Any, ...]]
    inputs: Mapping[str, InputSpec]
    equal: Tolerance
    opsets: tuple[int, ...]
    context: Pattern | None = None
    reference: bool = False  # prove on ONNX's reference evaluator instead of ONNX Runtime
    suite: bool = False
    cases: tuple[str, ...] = ()
    values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def corners(self) -> bool:
        """Whether the rule is meant for every number that a type has; a proof may keep to ordinary ones."""
        kinds = [*self.values.values(), *(spec.values for spec in self.inputs.values())]
        fed = [
            [kind for kind in one if not (isinstance(kind, Mapping) and "constant" in kind)] for one in kinds
        ]
        return all("edges" in one for one in fed if one)


@dataclass(frozen=True)
class Rule:
    """One rewrite rule. ``opset`` is the lowest and highest that its texts mean the same in (None: open).

    With ``ops`` it is for any node of these operators, ``match`` is empty, and every node gets a pattern of
    its own (:mod:`engine.rules.by_op`). ``definition``: the replacement is the standard's function body;
    ``branch``: it is the branch that an If takes (:mod:`engine.rules.branches`); ``fold``: that input,
    computed beforehand (:mod:`engine.rules.folding`). With
    ``upstream`` a match holds what the node is computed from as well (:mod:`engine.rules.upstream`). With
    ``types`` it is for the whole graph, which computes in the wider ones (:mod:`engine.rules.by_type`).
    """

    name: str
    klass: IssueClass
    why: Why
    match: Pattern
    replace: Pattern | None
    apply: Path | None
    where: Mapping[str, Mapping[str, Any]]
    proof: ProofSpec
    needed_by: Mapping[str, str]
    opset: tuple[int, int | None]
    path: Path = field(compare=False)
    ops: tuple[str, ...] = ()
    definition: bool = False
    types: Mapping[str, str] = field(default_factory=dict)
    upstream: bool = False
    branch: bool = False
    fold: str = ""

    @property
    def anchors(self) -> tuple[tuple[str, str], ...]:
        """Operators and domains of the nodes at which a match can stand."""
        if self.ops or self.types:
            return tuple((op, "") for op in self.ops)
        made = self.match.producer(self.match.outputs[-1])
        assert made is not None  # checked when the rule was loaded
        return ((self.match.nodes[made[0]].op, self.match.nodes[made[0]].domain),)

    def allows(self, opset: int) -> bool:
        low, high = self.opset
        return low <= opset and (high is None or opset <= high)


def load_library(folder: Path | None = None) -> dict[str, Rule]:
    """Every rule of the library, by name. Raises RecipeError with the problems of all files at once."""
    rules: dict[str, Rule] = {}
    found: list[Problem] = []
    for name in library.names(folder):
        try:
            rules[name] = load_rule(library.path_of(name, folder))
        except RecipeError as error:
            found += error.problems
    if found:
        raise RecipeError(found)
    return rules


def load_rule(path: Path, shown: str | None = None) -> Rule:
    """Read one rule file, which messages call ``shown``. Raises RecipeError with every problem at its line."""
    doc = document.read(path, shown)
    found = schema.problems(doc, "rule")
    if found:
        raise RecipeError(found)
    data = doc.data
    opset = _opset(data.get("opset", DEFAULT_OPSET))
    texts = {
        key: _parse(doc, (key,), data[key], opset[0], found) for key in ("match", "replace") if key in data
    }
    context_text = data["proof"].get("context")
    context = _parse(doc, ("proof", "context"), context_text, opset[0], found) if context_text else None
    found += rules.head(doc, path)
    ops = (data["op"],) if isinstance(data.get("op"), str) else tuple(data.get("op", ()))
    types = data.get("types", {})
    match = texts.get("match") if not (ops or types) else Pattern((), (), ())
    if types:
        found += op_rule_checks.cases(doc)
    elif ops:
        found += op_rule_checks.problems(doc, ops)
    elif match:
        found += rule_checks.match_problems(doc, match)
        found += rule_checks.reference_problems(doc, match, texts.get("replace"), context)
        found += rule_checks.proof_problems(doc, match, context)
    if found or match is None:
        raise RecipeError(found)
    return Rule(
        name=data["rule"],
        klass=data["class"],
        why=why.read(data["why"]),
        match=match,
        replace=texts.get("replace"),
        apply=path.parent / data["apply"] if "apply" in data else None,
        where=data.get("where", {}),
        proof=_proof(data["proof"], opset[0], context),
        needed_by=data["needed_by"],
        opset=opset,
        path=path,
        ops=ops,
        definition=data.get("definition", False),
        types=types,
        upstream=data.get("upstream", False),
        branch=data.get("branch", False),
        fold=data.get("fold", ""),
    )


def _opset(written: Any) -> tuple[int, int | None]:
    return (written, None) if isinstance(written, int) else (written[0], written[1])


def _parse(
    doc: Document, path: tuple[str, ...], body: str, opset: int, found: list[Problem]
) -> Pattern | None:
    try:
        return parse(Text(doc, path, body), opset)
    except RecipeError as error:
        found += error.problems
        return None


def _proof(data: Mapping[str, Any], opset: int, context: Pattern | None) -> ProofSpec:
    return ProofSpec(
        axes={name: tuple(sizes) for name, sizes in data.get("axes", {}).items()},
        attributes={name: tuple(values) for name, values in data.get("attributes", {}).items()},
        inputs={name: _input(spec) for name, spec in data.get("inputs", {}).items()},
        equal=Tolerance(**{key: float(value) for key, value in data["equal"].items()}),
        opsets=tuple(data.get("opsets", [opset])),
        context=context,
        reference=data.get("runtime") == "reference",
        suite=data.get("suite", False),
        cases=tuple(data.get("cases", ())),
        values={name: _several(kinds) for name, kinds in data.get("values", {}).items()},
    )


def _input(spec: Mapping[str, Any]) -> InputSpec:
    dtypes, values = spec["dtype"], spec["values"]
    return InputSpec(
        dtypes=(dtypes,) if isinstance(dtypes, str) else tuple(dtypes),
        shape=tuple(spec["shape"]),
        values=_several(values),
    )


def _several(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, list) else (values,)
