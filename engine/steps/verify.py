"""Run the engine on a GPU against the references. Not part of this version: always reported as not run."""

from __future__ import annotations

from engine import toolchain
from engine.steps.context import Context, Done


def run(context: Context) -> Done:
    """Never claims anything: says why the engine was not executed."""
    usable, why = toolchain.has_gpu()
    if not usable:
        return Done(skipped=f"no GPU: {why}")
    return Done(skipped="a GPU is here, but this version of Portwright does not execute engines yet")
