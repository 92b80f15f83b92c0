"""Rewrite rules that a recipe names: are they there, and has a rule file of its own the right form.

What its ONNX texts say takes onnx (:mod:`engine.intake`); whether its proof holds, the rewrite step tells.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from engine import document, schema
from engine.document import Document
from engine.errors import Place, Problem, RecipeError, quoted
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
            yield from form(path, _shown(loaded, index))


def _shown(loaded: LoadedRecipe, index: int) -> str:
    """A rule file's name for messages: as seen from where the recipe's own name is seen."""
    folder = os.path.dirname(loaded.document.place(("rewrites", index, "rule")).file)
    return os.path.normpath(os.path.join(folder, loaded.recipe.rules[index].rule))


def files(loaded: LoadedRecipe) -> list[tuple[Path, str]]:
    """The rule files that it names, each with its name for messages; none where none of them is the recipe's own."""
    named = [rewrite.rule for rewrite in loaded.recipe.rules]
    if not any(name.endswith(".yaml") for name in named):
        return []  # the shipped ones are checked beside each other by the test suite
    return [
        (loaded.beside("rewrites", index, "rule") / name, _shown(loaded, index))
        if name.endswith(".yaml")
        else (data_dir("rewrites") / f"{name}.yaml", f"{name}.yaml")
        for index, name in enumerate(named)
    ]


def form(path: Path, shown: str) -> Iterator[Problem]:
    """What is wrong with the form of a rule file."""
    try:
        doc = document.read(path, shown)
    except RecipeError as error:
        yield from error.problems
        return
    found = schema.problems(doc, "rule")
    yield from found or head(doc, path)


_FOR_OP = {(): ("definition",), ("proof",): ("suite", "cases", "values")}
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
    if sum(key in data for key in ("replace", "apply", "definition")) != 1:
        yield doc.problem(
            (),
            "a rule has either 'replace' (ONNX text), 'apply' (a Python file) or 'definition', one of them",
        )
    yield from _one_form(doc)
    if "apply" in data and data["apply"] != f"{path.stem}.py":
        yield doc.problem(("apply",), f"apply: the Python file must be named '{path.stem}.py'")
    elif "apply" in data and not (path.parent / data["apply"]).is_file():
        yield doc.problem(("apply",), f"apply: {data['apply']} does not exist beside the rule")
    elif "apply" in data:
        yield from _python(path.parent / data["apply"], os.path.join(os.path.dirname(doc.file), data["apply"]))
    written = data.get("opset")
    if isinstance(written, list) and (len(written) != 2 or written[0] > written[1]):
        yield doc.problem(("opset",), "opset: a range is [lowest, highest]")
    yield from _ranges(doc)


def _python(path: Path, shown: str) -> Iterator[Problem]:
    """What can be seen in the Python file without running it: its syntax, and the function that it must have."""
    try:
        text = document.text_of(path, shown)
        tree = ast.parse(text)
    except RecipeError as error:
        yield from error.problems
        return
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        source = (error.text or "").rstrip("\n")
        yield Problem(f"not valid Python: {error.msg}", Place(shown, line, max(column, 1)), source)
        return
    lines = text.splitlines()
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "apply"]
    if not found:
        what = "defines no function apply(graph, match), which the rule's 'apply' calls"
        yield Problem(what, Place(shown, 1, 1), lines[0] if lines else "")
    elif not _takes_two(found[-1].args):
        node = found[-1]
        what = "apply takes other arguments than (graph, match)"
        yield Problem(what, Place(shown, node.lineno, node.col_offset + 1), lines[node.lineno - 1], len("def apply"))


def _takes_two(arguments: ast.arguments) -> bool:
    given = len(arguments.posonlyargs) + len(arguments.args)
    open_ended = arguments.vararg is not None
    needed = given - len(arguments.defaults)
    unset = any(default is None for default in arguments.kw_defaults)
    return needed <= 2 and (given >= 2 or open_ended) and not unset


def _ranges(doc: Document) -> Iterator[Problem]:
    from engine import needed  # packaging takes 10 ms, and most recipes name no rule file

    for product, written in doc.data["needed_by"].items():
        why = needed.fault(written)
        if why:
            yield doc.problem(("needed_by", product), f"needed_by: {why}")
