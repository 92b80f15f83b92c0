"""Options that several commands share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import click

from engine.store.store import VARIABLE, Store, default_folder
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


def store(command: Command) -> Command:
    """``--store DIR``, ``--no-store``: the store of step results, opened, as ``store``; None without one."""

    @click.option(
        "--store",
        "store_folder",
        type=click.Path(path_type=Path, file_okay=False),
        help=f"Folder of the step results that are reused; otherwise ${VARIABLE} or the user's cache folder.",
    )
    @click.option("--no-store", is_flag=True, help="Run every step, and store nothing.")
    @functools.wraps(command)
    def with_store(*, store_folder: Path | None, no_store: bool, **rest: object) -> object:
        if store_folder is not None and no_store:
            raise click.UsageError("--store and --no-store exclude each other")
        return command(store=None if no_store else Store.open(store_folder or default_folder()), **rest)

    return cast(Command, with_store)
