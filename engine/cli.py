"""The command line: the only place that prints or picks an exit code. One module a command in ``commands/``."""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
import tempfile
import traceback
from pathlib import Path

import click

from engine import __version__
from engine.errors import Exit, PortwrightError, RecipeError

COMMANDS = (
    "init", "check", "plan", "run", "why", "diagnose", "search", "upgrade", "prune", "report", "replay", "show", "diff",
    "fmt", "rewrite", "rules", "explain", "toolchain", "cache", "schema", "doctor",
)  # fmt: skip


class Lazy(click.Group):
    """Imports a command's module when it is asked for: ``check`` must not pay for ``run``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"engine.commands.{cmd_name}").command
        return command


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="portwright")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Port PyTorch models to TensorRT by recipe, and prove it.

    \b
    Exit codes: 0 accepted, 1 ran but not accepted, 2 recipe or usage wrong,
    3 a step failed, 4 a fault of Portwright, 130 interrupted,
    141 whoever read the output went away.
    """
    context.obj = debug


def main() -> None:
    """Entry point of ``portwright``."""
    debug = "--debug" in sys.argv
    gc.set_threshold(50_000, 20, 20)  # a command mostly imports: collecting garbage is a tenth of its time
    _say_anything()
    try:
        code = cli(standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # click makes an exit of a broken pipe, and of nothing else here
        code = _reader_gone()
    except click.exceptions.Abort:
        code = Exit.INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = Exit.USAGE
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    except PortwrightError as error:
        if debug:
            traceback.print_exc()
        click.echo(_told(error), err=True)
        code = error.exit_code
    except OSError as error:
        from engine import workspace

        if not (why := workspace.outside(error)):
            code = _bug(debug)
        else:
            click.echo(f"portwright: {why}", err=True)
            code = Exit.STEP_FAILED
    except Exception:  # noqa: BLE001 - the outermost edge: whatever gets here is a fault of ours
        code = _bug(debug)
    sys.exit(int(code or 0))


def _reader_gone() -> Exit:
    """A reader that went away, such as ``head``, ends the command quietly; 0 and 1 would be verdicts."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # what is still buffered is flushed at exit and has nowhere to go
        os.dup2(nowhere, stream)
    return Exit.READER_GONE


def _say_anything() -> None:
    """No name of a file and no text of a recipe may end the command because the locale lacks a letter."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            if stream.encoding.lower().replace("_", "-") in (
                "ascii",
                "us-ascii",
                "ansi-x3.4-1968",
                "utf-8",
                "utf8",
            ):
                # Bytes of a path that are no UTF-8, or that Python did not decode, are printed as they are.
                stream.reconfigure(encoding="utf-8", errors="surrogateescape")
            else:
                stream.reconfigure(errors="backslashreplace")


def _told(error: PortwrightError) -> str:
    if not isinstance(error, RecipeError):
        return str(error)
    count = f"\n{len(error.problems)} problems" if len(error.problems) > 1 else ""
    return f"{error}{count}{_more(error)}"


def _more(error: RecipeError) -> str:
    """Where the keys are described that the problems are about."""
    from engine import schema

    keys = [
        key for key in schema.load("recipe")["properties"] if key in {item.about for item in error.problems}
    ]
    pages = ", ".join(f"docs/recipe-reference.md#{key}" for key in keys)
    return f"\nread more: {pages}; or `portwright schema`" if pages else ""


def _bug(debug: bool) -> Exit:
    text = traceback.format_exc()
    if debug:
        click.echo(text, err=True)
    with tempfile.NamedTemporaryFile(
        "w", prefix="portwright-", suffix=".log", delete=False, encoding="utf-8", errors="surrogateescape"
    ) as log:
        log.write(f"portwright {__version__}\n{' '.join(sys.argv)}\n{text}")
    last = text.strip().splitlines()[-1]
    click.echo(
        f"portwright: a fault of Portwright, not of your recipe: {last}\nlog: {Path(log.name)}", err=True
    )
    return Exit.BUG


if __name__ == "__main__":
    main()
