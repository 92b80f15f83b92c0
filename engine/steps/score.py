"""Task metrics on labelled data. The recipe language cannot ask for them yet."""

from __future__ import annotations

from engine.steps.context import Context, Done


def run(context: Context) -> Done:
    """Nothing to do."""
    return Done(skipped="not part of this version: a recipe cannot name labelled data")
