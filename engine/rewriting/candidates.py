"""Which rules may mend a refused operator, for one toolchain."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from engine.errors import Problem, RecipeError, quoted
from engine.needed import needs
from engine.rules import active, library
from engine.rules.applications import Prover
from engine.rules.applied import application_prover
from engine.rules.language import Rule, load_rule
from engine.schema import nearest
from engine.toolchain import DISTRIBUTION, Toolchain


class Candidates:
    """Rules by operator, exact ones first, and a prover for each. Rule files are read when they are needed."""

    def __init__(
        self,
        toolchain: Toolchain,
        axes: Mapping[str, tuple[int, ...]],
        only: Collection[str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.toolchain, self.axes, self.only, self.folder = toolchain, axes, only, folder
        self._rules: dict[str, Rule] = {}
        self._by_op: dict[str, tuple[str, ...]] = {}
        self._provers: dict[str, Prover] = {}

    def for_op(self, op: str) -> list[Rule]:
        """Rules that this toolchain needs and that were not ruled out."""
        return [rule for rule in self._all(op) if not self._left_out(rule)]

    def left_out(self, op: str) -> list[tuple[str, str]]:
        """The other rules for the operator, with the reason why each is not tried. What no version needs is no help."""
        product = DISTRIBUTION[self.toolchain.module]
        return [(rule.name, why) for rule in self._all(op) if (why := self._left_out(rule))
                and (rule.needed_by.get(product, "never") != "never" or rule.name in (self.only or ()))]  # fmt: skip

    def for_types(self) -> list[Rule]:
        """The rules that change the types of a whole graph, as far as this toolchain needs them."""
        rules = [load_rule(library.path_of(name, self.folder)) for name in library.for_types(self.folder)]
        return [rule for rule in rules if not self._left_out(rule)]

    def prover(self, rule: Rule) -> Prover:
        """One for all files, so that equal fragments are proven once; one a rule, for its tolerance is in it."""
        return self._provers.setdefault(rule.name, application_prover(self.axes))

    def _all(self, op: str) -> list[Rule]:
        if op not in self._by_op:
            names = library.for_op(op, self.folder)
            for name in names:
                if name not in self._rules:
                    self._rules[name] = load_rule(library.path_of(name, self.folder))
            self._by_op[op] = tuple(sorted(names, key=lambda name: (_looseness(self._rules[name]), name)))
        return [self._rules[name] for name in self._by_op[op]]

    def _left_out(self, rule: Rule) -> str:
        if not needs(rule.needed_by, self.toolchain.module, self.toolchain.version):
            product = DISTRIBUTION[self.toolchain.module]
            written = rule.needed_by.get(product, "never")
            return f"needed_by says {product}: {written}, and this is {self.toolchain.version}"
        return "not among --rules" if self.only is not None and rule.name not in self.only else ""


def _looseness(rule: Rule) -> tuple[float, float, float]:
    limit = rule.proof.equal
    return limit.max_abs, limit.max_rel, limit.max_eps


def require_usable(names: Collection[str], folder: Path | None = None) -> None:
    """Raise RecipeError with every name that is no rule of the library, or else with all that is wrong with them."""
    known = library.names(folder)
    problems = [Problem(f"--rules: no rule {quoted(name)}", hint=nearest(name, known) or f"rules: {', '.join(known)}")
                for name in names if name not in known]  # fmt: skip
    if problems:
        raise RecipeError(problems)
    paths = [library.path_of(name, folder) for name in names]
    active.load((path, str(path)) for path in paths)
