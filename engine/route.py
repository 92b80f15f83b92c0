"""The whole route on one page: text -> document -> recipe -> plan -> record -> verdict -> report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine import accept, auto_rules, interpret, locking, record, report, workspace
from engine.accept import Verdict
from engine.checks import hardware
from engine.claims import Claim
from engine.digests import digest_file
from engine.document import KeyPath
from engine.errors import Exit, Failure, Problem, RecipeError
from engine.intake import make_plan
from engine.interpret import Observer
from engine.locking import Locked
from engine.plain import to_plain
from engine.recipe import LoadedRecipe
from engine.record import Record
from engine.store.store import Store
from engine.values import Artifact

REPORT = "PORT_REPORT.md"


@dataclass(frozen=True)
class Outcome:
    """What a run came to: the record, the verdict, where the report lies, the exit code, and the lock."""

    record: Record
    verdict: Verdict
    report: Path
    exit_code: Exit
    message: str = ""
    lock: Locked | None = None
    wrote: str = ""  # what became of the recipe itself


def run(
    path: Path,
    out: Path | None,
    until: str,
    require: Sequence[str],
    observer: Observer,
    time_limit: float | None = None,
    locked: bool = False,
    write_rewrites: bool = False,
    store: Store | None = None,
    fresh: bool = False,
) -> Outcome:
    """Run a recipe from text to report.

    ``out`` holds everything; without it the files go to ``port/`` beside the recipe and the report
    beside the recipe itself. With ``locked`` the outcome must be the one in the recipe's lock; see
    :mod:`engine.locking`. With ``write_rewrites`` the recipe is given the rules that ``rewrites: auto`` chose,
    and no lock: it would be one of the recipe before. ``store`` and ``fresh`` are as in :func:`interpret.run`.
    """
    loaded, planned = make_plan(path)
    if write_rewrites:
        auto_rules.require(loaded)
    if found := hardware.asked(loaded):
        raise RecipeError(found)
    locking.require_place(loaded, None if locked else out)
    wanted = locking.before(loaded, planned, until) if locked else None
    beside = Path(loaded.document.file).parent
    folder = out or beside / "port"
    report_file = (out or beside) / REPORT
    with workspace.claim(folder, aside=store is not None):
        report_file.unlink(missing_ok=True)
        done = interpret.run(planned, folder.resolve(), until, observer, time_limit, store, fresh)
        verdict = accept.judge(done, require)
        record.write(done, folder, {"verdict": to_plain(verdict)})
        report.write(done, verdict, folder, report_file, store)
        lock = None if write_rewrites else locking.after(done, loaded, out, wanted)
    code = exit_code(done, verdict)
    if code == Exit.ACCEPTED and lock is not None and lock.state == "differs":
        code = Exit.NOT_ACCEPTED
    chosen = done.facts("rewrite").get("auto") if write_rewrites else None
    wrote = auto_rules.write(loaded, chosen["lines"]) if chosen else ""
    said = explain(done.failure, loaded, folder / "logs")
    return Outcome(done, verdict, report_file, code, said, lock, wrote)


def folder_of(run: Path) -> Path:
    """The folder with a run's files: of a recipe, a recipe's folder, the output folder itself or its record."""
    if run.suffix in (".yaml", ".yml"):
        run = run.parent
    if run.is_file():
        return run.parent
    return run if (run / record.FILE).is_file() else run / "port"


def render(path: Path, require: Sequence[str], target: Path | None) -> Outcome:
    """Judge and render a stored record again; nothing is run."""
    path = path.parent if path.suffix in (".yaml", ".yml") else path
    folder = folder_of(path)
    done = record.read(folder)
    verdict = _still_backed(accept.judge(done, require), done, folder)
    inside = path.is_file() or folder == path
    report_file = target or (folder if inside else path) / REPORT
    report.write(done, verdict, folder, report_file)
    return Outcome(done, verdict, report_file, exit_code(done, verdict))


def _still_backed(verdict: Verdict, done: Record, folder: Path) -> Verdict:
    """A stored verdict holds only while the files it is about are the ones that were judged."""
    faults = [
        Claim("files", "fail", "unchanged", where=artifact.path, why=fault)
        for result in done.results
        for artifact in result.artifacts.values()
        if (fault := _fault(artifact, folder))
    ]
    if not faults:
        return verdict
    headline = f"NOT ACCEPTED: {faults[0].where} {faults[0].why}" if verdict.accepted else verdict.headline
    return replace(verdict, accepted=False, headline=headline, claims=(*verdict.claims, *faults))


def require_unchanged(done: Record, folder: Path, files: Sequence[Path]) -> None:
    """Raise RecipeError where one of ``files``, or a weight file beside them, is not the one that the run wrote."""
    beside = {path.parent.resolve() for path in files if path.suffix == ".onnx"}
    for result in done.results:
        for artifact in result.artifacts.values():
            path = (folder / artifact.path).resolve()
            mine = path in {file.resolve() for file in files}
            weights = path.parent in beside and path.suffix != ".onnx"
            if (mine or weights) and (why := _fault(artifact, folder)):
                raise RecipeError(f"{folder / artifact.path} {why}", hint="run the recipe again")


def _fault(artifact: Artifact, folder: Path) -> str:
    path = folder / artifact.path
    if not path.resolve().is_relative_to(folder.resolve()):
        return "lies outside the folder of the run"
    if not path.is_file():
        return "is gone"
    same = path.stat().st_size == artifact.bytes and digest_file(path) == artifact.digest
    return "" if same else "was changed since the run"


def exit_code(done: Record, verdict: Verdict) -> Exit:
    """The exit code that a record and its verdict stand for."""
    if done.interrupted:
        return Exit.INTERRUPTED
    if done.failure is not None:
        if done.failure.bug:
            return Exit.BUG
        return Exit.USAGE if done.failure.usage else Exit.STEP_FAILED
    return Exit.ACCEPTED if verdict.accepted else Exit.NOT_ACCEPTED


def explain(failure: Failure | None, loaded: LoadedRecipe, log: Path | None = None) -> str:
    """A failure as one short message that names the recipe line it belongs to."""
    if failure is None:
        return ""
    text = failure.symptom + (f"\n        {failure.cause}" if failure.cause else "")
    if failure.bug:
        return f"portwright: a fault of Portwright, not of your recipe: {text}\nlog: {log}"
    problem: Problem | RecipeError
    if failure.where:
        problem = loaded.document.problem(key_path(failure.where), text, failure.fix, key=True)
    else:
        problem = Problem(f"{loaded.document.file}: {text}", hint=failure.fix)
    return str(problem)


def key_path(dotted: str) -> KeyPath:
    """``rewrites[0].rule`` as ``("rewrites", 0, "rule")``."""
    found = re.findall(r"([^.\[\]]+)|\[(\d+)\]", dotted)
    return tuple(int(index) if index else name for name, index in found)
