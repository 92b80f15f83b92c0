"""``portwright replay``: one kept sample of a run through a graph of that run again."""

from __future__ import annotations

from pathlib import Path

import click

from engine import record, route
from engine.errors import Exit, RecipeError, StepError
from engine.wording import number, table


@click.command("replay")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("case")
@click.option("--step", default="parity", help="Take the graph as it was after this step.")
def command(run: Path, case: str, step: str) -> Exit:
    """Run CASE (a shape such as max, or a hard input such as zeros.x) of RUN in ONNX Runtime again and compare.

    RUN is a recipe folder, an output folder or a record.json. Exit 0 when every output could be compared.
    """
    from engine import runtime, samples
    from engine.compare import compare
    from engine.graph import files
    from engine.stress import content

    folder = route.folder_of(run)
    done = record.read(folder)
    sample = _sample(folder, case)
    graph = _graph(done, folder, step)
    route.require_unchanged(done, folder, (sample, graph))
    try:
        outputs = runtime.run(runtime.session(graph), samples.read(sample, "input"))
    except StepError as error:
        raise RecipeError(f"{case}: {error.failure.symptom}") from error
    wanted, exact = samples.read(sample, "fp32"), samples.read(sample, "fp64")
    steps = bool(content.steps(files.load(graph)))
    found = compare(wanted, outputs, case, exact, nan_is_equal=True, steps=steps)
    rows = [{"output": item.output, "max abs": number(item.max_abs), "rel L2": number(item.rel_l2),
             "PyTorch's own": number(item.noise), "problem": item.problem} for item in found]  # fmt: skip
    click.echo(f"{sample} through {graph}")
    click.echo(table(rows, ["output", "max abs", "rel L2", "PyTorch's own", "problem"]))
    return Exit.NOT_ACCEPTED if any(item.problem for item in found) else Exit.ACCEPTED


def _sample(folder: Path, case: str) -> Path:
    for sub in ("samples", "stress"):
        path = folder / sub / f"{case}.npz"
        if path.is_file() and path.parent == folder / sub:
            return path
    there = sorted(path.stem for sub in ("samples", "stress") for path in (folder / sub).glob("*.npz"))
    raise RecipeError(f"{folder}: no sample '{case}'", hint="samples: " + (", ".join(there) or "none"))


def _graph(done: record.Record, folder: Path, step: str) -> Path:
    newest = ""
    for result in done.results:
        if "graph" in result.artifacts:
            newest = result.artifacts["graph"].path
        if result.step == step:
            break
    if not newest:
        raise RecipeError(f"{folder}: the run wrote no graph before {step}")
    return folder / newest
