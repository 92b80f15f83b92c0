"""The two texts of a rule (``match`` and ``replace``) in ONNX's textual syntax, parsed and checked.

A text is a signature and a body: ``(x) => (y) { y = Celu <alpha: float = @alpha> (x) }``. Constant
nodes in it stand for constants, ``@name`` captures an attribute.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.parser

from engine.document import Document
from engine.errors import Place, Problem, RecipeError
from engine.schema import nearest

FOREIGN_DOMAINS = ("com.microsoft",)  # the runtime that proves a rule knows these operators, ONNX does not
_SCALARS = ("value_float", "value_int", "value_floats", "value_ints")
_HEADER_LINES = 2


@dataclass(frozen=True)
class Capture:
    """``@name``: stands for whatever the attribute holds; ``type`` as in AttributeProto."""

    name: str
    type: int


@dataclass(frozen=True)
class PatternNode:
    """One node of a text; "" among ``inputs`` or ``outputs`` means left out."""

    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, onnx.AttributeProto | Capture]


@dataclass(frozen=True)
class Pattern:
    """A parsed text. ``constants`` maps a name to its array, or to a capture of its number."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[PatternNode, ...]
    constants: Mapping[str, np.ndarray[Any, Any] | Capture] = field(default_factory=dict)

    def captures(self) -> set[str]:
        found = {c.name for c in self.constants.values() if isinstance(c, Capture)}
        return found | {a.name for n in self.nodes for a in n.attributes.values() if isinstance(a, Capture)}

    def names(self) -> set[str]:
        """Every value name of the text."""
        return {name for n in self.nodes for name in (*n.inputs, *n.outputs) if name} | set(self.inputs)

    def producer(self, name: str) -> tuple[int, int] | None:
        """Index of the node that makes ``name`` and which of its outputs it is."""
        for index, node in enumerate(self.nodes):
            if name in node.outputs:
                return index, node.outputs.index(name)
        return None


@dataclass(frozen=True)
class Text:
    """A text inside a YAML document: knows the file line of each of its own lines."""

    document: Document
    path: tuple[str | int, ...]
    body: str

    def _first_line(self) -> int:
        """Index (from 0) of the file line that holds the first line of the body."""
        line = self.document.mark(self.path).line
        shown = self.document.lines[line] if line < len(self.document.lines) else ""
        return line + 1 if re.search(r"[|>][-+0-9]*\s*(#.*)?$", shown) else line

    def problem(self, what: str, line: int, column: int = 1, width: int = 1, hint: str = "") -> Problem:
        """A problem at ``line`` and ``column`` (from 1) of the body, placed in the file."""
        lines = self.body.split("\n")
        line = max(1, min(line, len(lines)))
        at = self._first_line() + line - 1
        shown = self.document.lines[at] if at < len(self.document.lines) else ""
        indent = max(shown.find(lines[line - 1]), 0)
        return Problem(what, Place(self.document.file, at + 1, indent + column), shown, width, hint)

    def at_word(self, word: str, what: str, hint: str = "", nth: int = 0) -> Problem:
        """A problem at the ``nth`` use of ``word`` in the body."""
        found = list(re.finditer(rf"(?<![\w.]){re.escape(word)}(?!\w)", self.body)) if word else []
        start = found[min(nth, len(found) - 1)].start() if found else 0
        line = self.body.count("\n", 0, start) + 1
        return self.problem(what, line, start - self.body.rfind("\n", 0, start), len(word) or 1, hint)


def parse(text: Text, opset: int) -> Pattern:
    """Parse and check a text for ``opset``. Raises RecipeError with every problem and its place."""
    function = _parse_function(text, opset)
    found = [*_node_problems(text, function, opset), *_flow_problems(text, function)]
    if found:
        raise RecipeError(found)
    return _pattern(function)


def _parse_function(text: Text, opset: int) -> onnx.FunctionProto:
    imports = "".join(f', "{domain}" : 1' for domain in FOREIGN_DOMAINS)
    header = f'<opset_import: ["" : {opset}{imports}], domain: "portwright.rule">\nrule\n'
    try:
        function = onnx.parser.parse_function(header + text.body)
    except onnx.parser.ParseError as error:
        raise RecipeError([_syntax_problem(text, error)]) from None
    _refuse_trailing(text)
    return function


def _syntax_problem(text: Text, error: Exception) -> Problem:
    raw = error.args[0] if error.args else ""
    message = raw.decode() if isinstance(raw, bytes) else str(raw)
    at = re.search(r"line: (\d+) column: (\d+)", message)
    line, column = (int(at[1]) - _HEADER_LINES, int(at[2])) if at else (1, 1)
    said = message.strip().splitlines()[-1] if message.strip() else "cannot be parsed"
    return text.problem(f"{text.path[-1]}: not valid ONNX text: {said}", line, max(column, 1),
                        hint="the form is (x) => (y) { y = Op <attribute = 1> (x) }")  # fmt: skip


def _refuse_trailing(text: Text) -> None:
    """The parser stops at the closing brace and ignores what follows; a rule may not."""
    code = re.sub(r'"[^"\n]*"|#[^\n]*', lambda hit: " " * len(hit[0]), text.body)
    depth = 0
    for index, char in enumerate(code):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "}" and depth == 0 and code[index + 1 :].strip():
            rest = index + 1 + len(code[index + 1 :]) - len(code[index + 1 :].lstrip())
            line, column = code.count("\n", 0, rest) + 1, rest - code.rfind("\n", 0, rest)
            raise RecipeError([text.problem(f"{text.path[-1]}: text after the closing brace", line, column)])


def _node_problems(text: Text, function: onnx.FunctionProto, opset: int) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for node in function.node:
        nth = seen[node.op_type] = seen.get(node.op_type, -1) + 1
        if node.domain in FOREIGN_DOMAINS:
            continue
        known = {s.name for s in onnx.defs.get_all_schemas() if s.domain == node.domain}
        if node.op_type not in known:
            yield text.at_word(node.op_type, f"{text.path[-1]}: unknown operator {node.op_type}",
                               nearest(node.op_type, known), nth)  # fmt: skip
        elif not onnx.defs.has(node.op_type, max_inclusive_version=opset, domain=node.domain):
            yield text.at_word(node.op_type, f"{text.path[-1]}: opset {opset} has no {node.op_type}",
                               "raise the rule's opset", nth)  # fmt: skip
        else:
            yield from _schema_problems(text, node, opset, nth)


def _schema_problems(text: Text, node: onnx.NodeProto, opset: int, nth: int) -> Iterator[Problem]:
    schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    op, at = node.op_type, f"{text.path[-1]}: "
    if not schema.min_input <= len(node.input) <= schema.max_input:
        most = "any number" if schema.max_input > 1000 else schema.max_input
        what = f"{at}{op} takes {schema.min_input} to {most} inputs, not {len(node.input)}"
        yield text.at_word(op, what, nth=nth)
    if len(node.output) > schema.max_output:
        yield text.at_word(op, f"{at}{op} has {schema.max_output} outputs, not {len(node.output)}", nth=nth)
    for attribute in node.attribute:
        word = attribute.name
        if word not in schema.attributes:
            hint = nearest(word, schema.attributes) or f"it has: {', '.join(sorted(schema.attributes))}"
            yield text.at_word(word, f"{at}{op} has no attribute {word}", hint)
        elif attribute.ref_attr_name and attribute.type == onnx.AttributeProto.UNDEFINED:
            kind = str(schema.attributes[word].type).rsplit(".", 1)[-1].lower()
            yield text.at_word(word, f"{at}the captured attribute {word} needs a type",
                               f"write {word}: {kind} = @{attribute.ref_attr_name}")  # fmt: skip
        elif attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            yield text.at_word(op, f"{at}{op} holds a subgraph; a rule cannot describe one", nth=nth)


def _flow_problems(text: Text, function: onnx.FunctionProto) -> Iterator[Problem]:
    at = f"{text.path[-1]}: "
    made = set(function.input)
    for node in function.node:
        for name in node.input:
            if name and name not in made:
                yield text.at_word(name, f"{at}{name} is used but nothing above makes it",
                                   nearest(name, made) or "add it to the inputs")  # fmt: skip
        for name in node.output:
            if name in made:
                yield text.at_word(name, f"{at}{name} is made twice", nth=1)
            if name:
                made.add(name)
    for name in function.output:
        if name not in made:
            yield text.at_word(name, f"{at}output {name} is not made", nearest(name, made))
        elif name in function.input:
            yield text.at_word(name, f"{at}output {name} is an input", f"write out = Identity({name})")
    for name in sorted({n for n in function.output if list(function.output).count(n) > 1}):
        yield text.at_word(name, f"{at}output {name} stands twice")


def _pattern(function: onnx.FunctionProto) -> Pattern:
    constants: dict[str, np.ndarray[Any, Any] | Capture] = {}
    nodes: list[PatternNode] = []
    for node in function.node:
        if node.op_type == "Constant" and node.domain == "":
            constants[node.output[0]] = _constant(node.attribute[0])
            continue
        attributes = {
            a.name: Capture(a.ref_attr_name, a.type) if a.ref_attr_name else a for a in node.attribute
        }
        nodes.append(
            PatternNode(node.op_type, node.domain, tuple(node.input), tuple(node.output), attributes)
        )
    return Pattern(tuple(function.input), tuple(function.output), tuple(nodes), constants)


def _constant(attribute: onnx.AttributeProto) -> np.ndarray[Any, Any] | Capture:
    if attribute.ref_attr_name:
        return Capture(attribute.ref_attr_name, attribute.type)
    if attribute.name == "value":
        return onnx.numpy_helper.to_array(attribute.t)
    if attribute.name not in _SCALARS:
        raise RecipeError(f"a Constant in a rule holds numbers, not {attribute.name}")
    dtype = np.float32 if "float" in attribute.name else np.int64
    return np.array(onnx.helper.get_attribute_value(attribute), dtype=dtype)
