"""The text of the recipe, with a comment for every choice and the word DECIDE where a person has to make it."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from engine import __version__
from engine.initial.asked import Asked
from engine.initial.findings import Findings
from engine.plan import DEFAULT_OPSET
from engine.recipe import Exporter, FloatType
from engine.writing import flow, scalar

_WIDTH = 108
_NO_NAMES = {
    "load",
    "model",
    "models",
    "main",
    "net",
    "build",
    "make",
    "create",
    "get",
    "get_model",
    "load_model",
}


@dataclass(frozen=True)
class Choices:
    """What the measuring run decides. ``limits`` are by ``onnx`` and ``engine``, each metric's figure and comment."""

    exporter: Exporter | Literal["none"] = "dynamo"
    exporter_why: str = ""
    base: FloatType = "fp16"
    base_why: str = ""
    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    limits_why: Mapping[str, str] = field(default_factory=dict)


def text(asked: Asked, found: Findings, choices: Choices, folder: Path, schema: str) -> str:
    """The recipe as it is written into ``folder``; ``schema`` is what editors are pointed at."""
    parts = [
        [f"# yaml-language-server: $schema={schema}"],
        _comment(
            f"Written by portwright init {__version__} after {found.attempts} attempts with the model. Each"
            " comment says how a choice was made. DECIDE marks what could not be found out: a person has to"
            " settle it before this recipe stands for a requirement.", ""
        ),
        ["portwright: 1", f"name: {scalar(_name(asked))}", f"about: {found.module}, {_size(found.parameters)}.", ""],
        _model(asked, folder),
        list(_axes(found)),
        list(_inputs(found)),
        list(_outputs(found)),
        list(_export(asked, choices)),
        list(_precision(choices)),
        list(_build()),
        list(_accept(choices)),
    ]  # fmt: skip
    return "\n".join(line for part in parts for line in part).rstrip("\n") + "\n"


def _comment(words: str, indent: str) -> list[str]:
    # A comment is one line of text; what a library says may hold line ends and control characters.
    clean = re.sub(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\ufffd]", " ", " ".join(words.split()))
    return textwrap.wrap(
        clean, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ", break_on_hyphens=False
    )


def _name(asked: Asked) -> str:
    file = Path(asked.file)
    words = (asked.function, file.stem, file.parent.name)
    word = next((word for word in words if word and word.lower() not in _NO_NAMES), words[-1])
    return re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") or "model"


def _size(parameters: int) -> str:
    for unit, name in ((10**9, " G"), (10**6, " M"), (10**3, " k")):
        if parameters >= unit:
            return f"{parameters / unit:.3g}{name} parameters"
    return f"{parameters} parameters"


def relative(path: str, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _model(asked: Asked, folder: Path) -> list[str]:
    if asked.onnx:
        return [f"model: {{onnx: {scalar(relative(asked.file, folder))}}}", ""]
    lines = ["model:", f"  python: {scalar(f'{relative(asked.file, folder)}:{asked.function}')}"]
    if asked.weights is not None:
        path = str(asked.weights.path)
        package = f"package: {scalar(asked.weights.package)}, " if asked.weights.package else ""
        inside = path if package else relative(path, folder)
        lines.append(f"  weights: {{{package}path: {scalar(inside)}}}")
    return [*lines, ""]


def _axes(found: Findings) -> Iterator[str]:
    if not found.axes:
        yield "# No axis can be dynamic; see each input for why."
        return
    yield "axes:"
    for name, item in found.axes.items():
        for line in item.why:
            yield from _comment(line, "  ")
        if item.asked:
            yield from _comment("Range as given by --axis.", "  ")
        else:
            yield from _comment(
                "DECIDE the range and the usual size: they are a guess, the engine takes no other size.", "  "
            )
        axis = item.axis
        yield f"  {scalar(name)}: {{min: {axis.min}, opt: {axis.opt}, max: {axis.max}}}"
    yield ""


def _inputs(found: Findings) -> Iterator[str]:
    yield "inputs:"
    for name, item in found.inputs.items():
        for line in item.why:
            yield from _comment(line, "  ")
        values = f", values: {item.values}" if item.values else ""
        yield f"  {scalar(name)}: {{dtype: {item.dtype}, shape: {flow(item.shape)}{values}}}"
    for name, default in found.left_out.items():
        told = f"optional (default {default[:60]}). DECIDE; --input {name}:DTYPE takes it in."
        if default != "None":
            told = f"no tensor; it stays {default[:60]}. Wrap the model in a module that sets it to have another."
        yield from _comment(f"Left out: {name}, {told}", "  ")
    yield ""


def _outputs(found: Findings) -> Iterator[str]:
    yield from _comment(f"Names: {found.outputs_why}.", "")
    for name, why in found.dropped.items():
        yield from _comment(f"Left out: '{name}' {why}.", "")
    yield f"outputs: {flow(found.outputs)}"
    yield ""


def _export(asked: Asked, choices: Choices) -> Iterator[str]:
    if asked.onnx:
        if asked.opset:
            yield from (f"export: {{opset: {asked.opset}}}  # as given by --opset; the file has it", "")
        return
    told = "as given by --opset" if asked.opset else "the language's default"
    yield from _comment(f"Opset: {told}. {choices.exporter_why}", "")
    yield f"export: {{opset: {asked.opset or DEFAULT_OPSET}, exporter: {choices.exporter}}}"
    yield ""


def _precision(choices: Choices) -> Iterator[str]:
    yield "precision:"
    yield from _comment(choices.base_why, "  ")
    yield f"  base: {choices.base}"
    yield ""


def _build() -> Iterator[str]:
    yield from _comment("DECIDE the GPU; sm89 is only an example. The build was not tried by init.", "")
    yield "build: {target: sm89}"
    yield ""


def _accept(choices: Choices) -> Iterator[str]:
    yield from _comment(
        "DECIDE the limits. These are a starting point taken from the model's own errors, not a requirement:"
        " they notice a port that gets worse, they do not say that it is good enough.", ""
    )  # fmt: skip
    yield "accept:"
    for key, metrics in choices.limits.items():
        yield from _comment(choices.limits_why.get(key, ""), "  ")
        yield f"  {key}: {{{', '.join(f'{name}: {number(value)}' for name, value in metrics.items())}}}"


def number(value: float) -> str:
    """A float as YAML 1.1 takes it for one: with a point before the exponent."""
    return f"{value:.1e}"


def decisions(recipe: str) -> Sequence[str]:
    """The comment lines that ask for a decision, the header left out."""
    return [line.strip("# ") for line in recipe.splitlines()[4:] if "DECIDE" in line]
