"""The whole exploration on one page: signature, trials, outputs, axes, export; all by running the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch.utils import _pytree as pytree

from engine.errors import StepError
from engine.initial import axes, returned, symbolic, trials
from engine.initial.asked import Asked
from engine.initial.attempts import Bench, Trial, describe
from engine.initial.axes import Group, Position
from engine.initial.findings import Findings, FoundAxis, FoundInput
from engine.initial.signature import Signature
from engine.initial.subject import Subject
from engine.initial.watch import Need
from engine.schema import nearest


def explore(subject: Subject, asked: Asked, say: Callable[[str], None]) -> Findings:
    """Find out what a recipe must say. Raises StepError for what stands in the way."""
    bench, taken = Bench(subject.model, say, subject.name), subject.taken
    say("looking for inputs with which it runs")
    sizes = {name: axis.opt for name, axis in asked.axes.items() if axis.opt > 1}
    found, attempt = trials.find(bench, taken, sizes)
    _require_repeatable(bench, found)
    outputs = returned.names(attempt.returned, found)
    say(f"runs with {describe(found)}; looking for dynamic axes")
    groups, static = axes.find(bench, found, attempt.met)
    _check_asked(asked, groups, static, found)
    axes.choose(bench, found, groups, asked.axes)
    _require_ends(bench, found, groups)
    lost: dict[Position, str] = {}
    kept, problem = groups, ""
    if subject.exported:
        say("torch.export with " + (", ".join(group.name for group in groups) or "no axis") + " dynamic")
        kept, lost, problem = symbolic.narrow(bench, found, outputs.names, groups, _must(asked))
    _check_asked(asked, kept, static | lost, found)
    return Findings(
        module=subject.name,
        parameters=subject.parameters,
        inputs=_inputs(found, attempt.met, taken, kept, static | lost),
        axes={group.name: _axis(group) for group in kept},
        outputs=outputs.names,
        outputs_why=outputs.why if subject.exported else "as in the file",
        left_out=dict(taken.left_out) | {name: "None" for name in taken.guesses if name not in found},
        dropped=outputs.dropped,
        export_problem=problem,
        attempts=bench.count,
    )


def _require_repeatable(bench: Bench, found: Mapping[str, Trial]) -> None:
    # Not the watched run: torch's own layers take slower paths while they are watched.
    tensors = [[leaf for leaf in pytree.tree_leaves(bench.run(found, watched=False).returned)
                if isinstance(leaf, torch.Tensor)] for _ in range(2)]  # fmt: skip
    for one, two in zip(*tensors, strict=False):
        if one.shape != two.shape or not torch.equal(torch.nan_to_num(one), torch.nan_to_num(two)):
            raise StepError(
                "two runs of the model on the same input differ",
                klass="export",
                cause="random numbers in forward, or a state that the run before left behind",
                fix="make the noise or the state an input of the model",
            )


def _require_ends(bench: Bench, found: Mapping[str, Trial], groups: Sequence[Group]) -> None:
    for end in ("min", "opt", "max"):
        attempt = bench.run(axes.at_ends(found, groups, end), watched=False)
        if attempt.error:
            sizes = ", ".join(f"{group.name}={getattr(group.axis, end)}" for group in groups)
            raise StepError(
                f"the model does not run with every axis at its {end} ({sizes})",
                klass="shape",
                cause=attempt.error,
                fix="give a range that it takes with --axis NAME=MIN:OPT:MAX",
            )


def _must(asked: Asked) -> set[str]:
    """Axes that the user names."""
    return set(asked.axes) | {size for hint in asked.inputs.values() for size in hint.shape or ()
                              if isinstance(size, str)}  # fmt: skip


def _check_asked(
    asked: Asked, groups: Sequence[Group], static: Mapping[Position, str], found: Mapping[str, Trial]
) -> None:
    """What the user calls an axis must be one."""
    there = [group.name for group in groups]
    for (name, axis), reason in static.items():
        word = found[name].named.get(axis)
        if word and (word in asked.axes or name in asked.inputs):
            raise StepError(
                f"axis '{word}' of '{name}' cannot be dynamic", klass="shape", cause=reason,
                fix=f"give its size in place of '{word}' with --input", usage=True,
            )  # fmt: skip
    for name in asked.axes:
        if name not in there:
            reasons = [f"'{item}' axis {axis}: {why}" for (item, axis), why in static.items()]
            raise StepError(
                f"--axis {name}: there is no dynamic axis of that name; found: {', '.join(there) or 'none'}",
                cause="; ".join(reasons),
                fix=nearest(name, there) or "name axes with --input NAME:DTYPE:SHAPE",
                usage=True,
            )


def _axis(group: Group) -> FoundAxis:
    places = " and ".join(f"{name} axis {axis}" for name, axis in group.places)
    sizes = ", ".join(map(str, (group.size, *axes.others(group.size))))
    first = f"{places}: ran at {sizes}, and at the ends of this range."
    return FoundAxis(group.axis, (first, *group.notes), group.asked)


def _inputs(
    found: Mapping[str, Trial],
    met: Mapping[str, Sequence[Need]],
    taken: Signature,
    groups: Sequence[Group],
    static: Mapping[Position, str],
) -> dict[str, FoundInput]:
    of = {place: group for group in groups for place in group.places}
    inputs = {}
    for name, trial in found.items():
        shape = tuple(of[name, axis].name if (name, axis) in of else size
                      for axis, size in enumerate(trial.shape))  # fmt: skip
        why = [_type_why(name, trial, met.get(name, ()), taken)]
        why += [f"Axis {axis} stays {size}: {static[name, axis]}."
                for axis, size in enumerate(trial.shape) if (name, axis) in static]  # fmt: skip
        dtype = trial.dtype
        if dtype.startswith("float") and name in taken.guesses and not trial.settled:
            dtype = "float32"
        values, about = _values(name, trial, of)
        inputs[name] = FoundInput(dtype, shape, values, (*why, *about))
    return inputs


def _type_why(name: str, trial: Trial, met: Sequence[Need], taken: Signature) -> str:
    if name in taken.companions:
        return "Optional, but taken in: without it padding would count as text."
    guess = taken.guesses[name]
    if met:
        return f"First used by {met[0].by}, which takes {met[0].dtype}; the rest by trial."
    if guess.why:
        return f"Type and rank: {guess.why}, and the model runs with them."
    return "Type and rank by trial: no layer says what it takes, other types may run too. DECIDE."


def _values(name: str, trial: Trial, of: Mapping[Position, Group]) -> tuple[str, tuple[str, ...]]:
    if trial.mask:
        last = of.get((name, len(trial.shape) - 1))
        most = last.axis.max if last else trial.shape[-1]
        about = "A mask padded on the right, at least one token a row. DECIDE whether yours is."
        if trial.mask == "drops":
            about = f"{about} Its ones drop: with the other sense the outputs are not finite."
            return f"{{mask: {{padding: right, high: {most}, keep: 0, drop: 1}}}}", (about,)
        return f"{{lengths: [1, {most}]}}", (about,)
    if trial.dtype in ("float32", "float16"):
        return "", ("DECIDE: samples are standard normal; give your data's range with 'values'.",)
    if trial.below is not None:
        about = f"Values 0..{trial.below - 1}: the layer that looks them up takes no larger one."
        return f"{{integers: [0, {trial.below - 1}]}}", (about,)
    return "", ("DECIDE: samples are 0 and 1; give the range of your data with 'values'.",)
