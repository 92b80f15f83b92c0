"""Run the engine on a GPU against the references. Not part of this version: always reported as not run."""

from __future__ import annotations

from engine import toolchain
from engine.steps.context import Context, Done


def run(context: Context) -> Done:
    """Never claims anything: says why the engine was not executed."""
    usable, why = toolchain.has_gpu()
    here = "a GPU is here" if usable else f"no GPU here either: {why}"
    return Done(skipped=f"not part of this version ({here})")
