"""``portwright rewrite``: repair ONNX files for a toolchain, outside any recipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine import compatibility, toolchain
from engine.errors import Exit, RecipeError, quoted
from engine.plain import to_plain

if TYPE_CHECKING:
    from engine.rewriting.result import Rewritten


@click.command("rewrite")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Output folder."
)
@click.option(
    "--for", "spec", default="current", help="Toolchain: tensorrt-rtx==1.7.1.116, tensorrt, path:PYTHON."
)
@click.option(
    "--rules", "rules", multiple=True, metavar="NAME,...", help="Only these rules; all when left out."
)
@click.option("--sizes", "sizes", multiple=True, metavar="AXIS=MIN:OPT:MAX", help="Sizes of a symbolic axis.")
@click.option("--target", default=None, help="GPU to build for, such as sm89.")
@click.option("--any-io-types", is_flag=True, help="Types of inputs and outputs may change.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def command(
    files: tuple[Path, ...],
    out: Path,
    spec: str,
    rules: tuple[str, ...],
    sizes: tuple[str, ...],
    target: str | None,
    any_io_types: bool,
    as_json: bool,
) -> Exit:
    """Rewrite ONNX FILES so that a toolchain takes them, by the rules that it needs.

    The toolchain says which nodes it refuses; rules are applied at those, each application proven, and it is
    asked again. Exits 0 when all files build (or parse, where an axis has no sizes), 1 when something remains,
    2 for bad input (a file that is not sound is left out, the others are rewritten), 3 when a rewritten graph is not
    the same as the original.
    """
    from engine.rewriting import sizes as axis_sizes
    from engine.rewriting import words
    from engine.rewriting.rewrite import Options, rewrite_files

    tool = toolchain.resolve(spec)
    require_target(tool, target)
    names = [name.strip() for text in rules for name in text.split(",") if name.strip()]
    if rules and not names:
        raise RecipeError("--rules names no rule", hint="leave it out for all rules")
    options = Options(tool, axis_sizes.read(sizes), names or None, any_io_types, target)
    results = rewrite_files(files, out, options, progress)
    clear()
    product = toolchain.product(tool)
    if as_json:
        click.echo(json.dumps({"toolchain": product, "files": to_plain(results)}, indent=1))
    else:
        click.echo(words.text(results, product))
    return exit_code(results)


def require_target(tool: toolchain.Toolchain, target: str | None) -> None:
    known = compatibility.targets(tool.module, tool.version)
    if target is not None and known and target not in known:
        raise RecipeError(f"--target: {toolchain.product(tool)} does not build for {quoted(target)}",
                          hint=f"it builds for {', '.join(known)}")  # fmt: skip


def exit_code(results: Sequence[Rewritten]) -> Exit:
    verdicts = {result.verdict for result in results}
    if "failed" in verdicts:
        return Exit.STEP_FAILED
    if "unsound" in verdicts:
        return Exit.USAGE
    return Exit.NOT_ACCEPTED if "refused" in verdicts else Exit.ACCEPTED


def progress(text: str, done: int, total: int) -> None:
    """One line that is written over, on a terminal only."""
    if sys.stderr is not None and sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text} {done}/{total}", nl=False, err=True)


def clear() -> None:
    if sys.stderr is not None and sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
