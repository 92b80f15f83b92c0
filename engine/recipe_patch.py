"""Add overrides to a recipe file: whole lines are put in, every other byte stays."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from engine import document, ordering, writing
from engine.errors import RecipeError

Line = Mapping[str, Any]


def with_overrides(text: str, lines: Sequence[Line], name: str = "<text>") -> str:
    """``text`` with ``lines`` at the end of ``precision.overrides``, which is made where it is not there.

    Raises RecipeError, with the lines to add by hand, where that cannot be done without changing something else.
    """
    doc = document.parse(text, name)
    expected = copy.deepcopy(doc.data)
    expected.setdefault("precision", {}).setdefault("overrides", []).extend(dict(line) for line in lines)
    after = _put(text, [writing.flow(line) for line in lines])
    if after is None or not _holds(after, expected, text):
        shown = "\n".join(f"  - {writing.flow(line)}" for line in lines)
        raise RecipeError(f"{name}: precision.overrides cannot be added to without changing something else; left as "
                          f"it is", hint=f"add under precision.overrides:\n{shown}")  # fmt: skip
    return after


def with_toolchain(text: str, spec: str, name: str = "<text>") -> str:
    """``text`` with another ``build.toolchain`` in the place of the one that is there; every other byte stays."""
    expected = copy.deepcopy(document.parse(text, name).data)
    expected["build"]["toolchain"] = spec
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    build = _child(root, "build") if isinstance(root, yaml.MappingNode) else None
    there = _child(build[1], "toolchain") if build and isinstance(build[1], yaml.MappingNode) else None
    after = text[: there[1].start_mark.index] + spec + text[there[1].end_mark.index :] if there else ""
    if not after or not _holds(after, expected, text):
        what = f"{name}: build.toolchain cannot be changed without changing something else; left as it is"
        raise RecipeError(what, hint=f"write it by hand: toolchain: {spec}")
    return after


def with_base(text: str, base: str, floats: str, name: str = "<text>") -> str:
    """``text`` with ``precision.base`` and, around a quantised base alone, ``precision.float``; every other byte stays.

    Raises RecipeError where there is no base to change, or it cannot be done without changing something else.
    """
    doc = document.parse(text, name)
    expected = copy.deepcopy(doc.data)
    if not isinstance(expected.get("precision", {}), dict):
        expected["precision"] = {}
    quantised = base != floats
    after = text
    for key, value in (("base", base), *((("float", floats),) if quantised else ())):
        expected.setdefault("precision", {})[key] = value
        after = _with_scalar(after, key, value) or ""
    if not quantised and "float" in expected["precision"]:
        del expected["precision"]["float"]
        after = _without(after, "float") or ""
    if not after or not _holds(after, expected, text):
        what = f"{name}: precision.base cannot be changed without changing something else; left as it is"
        more = f", float: {floats}" if quantised else ""
        raise RecipeError(what, hint=f"write it by hand: base: {base}{more}")
    return after


def without(text: str, places: Sequence[Sequence[str | int]], name: str = "<text>") -> str:
    """``text`` without these items of lists, and without a list that has none left; their own comments go with them.

    Raises RecipeError where that cannot be done without changing something else.
    """
    after: str | None = text
    expected = copy.deepcopy(document.parse(text, name).data)
    for place in sorted(places, key=lambda item: (item[:-1], -int(item[-1]))):
        after = _item_out(after, place) if after else None
        _data_out(expected, place)
    if after is not None:
        with contextlib.suppress(RecipeError):
            rest = iter(ordering.comments(text))
            fewer = all(comment in rest for comment in ordering.comments(after))
            if fewer and document.parse(after).data == expected:
                return after
    shown = ", ".join(".".join(map(str, place)) for place in places)
    raise RecipeError(f"{name}: {shown} cannot be taken out without changing something else; left as it is",
                      hint="take it out by hand")  # fmt: skip


def _data_out(data: Any, place: Sequence[str | int]) -> None:
    *way, index = place
    parent = data
    for key in way[:-1]:
        parent = parent[key]
    del parent[way[-1]][index]
    if not parent[way[-1]]:
        del parent[way[-1]]


def _item_out(text: str, place: Sequence[str | int]) -> str | None:
    *way, index = place
    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    key: Any = None
    for name in way:
        found = _child(node, str(name)) if isinstance(node, yaml.MappingNode) else None
        if found is None:
            return None
        key, node, parent = found[0], found[1], node
    if not isinstance(node, yaml.SequenceNode) or parent.flow_style:
        return None
    item, rows = node.value[int(index)], text.splitlines(keepends=True)
    if node.flow_style:
        if len(node.value) == 1:
            return _rows_out(rows, key.start_mark.line, _last(node))
        start, end = item.start_mark.index, item.end_mark.index
        if int(index) + 1 < len(node.value):
            return text[:start] + text[node.value[int(index) + 1].start_mark.index :]
        return text[: node.value[int(index) - 1].end_mark.index] + text[end:]
    first = key.start_mark.line if len(node.value) == 1 else _dash(rows, item.start_mark.line)
    return _rows_out(rows, first, _last(item))


def _dash(rows: list[str], line: int) -> int:
    """The row on which an item begins: its dash may stand above it."""
    while line and not rows[line].lstrip().startswith("-"):
        line -= 1
    return line


def _rows_out(rows: list[str], first: int, last: int) -> str:
    around = rows[first - 1 : first] + rows[last + 1 : last + 2]
    last += len(around) == 2 and not any(row.strip() for row in around)  # of two empty rows one is left
    return "".join(rows[:first] + rows[last + 1 :])


def _without(text: str, key: str) -> str | None:
    """``precision.KEY`` taken out, where it stands behind another key."""
    root = yaml.compose(text, Loader=yaml.SafeLoader) if text else None
    found = _child(root, "precision") if isinstance(root, yaml.MappingNode) else None
    there = _child(found[1], key) if found and isinstance(found[1], yaml.MappingNode) else None
    if found is None or there is None:
        return None
    start, end = there[0].start_mark.index, there[1].end_mark.index
    if isinstance(found[1], yaml.MappingNode) and found[1].flow_style:
        comma = text.rfind(",", 0, start)
        return text[:comma] + text[end:] if comma > found[1].start_mark.index else None
    rows = text.splitlines(keepends=True)
    del rows[there[0].start_mark.line]
    return "".join(rows)


def _with_scalar(text: str, key: str, value: str) -> str | None:
    """``precision.KEY`` changed in place, or put behind ``precision.base``."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    found = _child(root, "precision") if isinstance(root, yaml.MappingNode) else None
    if found is None or not isinstance(found[1], yaml.MappingNode):
        return None
    precision = found[1]
    there = _child(precision, key)
    if there is not None:
        return text[: there[1].start_mark.index] + value + text[there[1].end_mark.index :]
    base = _child(precision, "base")
    if base is None:
        return None
    if precision.flow_style:
        place = base[1].end_mark.index
        return f"{text[:place]}, {key}: {value}{text[place:]}"
    rows = text.splitlines(keepends=True)
    end = "\r\n" if rows[0].endswith("\r\n") else "\n"
    return _insert(rows, base[1].start_mark.line, [f"{' ' * base[0].start_mark.column}{key}: {value}"], end)


def _holds(after: str, expected: Any, before: str) -> bool:
    try:
        found = document.parse(after).data
    except RecipeError:
        return False
    return bool(found == expected) and ordering.comments(after) == ordering.comments(before)


def _put(text: str, items: Sequence[str]) -> str | None:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    rows = text.splitlines(keepends=True)
    end = "\r\n" if rows and rows[0].endswith("\r\n") else "\n"
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return None
    precision = _child(root, "precision")
    if precision is None:
        pad = " " * root.start_mark.column
        new = [f"{pad}precision:", f"{pad}  overrides:", *(f"{pad}    - {item}" for item in items)]
        return _insert(rows, _last(root), new, end)
    key, value = precision
    if isinstance(value, yaml.MappingNode) and value.flow_style:
        return _opened(text, rows, key, value, items, end)
    if not isinstance(value, yaml.MappingNode):
        return None
    overrides = _child(value, "overrides")
    if overrides is None:
        pad = " " * value.start_mark.column
        return _insert(rows, _last(value), [f"{pad}overrides:", *(f"{pad}  - {item}" for item in items)], end)
    _, value = overrides
    if not isinstance(value, yaml.SequenceNode) or value.flow_style:
        return _grown_flow(text, value, items)
    pad = " " * value.start_mark.column
    return _insert(rows, _last(value), [f"{pad}- {item}" for item in items], end)


def _child(node: yaml.MappingNode, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    return next(((key, value) for key, value in node.value if key.value == name), None)


def _last(node: yaml.Node) -> int:
    """Index of the last row that holds something of ``node``; a block's own end lies behind the comments after it."""
    if isinstance(node, yaml.MappingNode) and node.value and not node.flow_style:
        return _last(node.value[-1][1])
    if isinstance(node, yaml.SequenceNode) and node.value and not node.flow_style:
        return _last(node.value[-1])
    mark = node.end_mark
    return int(mark.line if mark.column or mark.line == node.start_mark.line else mark.line - 1)


def _insert(rows: list[str], after: int, new: Sequence[str], end: str) -> str:
    head, tail = rows[: after + 1], rows[after + 1 :]
    if head and not head[-1].endswith(("\n", "\r")):
        head[-1] += end
    return "".join([*head, *(f"{line}{end}" for line in new), *tail])


def _opened(
    text: str, rows: list[str], key: yaml.Node, value: yaml.MappingNode, items: Sequence[str], end: str
) -> str | None:
    """A mapping in brackets on one line gets a line for each of its keys; what stands behind it stays on the first."""
    line = value.start_mark.line
    if value.end_mark.line != line or key.start_mark.line != line:
        return None
    overrides = _child(value, "overrides")
    if overrides is not None and overrides[1].value:
        return _grown_flow(text, overrides[1], items)
    pad = " " * (key.start_mark.column + 2)
    parts = [f"{text[a.start_mark.index : a.end_mark.index]}: {text[b.start_mark.index : b.end_mark.index]}"
             for a, b in value.value if a.value != "overrides"]  # fmt: skip
    first = rows[line][: value.start_mark.column].rstrip() + rows[line][value.end_mark.column :].rstrip(
        "\r\n"
    )
    new = [
        first,
        *(f"{pad}{part}" for part in parts),
        f"{pad}overrides:",
        *(f"{pad}  - {item}" for item in items),
    ]
    return "".join([*rows[:line], *(f"{row}{end}" for row in new), *rows[line + 1 :]])


def _grown_flow(text: str, node: yaml.Node, items: Sequence[str]) -> str | None:
    """A list in brackets gets the items before its closing bracket."""
    if not isinstance(node, yaml.SequenceNode):
        return None
    closing = node.end_mark.index - 1
    return text[:closing] + (", " if node.value else "") + ", ".join(items) + text[closing:]
