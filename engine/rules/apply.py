"""Apply a rule to a graph: every match, each proven before it is accepted, until none is left."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping

import onnx
import onnx_ir as ir

from engine.errors import StepError
from engine.graph import filled, provenance
from engine.graph.fresh import Names
from engine.rules import branches, by_type, definition, folding, fragment, python_rule
from engine.rules.applications import Application, Applications, Prover, Refusal
from engine.rules.interval import Known
from engine.rules.language import Rule
from engine.rules.match import Match, Miss, Search
from engine.rules.refuse import RefusedError
from engine.rules.splice import splice


class RuleRefusedError(StepError):
    """The rule matched, and was refused at every match: by its own function or by its proof."""


class EndlessError(StepError):
    """The rule goes on matching what it put there."""


def apply_rule(
    model: ir.Model,
    rule: Rule,
    *,
    matches: int | None = None,
    prover: Prover | None,
    where: str = "rewrites[0]",
    sizes: Mapping[str, tuple[int, ...]] | None = None,
) -> Applications:
    """Rewrite ``model`` in place. ``prover`` judges every match; None accepts them unproven.

    Raises StepError when the rule matches nothing, is refused everywhere, or was accepted another number
    of times than ``matches``; the graph must then be thrown away. ``sizes`` are those that a symbolic axis may have.
    """
    _check_opset(model, rule, where)
    if rule.types:
        done, nearest = by_type.apply_types(model, rule, prover)
    else:
        done, miss = _sweep(model, rule, prover, None, where, sizes)
        nearest = str(miss or "")
    _check_count(rule, list(done.accepted), list(done.refused), nearest, matches, where)
    return done


def apply_at(
    model: ir.Model,
    rule: Rule,
    nodes: Collection[str],
    prover: Prover | None,
    sizes: Mapping[str, tuple[int, ...]] | None = None,
) -> tuple[Applications, str]:
    """Rewrite ``model`` in place where a match holds one of ``nodes`` (by name), and nowhere else.

    No match is no error here: the text says why the nearest one does not fit, or is empty where none is near.
    """
    opset = model.opset_imports.get("", 1)
    if not rule.allows(opset):
        count = _count(model)
        return Applications(rule.name, (), (), count, count), _opset_words(rule, opset)
    done, nearest = _sweep(model, rule, prover, frozenset(nodes), "", sizes)
    return done, str(nearest) if nearest and nearest.near else ""


def _sweep(
    model: ir.Model, rule: Rule, prover: Prover | None, at: frozenset[str] | None, where: str,
    sizes: Mapping[str, tuple[int, ...]] | None,
) -> tuple[Applications, Miss | None]:  # fmt: skip
    graphs = _graphs(model)
    before = sum(map(len, graphs))
    accepted: list[Application] = []
    refused: list[Refusal] = []
    nearest: Miss | None = None
    known = Known(sizes)
    limit = before * max(1, len(rule.ops))
    for graph in graphs:
        if rule.branch and accepted and graph not in _graphs(model):
            continue  # a branch that was not taken, or whose nodes stand elsewhere now
        miss = _rewrite(model, graph, rule, prover, known, accepted, refused, limit, where, at)
        nearest = miss if nearest is None or (miss and miss.rank > nearest.rank) else nearest
    after = _count(model) if accepted else before
    return Applications(rule.name, tuple(accepted), tuple(refused), before, after), nearest


def _graphs(model: ir.Model) -> list[ir.Graph]:
    """The model's graph and all in it. Every rule asks for them, so only nodes that could hold one are looked into."""
    found, holding = [model.graph], _holding()
    for graph in found:  # grows while it is gone through
        for node in graph:
            if node.op_type not in holding and node.domain in ("", "ai.onnx"):
                continue
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH:
                    found.append(attribute.as_graph())
                elif attribute.type == ir.AttributeType.GRAPHS:
                    found += attribute.as_graphs()
    return found


@functools.cache
def _holding() -> frozenset[str]:
    """The standard's operators with subgraphs."""
    kinds = (onnx.defs.OpSchema.AttrType.GRAPH, onnx.defs.OpSchema.AttrType.GRAPHS)
    return frozenset(
        schema.name
        for schema in onnx.defs.get_all_schemas_with_history()
        if any(attribute.type in kinds for attribute in schema.attributes.values())
    )


def _count(model: ir.Model) -> int:
    return sum(map(len, _graphs(model)))


def _rewrite(
    model: ir.Model, graph: ir.Graph, rule: Rule, prover: Prover | None, known: Known,
    accepted: list[Application], refused: list[Refusal], limit: int, where: str, at: frozenset[str] | None,
) -> Miss | None:  # fmt: skip
    """Pass over the graph until nothing matches any more; a replacement may make room for another match."""
    skip: set[ir.Node] = set()
    names: Names | None = None
    nearest: Miss | None = None
    wanted = None if at is None else [node for node in graph if node.name in at]
    changed = True
    while changed:
        changed = False
        known.unbounded.clear()
        within = None if wanted is None else [node for node in wanted if node.graph is graph]
        search = Search(graph, rule, model.opset_imports, known, skip, within)
        for node in search.candidates():
            match = search.at(node) if node.graph is graph else None  # an earlier match may have taken it
            if match is None:
                continue
            names = names or Names(model)
            found = _attempt(model, match, prover, known, names)
            if isinstance(found, Refusal):
                refused.append(found)
                skip.add(node)
                continue
            changed = True
            accepted.append(found)
            if len(accepted) > limit:
                raise _endless(rule, accepted, where)
        nearest = nearest or search.nearest
    return nearest


def _endless(rule: Rule, accepted: list[Application], where: str) -> EndlessError:
    last = ", ".join(one.node for one in accepted[-3:])
    return EndlessError(f"rule {rule.name} keeps matching its own result", klass="op", where=where,
                        cause=f"applied {len(accepted)} times, the last at {last}",
                        fix="make the replacement something that the pattern does not match")  # fmt: skip


def _attempt(
    model: ir.Model, match: Match, prover: Prover | None, known: Known, names: Names
) -> Application | Refusal:
    root = match.root
    name, module = root.name or "", root.metadata_props.get(provenance.MODULE, "")
    before = fragment.cut(match, model.opset_imports)
    try:
        after = replacement(match, before, known.sizes)
    except RefusedError as error:
        return Refusal(name, module, str(error))
    proof = prover(match, before, after, known) if prover else None
    if proof is not None and not proof.equal:
        return Refusal(name, module, f"not proven equal: {proof.why}")
    nodes = {node: node.name or "" for node in match.nodes}
    results = [match.value(name) for name in match.rule.match.outputs]
    followers = branches.followers(results, after.graph.outputs) if match.rule.branch else []
    added = splice(match, after, names)
    if followers:
        branches.forget(followers)
        filled.fill(model)
    removed = tuple(text for node, text in nodes.items() if node.graph is None)
    return Application(name, module, removed, tuple(node.name or "" for node in added), proof)


def replacement(match: Match, before: ir.Model, sizes: Mapping[str, tuple[int, ...]]) -> ir.Model:
    """The model that takes the place of ``before``, types filled in. Raises RefusedError."""
    if match.rule.definition:
        after = definition.body(before)
    elif match.rule.fold:
        after = folding.folded(before, match.rule.fold)
    elif match.rule.branch:
        after = branches.taken(before, branches.decided(match.root, sizes))
    elif match.rule.replace is None:
        after = python_rule.replacement(match, before)
    else:
        names = fragment.canonical(match)
        made = {first: fragment.boundary(match, first) for first in dict.fromkeys(names.values())}
        given = {name: made[first] for name, first in names.items() if name in match.rule.replace.inputs}
        spare = {first: value for first, value in made.items() if first not in given}
        after = fragment.build(match.rule.replace, {**given, **spare}, match.attributes, before.opset_imports)
    fragment.infer(after)
    return after


def _check_opset(model: ir.Model, rule: Rule, where: str) -> None:
    opset = model.opset_imports.get("", 1)
    if rule.allows(opset):
        return
    raise StepError(f"rule {rule.name} {_opset_words(rule, opset)}", klass="op", where=where,
                    usage=True, fix="change export.opset, or leave the rule out")  # fmt: skip


def _opset_words(rule: Rule, opset: int) -> str:
    low, high = rule.opset
    wanted = f"at least {low}" if high is None else f"{low} to {high}"
    return f"needs opset {wanted}; the graph has {opset}"


def _check_count(
    rule: Rule, accepted: list[Application], refused: list[Refusal], nearest: str,
    matches: int | None, where: str,
) -> None:  # fmt: skip
    name = rule.name
    if refused and not accepted:
        first = refused[0]
        raise RuleRefusedError(
            f"rule {name} was refused at {first.node}: {first.why}",
            klass="numeric",
            where=where,
            evidence=f"refused at all {len(refused)} matches",
            fix="leave the rule out; it is not right for this graph",
        )
    if not accepted:
        raise StepError(
            f"rule {name} matches nothing",
            klass="op",
            where=where,
            usage=True,
            cause=nearest or f"the graph has no {' or '.join(op for op, _ in rule.anchors)}",
            fix="leave the rule out, or see why the nearest place does not fit",
        )
    if matches is not None and len(accepted) != matches:
        places = ", ".join(one.node for one in accepted)
        also = "".join(f"; refused at {one.node}: {one.why}" for one in refused)
        raise StepError(
            f"rule {name} applied {len(accepted)} times, not {matches}",
            klass="op",
            where=where,
            usage=True,
            cause=f"applied at {places}{also}",
            fix=f"write matches: {len(accepted)} when that is right",
        )
