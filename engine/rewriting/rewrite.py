"""Rewrite many ONNX files for one toolchain, in rounds over all of them at once."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.errors import Problem, RecipeError, StepError
from engine.refusals import SECONDS, Answer, ask
from engine.rewriting import finish, subject
from engine.rewriting import sizes as axis_sizes
from engine.rewriting.candidates import Candidates, require_usable
from engine.rewriting.repair import Repair
from engine.rewriting.result import Rewritten, Verdict
from engine.rewriting.sizes import Sizes
from engine.rewriting.subject import Subject
from engine.toolchain import Toolchain

ROUNDS = 10
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Options:
    """``rules`` restricts the library (None: all of it); ``folder`` is another library than the shipped one."""

    toolchain: Toolchain
    sizes: Sizes = field(default_factory=dict)
    rules: Collection[str] | None = None
    any_io_types: bool = False
    target: str | None = None
    seconds: int = SECONDS
    folder: Path | None = None


def rewrite_files(
    paths: Sequence[Path], out: Path, options: Options, progress: Progress = lambda text, done, total: None
) -> list[Rewritten]:
    """Repair each file and write it to ``out`` under its own name; the result of each, in the order of ``paths``.

    Raises RecipeError for whatever is wrong with what was asked, or with every file, before anything is written.
    """
    require_usable(options.rules or (), options.folder)
    opened = [subject.opened(path, options.sizes) for path in paths]
    subjects = [one for one in opened if isinstance(one, Subject)]
    bad = [one for one in opened if isinstance(one, Problem)]
    if not subjects:
        raise RecipeError(bad)
    _require_apart([one.path for one in subjects], out)
    if not bad:  # an axis may be one of a file that cannot be read
        axis_sizes.require_used(options.sizes, {name for one in subjects for name in axis_sizes.symbols(one.model)})
    _require_folder(out)
    candidates = Candidates(options.toolchain, axis_sizes.tried(options.sizes), options.rules, options.folder)
    repairs = [Repair(one, candidates) for one in subjects]
    for one in subjects:
        one.note_opset(options.toolchain)
    answers, rounds = rounds_of(repairs, options, progress)
    results = []
    for number, repair in enumerate(repairs):
        progress("checking and writing", number, len(repairs))
        results.append(_finished(repair, answers[number], rounds[number], out, options))
    done = iter(results)
    return [next(done) if isinstance(one, Subject) else _unsound(path, one)
            for path, one in zip(paths, opened, strict=True)]  # fmt: skip


def _unsound(path: Path, problem: Problem) -> Rewritten:
    why = problem.what.removeprefix(f"'{path}'").removeprefix(":").strip()
    return Rewritten(str(path), None, "unsound", why + (f"; {problem.hint}" if problem.hint else ""))


def rounds_of(
    repairs: Sequence[Repair], options: Options, progress: Progress
) -> tuple[list[Answer], list[int]]:
    """Ask and repair until all is taken, nothing changes any more, or ROUNDS are over: last answers, and rounds."""
    answers = [Answer("parse", False)] * len(repairs)
    rounds = [0] * len(repairs)
    asked = list(range(len(repairs)))
    with tempfile.TemporaryDirectory(prefix="portwright-") as scratch:
        for number in range(ROUNDS + 1):
            questions = [repairs[index].subject.question(Path(scratch) / str(index)) for index in asked]
            text = f"round {number + 1}: asking {options.toolchain.spec}"
            tell = functools.partial(_tell, progress, text, len(asked))
            found = ask(
                options.toolchain, questions, target=options.target, seconds=options.seconds, on_answer=tell
            )
            answers = _replaced(answers, zip(asked, found, strict=True))
            if number == ROUNDS:
                for index in asked:
                    if not answers[index].ok:
                        repairs[index].subject.notes.append(repairs[index].endless(ROUNDS))
                break
            again = []
            for nth, index in enumerate(asked):
                progress(f"round {number + 1}: rewriting", nth, len(asked))
                if answers[index].ok or answers[index].lacks_shapes:
                    continue
                if _changed(repairs[index], answers[index], options):
                    rounds[index] += 1
                    again.append(index)
            asked = again
            if not asked:
                break
    return answers, rounds


def _changed(repair: Repair, answer: Answer, options: Options) -> bool:
    """One round; a rule that cannot go on ends the work at its file alone."""
    try:
        return repair.round(answer) or repair.widen(options.any_io_types, answer)
    except (StepError, RecipeError) as error:
        repair.fault = error
        return False


def _tell(progress: Progress, text: str, total: int, done: int) -> None:
    progress(text, done, total)


def _replaced(answers: list[Answer], found: Iterable[tuple[int, Answer]]) -> list[Answer]:
    fresh = dict(found)
    return [fresh.get(index, answer) for index, answer in enumerate(answers)]


def _finished(repair: Repair, answer: Answer, rounds: int, out: Path, options: Options) -> Rewritten:
    subject = repair.subject
    verdict, why = _verdict(answer, subject)
    remaining = repair.remaining(answer)
    if verdict == "refused" and repair.take_back():
        remaining = repair.unwidened or ()
    subject.notes += repair.floats()
    if options.sizes and (by_size := sorted(repair.branching)):
        given = ", ".join(f"{name}={low}:{best}:{high}" for name, (low, best, high) in sorted(options.sizes.items()))
        rules = ", ".join(by_size)
        subject.notes.append(f"{rules}: right for the sizes given ({given}); others may need the other branch")
    notes = tuple(subject.notes)
    file = str(subject.path)
    if verdict != "refused" and not options.any_io_types and (kept := repair.double_ends()):
        verdict, why = "refused", f"{kept}; TensorRT makes it float32, which --any-io-types permits"
    if not subject.changed and repair.fault is None:
        written = finish.copy(subject.path, out)
        return Rewritten(file, str(written), verdict, why, remaining=remaining, notes=notes)
    used = tuple(repair.used.values())
    if repair.fault is not None:
        return Rewritten(file, None, "failed", _said(repair.fault), True, rounds, used, remaining, None, notes)
    try:
        written, whole = finish.write(
            subject,
            out,
            repair.tolerance,
            axis_sizes.tried(options.sizes),
            options.any_io_types,
            repair.reference,
            repair.corners,
        )
    except StepError as error:
        why = error.failure.symptom
        return Rewritten(file, None, "failed", why, True, rounds, used, remaining, None, notes)
    return Rewritten(file, str(written), verdict, why, True, rounds, used, remaining, whole, notes)


def _said(error: StepError | RecipeError) -> str:
    if isinstance(error, RecipeError):
        return str(error)
    return error.failure.symptom + (f" ({error.failure.cause})" if error.failure.cause else "")


def _verdict(answer: Answer, subject: Subject) -> tuple[Verdict, str]:
    if answer.lacks_shapes:
        return "parses", "not built: " + "; ".join(refusal.text for refusal in answer.refusals)
    if not answer.ok:
        return "refused", ""
    if subject.profile.lacking:
        return "parses", f"not built: no sizes for {subject.profile.lacking}"
    return "builds", ""


def _require_folder(out: Path) -> None:
    """Before any work: the folder is made, or can be written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecipeError(
            f"'{out}' cannot be made: {error.strerror or error}", hint="give another folder with -o"
        ) from error
    if not os.access(out, os.W_OK):
        raise RecipeError(f"'{out}' cannot be written to", hint="give another folder with -o")


def _require_apart(paths: Sequence[Path], out: Path) -> None:
    """No file may take the place of another one's, nor of its own original."""
    owner: dict[str, tuple[int, Path]] = {}
    problems = []
    for number, path in enumerate(paths):
        if path.resolve().parent == out.resolve():
            what = f"'{path}' lies in the output folder and would be written over"
            problems.append(Problem(what, hint="give another folder with -o"))
        for name, source in finish.targets(path).items():
            other, origin = owner.setdefault(name, (number, source))
            if source != origin or (other != number and name == path.name):
                problems.append(Problem(f"'{paths[other]}' and '{path}' would both be written to '{out / name}'",
                                        hint="rewrite them one at a time, into two folders"))  # fmt: skip
    if problems:
        raise RecipeError(problems)
