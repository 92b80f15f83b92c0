"""The keys of a YAML text in the order of a schema, by moving lines; comments travel with the key below them.

Nothing is parsed and written again here: every line, quote and comment stays as it was typed. Lists, and
mappings whose keys the user names, keep their order.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

_LINE = re.compile(r"[^\n\r\x85\u2028\u2029]*(?:\r\n|[\n\r\x85\u2028\u2029]|\Z)")
_LOADER = yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader
Schema = Mapping[str, Any]


def split(text: str) -> list[str]:
    """Lines with their ends, cut where the YAML scanner cuts."""
    return [line for line in _LINE.findall(text) if line]


def ordered(text: str, schema: Schema) -> str:
    """``text`` with the keys of every mapping in the order of ``schema``'s properties, unknown ones last."""
    root = yaml.compose(text, Loader=_LOADER)
    if root is None:
        return text
    moving = _Moving(split(text), schema)
    if isinstance(root, yaml.CollectionNode) and root.flow_style:
        moving.flow_at(root, schema)
    elif isinstance(root, yaml.MappingNode):
        moving.mapping(root, schema, root.value[0][0].start_mark.line, len(moving.lines))
    return "".join(moving.lines)


def comments(text: str) -> Counter[str]:
    """Every comment of a YAML text, without the blanks around it."""
    lines, found = split(text), Counter[str]()
    at = (0, 0)
    for token in yaml.scan(text, Loader=_LOADER):
        start, end = (
            (token.start_mark.line, token.start_mark.column),
            (token.end_mark.line, token.end_mark.column),
        )
        if isinstance(token, yaml.ScalarToken) and token.style in ("|", ">"):
            found.update(_comments_in([lines[start[0]][start[1] :]]))
        if start >= at:
            found.update(_comments_in(_between(lines, at, start)))
            at = end
    found.update(_comments_in(_between(lines, at, (len(lines), 0))))
    return found


def _comments_in(parts: list[str]) -> Iterator[str]:
    for part in parts:
        hit = re.search(r"(?:^|\s)(#.*)", part)
        if hit:
            yield hit[1].strip()


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> list[str]:
    if start[0] >= len(lines):
        return []
    if start[0] == end[0]:
        return [lines[start[0]][start[1] : end[1]]]
    parts = [lines[start[0]][start[1] :], *lines[start[0] + 1 : end[0]]]
    return parts + ([lines[end[0]][: end[1]]] if end[0] < len(lines) else [])


class _Moving:
    """The lines of a text; each mapping permutes those it stands on, so that no line number outside changes."""

    def __init__(self, lines: list[str], root: Schema) -> None:
        self.lines, self.root = lines, root
        self.starts = [0, *itertools.accumulate(map(len, lines))]
        self.text = "".join(lines)

    def mapping(self, node: yaml.MappingNode, schema: Schema, low: int, high: int) -> None:
        """Order a block mapping that has the lines ``low`` to ``high``; its children first."""
        schema = self._resolved(schema)
        column = node.value[0][0].start_mark.column
        heads = [key.start_mark.line for key, _ in node.value]
        # Comments after the last entry stay at the end, unless they are deeper and so belong to it.
        end = self._lead(high, self._last(node.value[-1][1], heads[-1]), column)
        tops = [low, *(self._lead(heads[i + 1], self._last(value, heads[i]), column)
                       for i, (_, value) in enumerate(node.value[:-1]))]  # fmt: skip
        for index, (key, value) in enumerate(node.value):
            below = (tops + [end])[index + 1]
            self._value(value, _child(schema, key.value), heads[index] + 1, below)
        plain = (
            all(self._stands_alone(head, column) for head in heads[1:])
            and "?" not in self.lines[low][:column]
        )
        ranks = _ranks(schema, [key.value for key, _ in node.value])
        order = sorted(range(len(heads)), key=lambda index: (ranks[index], index))
        if plain and order != list(range(len(heads))):
            chunks = [(self.lines[top:head], self.lines[head:stop])
                      for top, head, stop in zip(tops, heads, [*tops[1:], end], strict=True)]  # fmt: skip
            self.lines[low:end] = _permuted(chunks, order, column)

    def _value(self, node: yaml.Node, schema: Schema, low: int, high: int) -> None:
        if not isinstance(node, yaml.CollectionNode):
            return
        if node.flow_style:
            self.flow_at(node, schema)
        elif isinstance(node, yaml.MappingNode):
            self.mapping(node, schema, low, high)
        else:
            below = self._resolved(self._resolved(schema).get("items", {}))
            starts = [item.start_mark.line for item in node.value]
            for item, line, end in zip(node.value, starts, [*starts[1:], high], strict=True):
                self._value(item, below, line, max(end, self._last(item, line) + 1))

    def _stands_alone(self, line: int, column: int) -> bool:
        return not self.lines[line][:column].strip()

    def _last(self, node: yaml.Node, line: int) -> int:
        """The last line with something of ``node`` on it; ``line`` when it is empty."""
        if isinstance(node, yaml.CollectionNode) and not node.flow_style:
            if isinstance(node, yaml.MappingNode):
                key, value = node.value[-1]
                return self._last(value, key.end_mark.line)
            return self._last(node.value[-1], node.value[-1].start_mark.line)
        if isinstance(node, yaml.ScalarNode) and not node.value and not node.style:
            return line
        block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
        end = node.end_mark
        return int(end.line - 1 if block and end.column == 0 else end.line)

    def _lead(self, line: int, last: int, column: int) -> int:
        """The first line of what stands above ``line`` and belongs to it, ``last`` being the last line before that."""
        top = last + 1
        for index in range(last + 1, line):
            text = self.lines[index]
            if text.strip() and len(text) - len(text.lstrip()) > column:
                top = index + 1  # a comment deeper than the key belongs to what is above
        return top

    def _resolved(self, schema: Schema) -> Schema:
        if "$ref" in schema:
            named = self.root["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
            return {**named, **{key: value for key, value in schema.items() if key != "$ref"}}
        return schema

    def flow_at(self, node: yaml.Node, schema: Schema) -> None:
        """Order a ``{...}`` or ``[...]`` in place; it keeps its number of lines."""
        first, last = node.start_mark.line, node.end_mark.line
        text = self._flow(node, schema)
        if text == self._cut(node.start_mark, node.end_mark):
            return
        head, tail = self.lines[first][: node.start_mark.column], self.lines[last][node.end_mark.column :]
        self.lines[first : last + 1] = split(head + text + tail)

    def _cut(self, start: Any, end: Any) -> str:
        return self.text[self.starts[start.line] + start.column : self.starts[end.line] + end.column]

    def _flow(self, node: yaml.Node, schema: Schema) -> str:
        """The text of a flow node in order."""
        schema = self._resolved(schema)
        if isinstance(node, yaml.ScalarNode) or not node.value:
            return self._cut(node.start_mark, node.end_mark)
        if isinstance(node, yaml.SequenceNode):
            spans = [(item.start_mark, item.end_mark) for item in node.value]
            parts = [self._flow(item, schema.get("items", {})) for item in node.value]
            order = list(range(len(parts)))
        else:
            spans = [(key.start_mark, value.end_mark) for key, value in node.value]
            parts = [self._cut(key.start_mark, value.start_mark) + self._flow(value, _child(schema, key.value))
                     for key, value in node.value]  # fmt: skip
            ranks = _ranks(schema, [key.value for key, _ in node.value])
            order = sorted(range(len(parts)), key=lambda index: (ranks[index], index))
        ends = [node.start_mark, *(end for _, end in spans)]
        gaps = [
            self._cut(end, start)
            for end, start in zip(ends, [*(start for start, _ in spans), node.end_mark], strict=True)
        ]
        if any("#" in gap for gap in gaps):
            order = list(range(len(parts)))  # whose comment it is cannot be told
        return gaps[0] + "".join(parts[index] + gap for index, gap in zip(order, gaps[1:], strict=True))


def _parts(schema: Schema) -> Iterator[Schema]:
    """The schema and the conditional parts of it."""
    yield schema
    for part in (schema.get("then"), schema.get("else"), *schema.get("allOf", ())):
        if isinstance(part, dict):
            yield from _parts(part)


def _child(schema: Schema, key: str) -> Schema:
    """Schema of what stands under ``key``."""
    for part in _parts(schema):
        if key in part.get("properties", {}):
            return dict(part["properties"][key])
    named = (part["additionalProperties"] for part in _parts(schema) if "additionalProperties" in part)
    return next((dict(part) for part in named if isinstance(part, dict)), {})


def _ranks(schema: Schema, keys: list[str]) -> list[int]:
    """The place of each key among the schema's properties; all alike where the user chooses the names."""
    known = [name for part in _parts(schema) for name in part.get("properties", {})]
    places = {name: place for place, name in enumerate(dict.fromkeys(known))}
    return [places.get(key, len(places)) for key in keys]


def _permuted(chunks: list[tuple[list[str], list[str]]], order: list[int], column: int) -> list[str]:
    """Chunks of (lines above, own lines) in a new order; what stood before the first key stays there."""
    prefix, last = chunks[0][1][0][:column], chunks[-1][1]
    end = "\n" if not re.search(r"[\n\r\x85\u2028\u2029]\Z", last[-1]) else ""
    blank = list(itertools.takewhile(lambda line: not line.strip(), chunks[order[0]][0])) if order[0] else []
    out: list[str] = []
    for place, index in enumerate(order):
        above, own = chunks[index]
        if place == 0:
            above = above[len(blank) :]
        elif index == 0:
            above = blank + above
        # A comment deeper than its key would become text below a block scalar.
        indent = prefix.index("-") if place == 0 and "-" in prefix else column
        above = [" " * indent + line.lstrip(" ") if line.strip() else line for line in above]
        tail = [own[-1] + end] if own is last else own[-1:]
        body = [*own[:-1], *tail]
        body[0] = (prefix if place == 0 else " " * column) + body[0][column:]
        out += above + body
    return out
