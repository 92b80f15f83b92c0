"""Live progress: a moving bar on a terminal, plain lines elsewhere, JSON lines for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import click

from engine.plain import to_plain
from engine.steps import NAMES
from engine.values import StepResult


class Silent:
    """Nothing, or every event as a JSON line on stderr.

    A reader that goes away, such as ``head``, ends the telling and not the run: its report is still to be written.
    """

    def __init__(self, events: bool = False) -> None:
        self.events = events
        self._read = True

    def _say(self, text: str, err: bool = False) -> None:
        try:
            if self._read:
                click.echo(text, err=err)
        except BrokenPipeError:
            self._read = False

    def __enter__(self) -> Silent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def observe(self, event: Mapping[str, Any]) -> None:
        if self.events:
            self._say(json.dumps(to_plain(event)), err=True)


class Lines(Silent):
    """One line when a step ends."""

    def observe(self, event: Mapping[str, Any]) -> None:
        if event["kind"] == "step":
            self._say(summary(event["result"]))


class Bar(Silent):
    """A rich progress bar: one bar for the route, whose text is what the running step does."""

    @staticmethod
    def fits() -> bool:
        return sys.stdout is not None and sys.stdout.isatty()

    def __enter__(self) -> Bar:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            SpinnerColumn(), TextColumn("{task.fields[step]:<9}"), BarColumn(bar_width=30),
            TimeElapsedColumn(), TextColumn("{task.fields[text]}"),
        )  # fmt: skip
        self._task = self._progress.add_task("run", total=None, step="", text="")
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.update(self._task, visible=False)
        self._progress.stop()

    def observe(self, event: Mapping[str, Any]) -> None:
        if event["kind"] == "step-start":
            self._progress.reset(self._task, total=None, step=event["step"], text="")
        elif event["kind"] == "progress":
            total = event["total"] or None
            self._progress.update(
                self._task, total=total, completed=event["done"], step=event["step"], text=event["text"]
            )
        elif event["kind"] == "step":
            self._progress.console.print(summary(event["result"]), markup=False, highlight=False)


def summary(result: StepResult) -> str:
    """One line on a step that ended."""
    mark = {"ok": "ok", "failed": "FAILED", "not-run": "not run"}[result.status]
    index = NAMES.index(result.step) + 1
    why = result.why.splitlines()
    if result.reused:
        return f"[{index:>2}/{len(NAMES)}] {result.step:<9} reused   {why[0] if why else f'of {result.ended}'}"
    tail = f"{result.seconds:6.1f} s" if result.status == "ok" else why[0] if why else ""
    return f"[{index:>2}/{len(NAMES)}] {result.step:<9} {mark:<8} {tail}"
