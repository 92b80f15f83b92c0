"""What every exported graph is held against, whichever exporter made it: shapes, weights, numbers, types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.errors import StepError
from engine.exporters.exported import Exported
from engine.plan import Plan
from engine.values import Issue

if TYPE_CHECKING:
    import onnx_ir as ir

    from engine.graph.output_dims import Observed
    from engine.graph.weights_account import Account

_SMALL = 1e-4  # numbers up to here are the ones that tools take for zero
_NARROWER = {
    "torch.float64": {"FLOAT", "FLOAT16", "BFLOAT16"},
    "torch.float32": {"FLOAT16", "BFLOAT16"},
    "torch.int64": {"INT32", "INT16", "INT8", "UINT8"},
    "torch.bool": {"FLOAT", "INT64", "INT32", "UINT8", "INT8"},
}


@dataclass(frozen=True)
class Checked:
    facts: Mapping[str, Any]
    issues: tuple[Issue, ...]


def check(made: Exported, port: Any, plan: Plan, observed: Observed) -> Checked:
    """Raise StepError for a graph that is not the model; what is only doubtful becomes an issue."""
    from engine import model_state
    from engine.graph import boundary, output_dims
    from engine.graph.weights_account import account

    boundary.check(made.model, plan)
    _opset(made.model, plan)
    issues = [*made.issues, *output_dims.check(made.model, plan, observed)]
    account_of = account(
        model_state.tensors(port.model), made.model, made.used, made.before, model_state.epsilons(port.model)
    )
    _changed(account_of)
    issues += [*_missing(account_of, made), *_numbers(made), *_types(made)]
    fates = Counter(weight.fate for weight in account_of.weights)
    facts = {
        "capture": made.capture,
        "weights": dict(sorted(fates.items())),
        "weights_unused": [weight.name for weight in account_of.by_fate("unused")][:50],
        "weights_folded": {weight.name: weight.into for weight in account_of.by_fate("folded")[:50]},
        "constants": len(made.constants),
    }
    return Checked(facts, tuple(issues))


def _opset(model: ir.Model, plan: Plan) -> None:
    written = model.opset_imports.get("")
    if written == plan.opset:
        return
    raise StepError(
        f"asked for opset {plan.opset}, the exporter wrote opset {written}",
        klass="export",
        fix=f"ask for opset {written}, or use the other exporter",
        where="export.opset",
    )


def _changed(account: Account) -> None:
    if not account.changed:
        return
    first, more = account.changed[0], len(account.changed) - 1
    raise StepError(
        f"weights changed on the way: {first}" + (f"; and {more} more tensors" if more else ""),
        klass="numeric",
        cause=f"{first.count:,} elements of '{first.parameter}' differ",
        fix="try the other exporter, and report this to the exporter's authors",
        where="export.exporter",
        evidence="\n".join(map(str, account.changed[:20])),
    )


def _missing(account: Account, made: Exported) -> list[Issue]:
    missing = [weight.name for weight in account.by_fate("missing")]
    if not missing:
        return []
    shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    return [
        Issue(
            "export",
            "export",
            f"weights that are not found in the file: {shown}",
            cause="computed into another constant, or lost"
            + ("" if made.used is not None else "; whether forward uses them is unknown"),
            fix="only the comparison of outputs speaks for them",
            evidence="\n".join(missing[:20]),
            disposition="open",
        )
    ]


def _numbers(made: Exported) -> list[Issue]:
    from engine.graph import constants_account

    if not made.constants:
        return []
    numbers = [constant.value for constant in made.constants]
    places = {constant.value: str(constant.found) for constant in reversed(made.constants)}
    issues = [
        Issue(
            "export",
            "numeric",
            f"a constant changed on the way: {near}",
            cause="the exporter or its optimiser wrote another number",
            fix="try the other exporter",
            evidence=places[near.program],
            disposition="open",
        )
        for near in constants_account.near_misses(numbers, made.model)
    ]
    small = [number for number in numbers if 0 < abs(number) <= _SMALL]
    issues += [
        Issue(
            "export",
            "numeric",
            f"the constant {number:.6g} of the model is not in the file",
            cause="deleted, or computed into another number",
            fix="only the comparison of outputs speaks for it: give samples that need it (rows of zeros)",
            evidence=places[number],
            disposition="open",
        )
        for number in constants_account.absent(small, made.model)
    ]
    return issues


def _types(made: Exported) -> list[Issue]:
    issues = []
    if made.doubles:
        shown = ", ".join(dict.fromkeys(map(str, made.doubles[:3])))
        issues.append(
            Issue(
                "export",
                "numeric",
                f"the model computes in float64 ({len(made.doubles)} operations)",
                cause="TensorRT has no float64; what runs there is narrower than what was proven here",
                fix="compute in float32 in the model, and see whether the limits still hold",
                evidence=shown,
                disposition="open",
            )
        )
    narrow = []
    for value in (value for node in made.model.graph.all_nodes() for value in node.outputs):
        asked = made.types.get(value.name or "", "")
        if value.dtype is not None and value.dtype.name in _NARROWER.get(asked, ()):
            narrow.append(f"{value.name}: {asked.removeprefix('torch.')} became {value.dtype.name.lower()}")
    if narrow:
        issues.append(
            Issue(
                "export",
                "numeric",
                f"{len(narrow)} tensors are narrower in the file than in the model",
                cause="the exporter chose another type",
                fix="try the other exporter",
                evidence=", ".join(narrow[:3]),
                disposition="open",
            )
        )
    return issues
