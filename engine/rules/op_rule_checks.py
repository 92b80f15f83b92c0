"""What can be wrong with a rule for operators besides its form: names that the standard does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx

from engine.document import Document
from engine.errors import Problem
from engine.rules import standard
from engine.rules.pattern import Text
from engine.schema import nearest


def problems(doc: Document, ops: tuple[str, ...]) -> Iterator[Problem]:
    """Unknown operators, and names in ``where`` and ``proof`` that none of the operators has."""
    known = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    values: set[str] = set()
    attributes: set[str] = set()
    for index, op in enumerate(ops):
        if op not in known:
            path = ("op", index) if isinstance(doc.data["op"], list) else ("op",)
            yield doc.problem(path, f"op: unknown operator {op}", nearest(op, known))
        of_op = standard.names(op)
        values |= of_op[0]
        attributes |= of_op[1]
    yield from _names(doc, values, attributes)
    yield from cases(doc, ops)


def _names(doc: Document, values: set[str], attributes: set[str]) -> Iterator[Problem]:
    for name, conditions in doc.data.get("where", {}).items():
        if not _known(name, values | attributes):
            what = f"where: the operator has no '{name}'"
            yield doc.problem(("where", name), what, nearest(name, values | attributes), key=True)
            continue
        for key in conditions:
            if (key == "attribute") != (name in attributes):
                what = f"where.{name}: '{key}' is not for {'attributes' if key != 'attribute' else 'values'}"
                yield doc.problem(("where", name, key), what, key=True)
    for name in doc.data["proof"].get("values", {}):
        if not _known(name, values):
            what = f"proof.values: the operator has no input '{name}'"
            yield doc.problem(("proof", "values", name), what, nearest(name, values), key=True)


def _known(name: str, names: set[str]) -> bool:
    return name in names or re.sub(r"_\d+$", "", name) in names


def cases(doc: Document, ops: tuple[str, ...] = ()) -> Iterator[Problem]:
    """Cases that are not ONNX text, or have none of the operators."""
    for index, body in enumerate(doc.data["proof"].get("cases", ())):
        text = Text(doc, ("proof", "cases", index), body)
        try:
            graph = onnx.parser.parse_graph(body)
        except onnx.parser.ParseError as error:
            words = " ".join(str(error).split())
            yield text.problem(f"proof.cases: not ONNX text: {words[:200]}", 1)
            continue
        if ops and not any(node.op_type in ops for node in graph.node):
            yield text.problem(f"proof.cases: the graph has no {' or '.join(ops)}", 1)
