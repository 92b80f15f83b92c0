"""Apply the recipe's rules in order; every application is proven on its own subgraph first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import toolchain
from engine.errors import RecipeError, StepError
from engine.plan import Plan, PlannedRewrite
from engine.rules.why import first_sentence
from engine.steps.context import Context, Done
from engine.values import Issue

if TYPE_CHECKING:
    from engine.rules.applications import Applications
    from engine.rules.language import Rule

WEIGHTS = "rewrite.weights"


def run(context: Context) -> Done:
    """Write ``onnx/rewrite.onnx``. A rule that matches nothing, or too often, is an error of the recipe."""
    if context.plan.library:
        return _automatic(context)
    plan = context.plan
    if not plan.rewrites:
        return Done(skipped="not asked for")
    from engine.graph import files, filled

    model = files.load(context.graph)
    filled.fill(model)
    before = sum(1 for graph in model.graphs() for _ in graph)
    applied, issues = [], []
    for index, (rewrite, rule) in enumerate(zip(plan.rewrites, _rules(plan), strict=True)):
        context.progress(f"rule {rewrite.rule}", index, len(plan.rewrites))
        done = _apply(model, rewrite, rule, index, plan)
        applied.append(_facts(done, rewrite))
        issues += _issues(done, rule)
    return _written(context, model, before, applied, issues, {})


def _written(
    context: Context, model: Any, before: int, applied: list[Any], issues: list[Issue], more: dict[str, Any]
) -> Done:
    import onnx

    from engine.graph import files, inventory

    target = context.folder("onnx") / "rewrite.onnx"
    target.with_name(WEIGHTS).unlink(missing_ok=True)
    files.save(model, target, extra=WEIGHTS)
    try:
        onnx.checker.check_model(str(target), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        names = ", ".join(item["rule"] for item in applied)
        raise StepError(
            f"after the rewrites the graph is not valid ONNX: {str(error).strip().splitlines()[0]}",
            klass="op", cause=f"one of {names}", where="rewrites", evidence=str(error)[:2000],
        ) from error  # fmt: skip
    after = sum(1 for graph in model.graphs() for _ in graph)
    ops = inventory.take(model)["ops"]
    facts = {"applied": applied, "nodes_before": before, "nodes_after": after, "ops": ops, **more}
    artifacts: dict[str, Path] = {"graph": target}
    if (target.parent / WEIGHTS).exists():
        artifacts["weights"] = target.parent / WEIGHTS
    return Done(facts=facts, artifacts=artifacts, issues=tuple(issues))


def _automatic(context: Context) -> Done:
    """``rewrites: auto``: the toolchain says what it refuses, as in ``portwright rewrite``."""
    from engine.graph import files
    from engine.rewriting import auto, words
    from engine.rewriting.rewrite import Options
    from engine.rules import library, summary

    plan = context.plan
    tool = _toolchain(plan.build.toolchain)
    sizes = {name: (axis.min, axis.opt, axis.max) for name, axis in plan.axes.items()}
    options = Options(tool, sizes, target=plan.build.target, seconds=plan.build.time_limit_s)
    found = auto.choose(context.graph, options, context.progress)
    product = toolchain.product(tool)
    facts = {"auto": {"toolchain": product, "remains": [item.text for item in found.remaining],
                      "lines": [{"rule": rule, "matches": count} for rule, count in found.lines]}}  # fmt: skip
    issues = [
        Issue("rewrite", "op", item.text, cause="; ".join(f"rule {one.rule}: {one.why}" for one in item.rules)
              or words.no_rule(item), disposition="open")
        for item in found.remaining
    ]  # fmt: skip
    if found.model is None:
        before = sum(1 for graph in files.load(context.graph).graphs() for _ in graph)
        return Done(
            facts={"applied": [], "nodes_before": before, "nodes_after": before, **facts},
            issues=tuple(issues),
        )
    applied = [
        {"rule": used.rule, "count": used.times, "nodes_before": used.nodes_before, "nodes_after": used.nodes_after,
         "error": f"{used.max_abs:.2g}", "cases": used.cases, "refused": [], "at": list(used.at),
         "because": f"chosen automatically: {product} refuses the nodes without it"}
        for used in found.used
    ]  # fmt: skip
    for used in found.used:
        said = summary.read(library.path_of(used.rule)).why
        issues.append(
            Issue("rewrite", "op", f"{product} refused {', '.join(used.at[:3])}{' ...' if used.at[3:] else ''}",
                  cause=first_sentence(said.breaks),
                  fix=f"rule {used.rule}, chosen automatically (rewrites: auto): {first_sentence(said.idea)}",
                  evidence=f"{used.cases} proofs, largest difference {used.max_abs:.2g}", disposition="fixed")
        )  # fmt: skip
    return _written(context, found.model, found.used[0].nodes_before, applied, issues, facts)


def _toolchain(spec: str) -> toolchain.Toolchain:
    try:
        return toolchain.resolve(spec)
    except RecipeError as error:
        problem = error.problems[0]
        raise StepError(f"rewrites: auto asks the toolchain, and there is none: {problem.what}",
                        fix=f"{problem.hint}; or name the rules", where="rewrites", usage=True) from error  # fmt: skip


def _rules(plan: Plan) -> list[Rule]:
    """The rule of each entry, checked beside the others."""
    from engine.rules import active

    files = [(Path(rewrite.path), Path(rewrite.path).name) for rewrite in plan.rewrites]
    try:
        rules = {rule.path: rule for rule in active.load(files)}
    except RecipeError as error:
        raise StepError(f"the rules are not usable:\n{error}", where="rewrites", usage=True) from error
    return [rules[path] for path, _ in files]


def _apply(model: Any, rewrite: PlannedRewrite, rule: Rule, index: int, plan: Plan) -> Applications:
    from engine.rules.apply import apply_rule
    from engine.rules.prove import application_prover

    axes = {name: tuple(dict.fromkeys((axis.min, axis.opt, axis.max))) for name, axis in plan.axes.items()}
    prover = application_prover(axes)
    return apply_rule(model, rule, matches=rewrite.matches, prover=prover, where=f"rewrites[{index}]", sizes=axes)


def _facts(done: Applications, rewrite: PlannedRewrite) -> dict[str, Any]:
    proofs = [item.proof for item in done.accepted if item.proof is not None]
    return {
        "rule": done.rule,
        "count": len(done.accepted),
        "nodes_before": done.nodes_before,
        "nodes_after": done.nodes_after,
        "error": f"{max((proof.max_abs for proof in proofs), default=0.0):.2g}",
        "cases": sum(proof.cases for proof in proofs),
        "refused": [f"{item.node}: {item.why}" for item in done.refused],
        "because": rewrite.because,
        "at": [item.node for item in done.accepted],
    }


def _issues(done: Applications, rule: Rule) -> list[Issue]:
    proofs = [item.proof for item in done.accepted if item.proof is not None]
    cases = sum(proof.cases for proof in proofs)
    modules = sorted({item.module for item in done.accepted if item.module})
    shown = ", ".join(modules[:2]) + (" ..." if len(modules) > 2 else "")
    worst = max((proof.max_abs for proof in proofs), default=0.0)
    places = f"{len(done.accepted)} place" + ("" if len(done.accepted) == 1 else "s")
    idea = f"{first_sentence(rule.why.idea)}; " if rule.why.idea else ""
    issues = [
        Issue(
            "rewrite", rule.klass, f"pattern of rule {done.rule} found in {places}",
            cause=first_sentence(rule.why.breaks),
            fix=f"{done.rule}: {idea}{done.nodes_before} nodes became {done.nodes_after}",
            evidence=f"{cases} proofs, largest difference {worst:.2g}" + (f"; in {shown}" if shown else ""),
            disposition="fixed",
        )
    ]  # fmt: skip
    issues += [
        Issue(
            "rewrite",
            rule.klass,
            f"rule {done.rule} refused at {item.node}",
            cause=item.why,
            disposition="open",
        )
        for item in done.refused
    ]
    return issues
