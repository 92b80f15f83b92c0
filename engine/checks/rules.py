"""Rewrite rules that a recipe names: are they there, and has a rule file of its own the right form.

What its ONNX texts say, and whether its proof holds, only the rewrite step can tell: that takes onnx.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from engine import document, schema
from engine.document import Document
from engine.errors import Problem, RecipeError, quoted
from engine.paths import data_dir
from engine.recipe import LoadedRecipe
from engine.schema import nearest


def problems(loaded: LoadedRecipe) -> Iterator[Problem]:
    """Problems of ``rewrites``; those of a rule file have their place in that file, once."""
    at = loaded.document.problem
    known = {file.stem for file in data_dir("rewrites").glob("*.yaml")}
    read: set[Path] = set()
    for index, rewrite in enumerate(loaded.recipe.rules):
        where = ("rewrites", index, "rule")
        path = loaded.beside(*where) / rewrite.rule
        if not rewrite.rule.endswith(".yaml"):
            if rewrite.rule not in known:
                hint = nearest(rewrite.rule, known) or "rules: " + ", ".join(sorted(known))
                yield at(where, f"no rule {quoted(rewrite.rule)}", hint)
        elif not os.path.isfile(path):
            yield at(where, f"no rule file {quoted(rewrite.rule)} beside the recipe")
        elif path not in read:
            read.add(path)
            folder = os.path.dirname(loaded.document.place(where).file)
            yield from form(path, os.path.normpath(os.path.join(folder, rewrite.rule)))


def form(path: Path, shown: str) -> Iterator[Problem]:
    """What is wrong with the form of a rule file."""
    try:
        doc = document.read(path, shown)
    except RecipeError as error:
        yield from error.problems
        return
    found = schema.problems(doc, "rule")
    yield from found or head(doc, path)


_FOR_OP = {(): ("definition", "branch", "fold"), ("proof",): ("suite", "cases", "values")}
_FOR_MATCH = {(): ("replace",), ("proof",): ("inputs", "axes", "attributes", "context", "opsets")}


def _one_form(doc: Document) -> Iterator[Problem]:
    """Keys of the one form of a rule (``match``) that stand in the other (``op``)."""
    by_op = "op" in doc.data
    for path, keys in (_FOR_MATCH if by_op else _FOR_OP).items():
        part = doc.data["proof"] if path else doc.data
        for key in keys:
            if key in part:
                what = f"{'.'.join((*path, key))} is for a rule with {'match' if by_op else 'op'}"
                yield doc.problem((*path, key), what, key=True)
    proof = doc.data["proof"]
    if by_op and not ("suite" in proof or "cases" in proof):
        yield doc.problem(("proof",), "proof: a rule with op needs cases or suite to prove it on", key=True)
    if not by_op and "inputs" not in proof:
        yield doc.problem(("proof",), "proof: a rule with match needs inputs", key=True)


def head(doc: Document, path: Path) -> Iterator[Problem]:
    """What does not fit together in a rule that passed the schema, its ONNX texts left aside."""
    data = doc.data
    if data["rule"] != path.stem:
        yield doc.problem(("rule",), f"rule '{data['rule']}' must have the name of its file, '{path.stem}'")
    if ("match" in data) == ("op" in data):
        yield doc.problem(
            (), "a rule has either 'match' (ONNX text) or 'op' (an operator's name), one of them"
        )
    if sum(key in data for key in ("replace", "apply", "definition", "branch", "fold")) != 1:
        yield doc.problem(
            (),
            "a rule has either 'replace' (ONNX text), 'apply' (a Python file), 'definition', 'branch' or 'fold',"
            " one of them",
        )
    if "branch" in data and data.get("op") != "If":
        yield doc.problem(("branch",), "branch is for a rule with op: If", key=True)
    yield from _one_form(doc)
    if "apply" in data and data["apply"] != f"{path.stem}.py":
        yield doc.problem(("apply",), f"apply: the Python file must be named '{path.stem}.py'")
    elif "apply" in data and not (path.parent / data["apply"]).is_file():
        yield doc.problem(("apply",), f"apply: {data['apply']} does not exist beside the rule")
    written = data.get("opset")
    if isinstance(written, list) and (len(written) != 2 or written[0] > written[1]):
        yield doc.problem(("opset",), "opset: a range is [lowest, highest]")
    yield from _ranges(doc)


def _ranges(doc: Document) -> Iterator[Problem]:
    from engine import needed  # packaging takes 10 ms, and most recipes name no rule file

    for product, written in doc.data["needed_by"].items():
        why = needed.fault(written)
        if why:
            yield doc.problem(("needed_by", product), f"needed_by: {why}")
