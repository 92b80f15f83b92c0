"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from engine.toolchains import places

Command = TypeVar("Command", bound=Callable[..., object])


def toolchains_folder(command: Command) -> Command:
    """``--toolchains DIR``. It goes into the environment, so that the processes of a run find it as well."""

    def set_it(context: click.Context, option: click.Parameter, value: Path | None) -> None:
        if value is not None:
            os.environ[places.VARIABLE] = str(value.absolute())

    return click.option(
        "--toolchains",
        type=click.Path(path_type=Path, file_okay=False),
        callback=set_it,
        expose_value=False,
        is_eager=True,
        help=f"Folder of the toolchains that were added; otherwise ${places.VARIABLE} or the user's data folder.",
    )(command)
