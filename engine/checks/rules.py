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


_MATCH, _OP, _BOTH = "match", "op", "match or op"
_ONLY_FOR = {
    ("replace",): _MATCH, ("definition",): _OP, ("apply",): _BOTH, ("upstream",): _OP, ("where",): _BOTH,
    ("proof", "inputs"): _MATCH,
    ("proof", "axes"): _MATCH, ("proof", "attributes"): _MATCH, ("proof", "context"): _MATCH,
    ("proof", "opsets"): _MATCH, ("proof", "suite"): _OP, ("proof", "cases"): "op or types", ("proof", "values"): _OP,
}  # fmt: skip


def _one_form(doc: Document) -> Iterator[Problem]:
    """Keys of one form of a rule (``match``, ``op``, ``types``) that stand in another."""
    form = next((key for key in ("types", "op") if key in doc.data), _MATCH)
    for path, forms in _ONLY_FOR.items():
        part = doc.data["proof"] if len(path) > 1 else doc.data
        if path[-1] in part and form not in forms.split(" or "):
            yield doc.problem(path, f"{'.'.join(path)} is for a rule with {forms}", key=True)
    proof, by_op = doc.data["proof"], form != _MATCH
    if "upstream" in doc.data and "apply" not in doc.data:
        yield doc.problem(("upstream",), "upstream: only an apply function can replace so much", key=True)
    if form == "types":
        yield from _types(doc)
    if form == _OP and not ("suite" in proof or "cases" in proof):
        yield doc.problem(("proof",), "proof: a rule with op needs cases or suite to prove it on", key=True)
    if not by_op and "inputs" not in proof:
        yield doc.problem(("proof",), "proof: a rule with match needs inputs", key=True)


_BITS = {"uint8": 8, "int16": 15, "uint16": 16, "uint32": 32, "int32": 31, "int64": 63}  # of a positive number


def _types(doc: Document) -> Iterator[Problem]:
    for narrow, wide in doc.data["types"].items():
        if _BITS[wide] < _BITS[narrow]:
            yield doc.problem(("types", narrow), f"types: {wide} does not hold every number of {narrow}")
    if "cases" not in doc.data["proof"]:
        yield doc.problem(("proof",), "proof: a rule with types needs cases to prove it on", key=True)
    for limit, value in doc.data["proof"]["equal"].items():
        if value:
            what = "proof.equal: a rule with types is exact: whole numbers are the same or they are not"
            yield doc.problem(("proof", "equal", limit), what)


def head(doc: Document, path: Path) -> Iterator[Problem]:
    """What does not fit together in a rule that passed the schema, its ONNX texts left aside."""
    data = doc.data
    if data["rule"] != path.stem:
        yield doc.problem(("rule",), f"rule '{data['rule']}' must have the name of its file, '{path.stem}'")
    if sum(key in data for key in ("match", "op", "types")) != 1:
        what = "a rule has either 'match' (ONNX text), 'op' (an operator's name) or 'types', one of them"
        yield doc.problem((), what)
    if "types" not in data and sum(key in data for key in ("replace", "apply", "definition")) != 1:
        yield doc.problem(
            (),
            "a rule has either 'replace' (ONNX text), 'apply' (a Python file) or 'definition', one of them",
        )
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
