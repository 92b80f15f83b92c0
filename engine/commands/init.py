"""``portwright init``: a first recipe for a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from engine.errors import Exit, Failure, PortwrightError, RecipeError, StepError
from engine.initial import asked as hints
from engine.initial import route


@click.command("init")
@click.argument("model")
@click.option("--weights", help="What the function gets: PATH, or package:NAME:PATH.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the recipe; default: the model's.",
)  # fmt: skip
@click.option("--input", "inputs", multiple=True, help="NAME:DTYPE[:SHAPE], sizes or axis names by comma.")
@click.option("--axis", "axes", multiple=True, help="NAME=MIN:OPT:MAX, the range of an axis.")
@click.option("--opset", type=click.IntRange(9, 30), help="ONNX opset of the export.")
@click.option(
    "--base", type=click.Choice(hints.BASES), help="Type to lower to; default: what the rehearsal bears."
)
@click.option("--force", is_flag=True, help="Overwrite a recipe that is there.")
@click.option("--quiet", "-q", is_flag=True, help="Print no progress.")
def command(
    model: str,
    weights: str | None,
    out: Path | None,
    inputs: tuple[str, ...],
    axes: tuple[str, ...],
    opset: int | None,
    base: Any,
    force: bool,
    quiet: bool,
) -> Exit:
    """Write a first recipe for MODEL, such as model.py:load or model.onnx, by running it.

    Its input types and shapes, its dynamic axes and its outputs are found by trial, its limits are taken from
    measured errors. Every choice is commented; DECIDE marks what a person must settle.
    """
    file, function = hints.entry(model)
    if weights and not function:
        raise RecipeError(f"--weights: {file.name} brings its own weights", hint="leave it out")
    found = hints.weights(weights, file.parent) if weights else None
    question = hints.Asked(str(file), function, found, hints.inputs(inputs), hints.axes(axes), opset, base)

    def say(text: str) -> None:
        if not quiet:
            click.echo(f"init: {text}", err=True)

    try:
        written = route.run(question, out or file.parent, force, say)
    except StepError as error:
        raise _told(error) from error
    click.echo(f"{written.recipe}: written, {len(written.decisions)} choices to DECIDE")
    click.echo(f"next: portwright run {written.recipe.parent}")
    return Exit.ACCEPTED


def _told(error: StepError) -> PortwrightError:
    """The failure with its cause and what to do: there is no recipe yet whose line could be shown."""
    failure: Failure = error.failure
    lines = [failure.symptom]
    lines += [
        f"        {part}".replace("        " * 2, "        ") for part in (failure.cause, failure.fix) if part
    ]
    return StepError(replace(failure, symptom="\n".join(lines)))
