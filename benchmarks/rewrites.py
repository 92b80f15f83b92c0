"""ONNX's own node tests through ``portwright rewrite``: how many build before and after, and which are wrong.

    python benchmarks/rewrites.py [--op Attention --op DFT] [--for tensorrt-rtx==1.7.1.116] [--details]

All models go through the command's own function, which tries each untouched first. One that builds so must come out
byte for byte. What was rewritten is built again from the written file and run on the test's own inputs, in ONNX
Runtime or else in the reference evaluator, against the outputs that the test expects, at its tolerance.
The last line is ``built before / built after / wrong = ...``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from engine import refusals, toolchain, wording
from engine.rewriting import words
from engine.rewriting.result import Rewritten
from engine.rewriting.rewrite import Options, rewrite_files
from engine.rules.evaluate import CannotRunError, Evaluator
from engine.rules.suite import Case, cases, of_ops
from engine.toolchain import Toolchain

_SAME_BY_VALUE = "iu"  # kinds of numbers whose width may have changed


@dataclass(frozen=True)
class Outcome:
    """``wrong`` says what is wrong with what was made of it, ``left`` why it does not build."""

    case: Case
    before: bool
    after: bool
    wrong: str = ""
    left: str = ""


def measured(
    tests: Sequence[Case], tool: Toolchain, any_io_types: bool, folder: Path
) -> tuple[list[Outcome], list[Rewritten]]:
    source, out = folder / "in", folder / "out"
    source.mkdir()
    paths = [source / f"{case.name}.onnx" for case in tests]
    for case, path in zip(tests, paths, strict=True):
        onnx.save(case.model, path)
    options = Options(tool, any_io_types=any_io_types)
    results = dict(zip(paths, rewrite_files(paths, out, options, _progress), strict=True))
    unsound = [path for path, result in results.items() if result.verdict == "unsound"]
    as_is = dict(zip(unsound, _asked(tool, unsound, "not sound"), strict=True))
    changed = [path for path, result in results.items() if result.changed and result.output]
    again = dict(zip(changed, _asked(tool, [out / path.name for path in changed], "written"), strict=True))
    found = []
    for case, path in zip(tests, paths, strict=True):
        if path in as_is:
            found.append(Outcome(case, as_is[path], as_is[path], left=f"not sound: {results[path].why}"))
        else:
            found.append(_outcome(case, results[path], path, again.get(path, False)))
    return found, list(results.values())


def _outcome(case: Case, result: Rewritten, path: Path, again: bool) -> Outcome:
    left = result.why or "; ".join(item.text for item in result.remaining)
    if result.output is None:
        return Outcome(case, False, False, result.why, left)
    if result.changed:
        return Outcome(case, False, again, against_suite(case, Path(result.output)), left)
    built = result.verdict == "builds"
    wrong = "" if Path(result.output).read_bytes() == path.read_bytes() else "changed and not said so"
    return Outcome(case, built, built, wrong, left)


def against_suite(case: Case, path: Path) -> str:
    """Why the outputs of the model at ``path`` are not those that the test expects, or nothing."""
    model = ir.load(path)
    feeds = {}
    for value, given in zip(model.graph.inputs, case.inputs, strict=True):
        assert value.dtype is not None
        feeds[value.name or ""] = given.astype(value.dtype.numpy())
    why = ""
    for reference in (False, True):
        try:
            found = Evaluator(model, reference)(feeds)
        except CannotRunError as error:
            why = f"does not run: {error}"
            continue
        why = next(filter(None, map(_different, case.outputs, found.values(), [case] * len(found))), "")
        if not why:
            return ""
    return why


def _different(expected: np.ndarray, found: np.ndarray, case: Case) -> str:
    if expected.shape != found.shape:
        return f"shape {list(found.shape)} instead of {list(expected.shape)}"
    kinds = {expected.dtype.kind, found.dtype.kind}
    if expected.dtype != found.dtype and not kinds <= set(_SAME_BY_VALUE):
        return f"{found.dtype} instead of {expected.dtype}"
    if kinds <= set(_SAME_BY_VALUE + "b"):
        bad = expected != found
    else:
        with np.errstate(invalid="ignore"):
            one, two = expected.astype(np.complex128), found.astype(np.complex128)
            bad = ~np.isclose(two, one, rtol=case.rtol, atol=case.atol, equal_nan=True)
    if not bad.any():
        return ""
    worst = np.nanmax(np.abs(expected.astype(np.complex128) - found.astype(np.complex128)))
    return f"{int(bad.sum())} of {bad.size} numbers differ, by at most {worst:.2g}"


def _asked(tool: Toolchain, paths: Sequence[Path], what: str) -> list[bool]:
    answers = refusals.ask(tool, [refusals.Question(path) for path in paths],
                           on_answer=lambda done: _progress(what, done, len(paths)))  # fmt: skip
    return [answer.ok for answer in answers]


def _progress(text: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text} {done}/{total}", end="", file=sys.stderr, flush=True)


def operator(case: Case) -> str:
    """The operator that a test is about: its only one, or the one that its name begins with."""
    ops = {node.op_type for node in case.model.graph.node} - {"Constant"}
    if len(ops) == 1:
        return ops.pop()
    name = case.name.removeprefix("test_").replace("_", "")
    known = {schema.name for schema in onnx.defs.get_all_schemas() if name.startswith(schema.name.lower())}
    return max(known, key=len, default=case.model.graph.node[-1].op_type)


def table(found: Sequence[Outcome]) -> str:
    by_op: dict[str, list[Outcome]] = {}
    for outcome in found:
        by_op.setdefault(operator(outcome.case), []).append(outcome)
    whole = [op for op, items in by_op.items() if all(item.before and not item.wrong for item in items)]
    rows = [
        {"operator": op, "models": str(len(items)), "built before": str(sum(item.before for item in items)),
         "built after": str(sum(item.after for item in items)), "wrong": str(sum(bool(item.wrong) for item in items))}
        for op, items in sorted(by_op.items()) if op not in whole
    ]  # fmt: skip
    text = wording.table(rows, list(rows[0])) if rows else ""
    return f"{text}\n{len(whole)} other operators: all {sum(len(by_op[op]) for op in whole)} models built before"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--op", action="append", default=[], help="only models that hold this operator")
    parser.add_argument("--for", dest="spec", default="tensorrt-rtx")
    parser.add_argument("--any-io-types", action="store_true", help="integers of inputs and outputs may be wider")
    parser.add_argument("--details", action="store_true", help="say of each model that does not build what remains")
    options = parser.parse_args()
    tests = of_ops(options.op) if options.op else cases()
    if not tests:
        raise SystemExit(f"no test has an operator {' or '.join(options.op)}")
    tool = toolchain.resolve(options.spec)
    with tempfile.TemporaryDirectory(prefix="portwright-") as folder:
        found, results = measured(tests, tool, options.any_io_types, Path(folder))
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    if options.details:
        print(words.text([result for result in results if result.verdict != "builds"], toolchain.product(tool)))
    print(table(found))
    for outcome in found:
        if outcome.wrong:
            print(f"wrong: {outcome.case.name}: {outcome.wrong}")
        elif outcome.left.startswith("not sound"):
            print(f"not rewritten: {outcome.case.name}: {outcome.left}")
    untouched = sum(outcome.before and outcome.after and not outcome.wrong for outcome in found)
    print(f"{untouched} models built as they were and came out byte for byte")
    wrong = sum(bool(outcome.wrong) for outcome in found)
    before, after = (sum(getattr(outcome, when) for outcome in found) for when in ("before", "after"))
    print(f"{len(found)} models, {toolchain.product(tool)}")
    print(f"built before / built after / wrong = {before} / {after} / {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
