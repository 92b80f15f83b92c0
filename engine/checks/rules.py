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


_MATCH, _OP, _BOTH = "match", "op", "match or op"
_ONLY_FOR = {
    ("replace",): _MATCH, ("definition",): _OP, ("branch",): _OP, ("fold",): _OP, ("upstream",): _OP,
    ("apply",): _BOTH, ("where",): _BOTH, ("proof", "inputs"): _MATCH,
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
    ways = ("replace", "apply", "definition", "branch", "fold")
    if "types" not in data and sum(key in data for key in ways) != 1:
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
