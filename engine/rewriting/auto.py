"""``rewrites: auto``: for one graph of a run what ``portwright rewrite`` does for files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from engine.errors import StepError
from engine.graph import files, filled
from engine.rewriting import sizes as axis_sizes
from engine.rewriting.candidates import Candidates
from engine.rewriting.repair import Repair
from engine.rewriting.result import Remaining, Used
from engine.rewriting.rewrite import Options, rounds_of
from engine.rewriting.subject import Subject
from engine.rules.apply import apply_rule
from engine.rules.language import load_rule
from engine.rules.library import path_of


@dataclass(frozen=True)
class Chosen:
    """The rewritten graph, or None where nothing fits. ``lines`` are the rules to name, each with its matches."""

    model: ir.Model | None
    used: tuple[Used, ...]
    remaining: tuple[Remaining, ...]
    lines: tuple[tuple[str, int], ...]


def choose(path: Path, options: Options, progress: Callable[[str, int, int], None]) -> Chosen:
    """Ask the toolchain about the graph at ``path`` and apply what it needs, until nothing changes any more."""
    subject = Subject(path, options.sizes)
    candidates = Candidates(options.toolchain, axis_sizes.tried(options.sizes), options.rules, options.folder)
    repair = Repair(subject, candidates)
    [answer], _ = rounds_of([repair], replace(options, any_io_types=False), progress)
    if repair.fault is not None:
        raise repair.fault
    remaining = repair.remaining(answer)
    if not answer.ok and not answer.lacks_shapes and repair.take_back():
        return Chosen(None, (), repair.unwidened or (), ())
    model = subject.model if subject.changed else None
    return Chosen(model, tuple(repair.used.values()), remaining, _lines(path, repair, candidates))


def _lines(path: Path, repair: Repair, candidates: Candidates) -> tuple[tuple[str, int], ...]:
    """What a recipe must name to the same effect. A named rule is applied wherever it fits, so that is counted anew."""
    model = files.load(path)
    filled.fill(model)
    lines = []
    for name in repair.order:
        rule = load_rule(path_of(name, candidates.folder))
        try:
            done = apply_rule(model, rule, prover=candidates.prover(rule), sizes=candidates.axes)
        except StepError:
            continue  # an earlier line took all that it fits
        lines.append((name, len(done.accepted)))
    return tuple(lines)
