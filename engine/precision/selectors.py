"""Name nodes the way people know them, and give each a type.

A selector names a PyTorch module path (``module``), an ONNX op type (``op``), a node name glob
(``node``), or several of them, which must then all hold. A module takes everything under it. In a
module path ``*`` stands for any text inside one part and ``**`` for any number of parts.

Where two overrides take one node with different types, the later one wins if it names the node in another way
(by node, by module and op, by module, by op). Two of one way contradict each other, which is an error.

A quantised type takes those of the selected nodes that can be quantised and leaves the others alone; a float type
takes a node out of quantisation.
"""

from __future__ import annotations

import difflib
import fnmatch
import functools
import glob
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from engine.errors import Failure, StepError
from engine.graph.provenance import MODULE
from engine.precision.formats import Precision
from engine.precision.ops import touches_float
from engine.precision.prepare import nodes, prepare
from engine.precision.quantizable import OPS, why_not
from engine.recipe import FLOATS, QUANTS, NodeType, Override, QuantType


@dataclass(frozen=True)
class Assignment:
    """The type asked for every node that has a floating point input or output.

    ``types`` maps node names to float types, ``taken`` lists the nodes of each override, in graph order. ``base`` is
    the float type of what no override names; ``quantised`` are the nodes that compute in another one besides.
    """

    base: Precision
    types: Mapping[str, Precision]
    overrides: tuple[Override, ...] = ()
    taken: tuple[tuple[str, ...], ...] = ()
    pinned: Mapping[str, int] = field(default_factory=dict)  # node name -> index of its first override
    quantised: Mapping[str, QuantType] = field(default_factory=dict)


def describe(override: Override) -> str:
    """The selector as the recipe says it."""
    keys = {"module": override.module, "op": override.op, "node": override.node, "nth": override.nth}
    return ", ".join(f"{key}: {value}" for key, value in keys.items() if value is not None)


def where(index: int) -> str:
    """Recipe path of an override."""
    return f"precision.overrides[{index}]"


def resolve(
    model: ir.Model, base: NodeType, overrides: Sequence[Override] = (), floats: Precision = "fp32"
) -> Assignment:
    """Give every node its type; prepares the graph (see ``prepare``), changes no type.

    ``floats`` is what is not quantised computes in, where ``base`` is a quantised type.

    Only nodes with a floating point input or output count as matches. Raises StepError (usage) for
    an override that matches nothing, for two of equal rank that give one node different types, and for one whose
    nodes all went to later ones.
    """
    prepare(model)
    everything = list(nodes(model))
    candidates = [node for node in everything if touches_float(node) and node.op_type != "Constant"]
    taken = [_select(override, candidates) for override in overrides]
    complaints = [
        (index, *_why_none(override, candidates, everything))
        for index, (override, found) in enumerate(zip(overrides, taken, strict=True))
        if not found
    ]
    complaints += _conflicts(overrides, taken)
    if complaints:
        raise _failure(complaints)
    pinned = _winners(overrides, taken)
    taken = [
        [node for node in found if overrides[pinned[node.name or ""]].type == override.type]
        for override, found in zip(overrides, taken, strict=True)
    ]
    if lost := [index for index, found in enumerate(taken) if not found]:
        raise _failure([_lost(index, overrides) for index in lost])
    asked: dict[str, NodeType] = {name: base for node in candidates if (name := node.name)}
    asked |= {name: overrides[index].type for name, index in pinned.items()}
    floats = _float(base) or floats
    names = tuple(tuple(node.name or "" for node in found) for found in taken)
    by_name = {node.name or "": node for node in candidates}
    quantised = {
        name: kind
        for name, given in asked.items()
        if (kind := _quant(given)) and not why_not(by_name[name], kind)
    }
    types = {name: _float(given) or floats for name, given in asked.items()}
    return Assignment(floats, types, tuple(overrides), names, pinned, quantised)


def _float(kind: NodeType) -> Precision | None:
    return next((known for known in FLOATS if known == kind), None)


def _quant(kind: NodeType) -> QuantType | None:
    return next((known for known in QUANTS if known == kind), None)


def exactly(name: str) -> str:
    """The ``node`` selector that takes the node called ``name`` and no other."""
    return glob.escape(name)


def module_of(node: ir.Node) -> str:
    return node.metadata_props.get(MODULE, "")


def matches_module(pattern: str, path: str) -> bool:
    """Whether ``path`` is the module that ``pattern`` names, or lies under it."""
    return _matches(tuple(pattern.split(".")), tuple(path.split(".")) if path else ())


@functools.cache
def _matches(pattern: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    if not pattern:
        return True
    if pattern[0] == "**":
        return any(_matches(pattern[1:], parts[skip:]) for skip in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _matches(pattern[1:], parts[1:])


def _select(override: Override, candidates: Iterable[ir.Node]) -> list[ir.Node]:
    kind = _quant(override.type)
    found = [
        node for node in candidates if fits(override, node) and not (kind and why_not(node, kind))
    ]
    if override.nth is None:
        return found
    return found[override.nth : override.nth + 1] if override.nth >= 0 else []


def fits(override: Override, node: ir.Node) -> bool:
    """Whether the selector, without its ``nth``, takes the node."""
    if override.module is None and override.op is None and override.node is None:
        return False
    return (
        (override.module is None or matches_module(override.module, module_of(node)))
        and (override.op is None or override.op == node.op_type)
        and (override.node is None or fnmatch.fnmatchcase(node.name or "", override.node))
    )


def _rank(override: Override) -> int:
    """In which way the override names its nodes: the same number, the same way."""
    if override.node is not None:
        return 4
    return 2 * (override.module is not None) + (override.op is not None)


_WAYS = {4: "by node", 3: "by module and op", 2: "by module", 1: "by op", 0: ""}


def _winners(overrides: Sequence[Override], taken: Sequence[Sequence[ir.Node]]) -> dict[str, int]:
    """By node, the override that decides: the last one, or the first of those that say the same as it."""
    found: dict[str, int] = {}
    for index, members in enumerate(taken):
        for node in members:
            earlier = found.get(node.name or "")
            if earlier is None or overrides[earlier].type != overrides[index].type:
                found[node.name or ""] = index
    return found


def _lost(index: int, overrides: Sequence[Override]) -> tuple[int, str, str]:
    what = f"{describe(overrides[index])} decides nothing: later overrides give all its nodes another type"
    return index, what, "drop it, or put it behind them"


def _conflicts(
    overrides: Sequence[Override], taken: Sequence[Sequence[ir.Node]]
) -> list[tuple[int, str, str]]:
    """Overrides that name a node in the same way and give it different types; a later one of another way wins."""
    first: dict[tuple[str, int], int] = {}
    found: dict[tuple[int, int], list[str]] = {}
    for index, members in enumerate(taken):
        for node in members:
            earlier = first.setdefault((node.name or "", _rank(overrides[index])), index)
            if overrides[earlier].type != overrides[index].type:
                found.setdefault((earlier, index), []).append(node.name or "")
    return [
        (
            index,
            f"{where(earlier)} ({describe(overrides[earlier])}) says {overrides[earlier].type} and "
            f"{where(index)} ({describe(overrides[index])}) says {overrides[index].type} for "
            f"node {names[0]!r}" + (f" and {len(names) - 1} more" if len(names) > 1 else ""),
            f"both name it {_WAYS[_rank(overrides[index])]}: narrow one of the two selectors",
        )
        for (earlier, index), names in found.items()
    ]


def _why_none(
    override: Override, candidates: Sequence[ir.Node], everything: Sequence[ir.Node]
) -> tuple[str, str]:
    """What to say about an override without a match: symptom and the way to mend it."""
    bare = replace(override, nth=None)
    without_nth = _select(bare, candidates)
    if without_nth and override.nth is not None:
        count = len(without_nth)
        last = f"nth counts from 0 to {count - 1}: 0 is {without_nth[0].name!r}"
        return f"{describe(override)} is past the end: {count} node{'s' * (count > 1)} match the rest", last
    numbers = _select(bare, everything)
    if numbers:
        return (
            f"{describe(override)} matches {len(numbers)} node(s), none of which works on floats",
            f"{numbers[0].name!r} ({numbers[0].op_type}) works on integers; name the layer that computes",
        )
    kind = _quant(override.type)
    if kind and (others := [node for node in candidates if fits(override, node)]):
        wanted = next((node for node in others if node.op_type in OPS), others[0])
        return (
            f"{describe(override)} matches {len(others)} node(s), none of which can be {kind}",
            f"{wanted.name!r}: {why_not(wanted, kind)}",
        )
    for key, hint in _absent(override, candidates):
        return f"{describe(override)} matches no node: {key}", hint
    within = [
        node for node in candidates if override.module and matches_module(override.module, module_of(node))
    ]
    ops = sorted({node.op_type for node in within or candidates})
    return f"{describe(override)} matches no node: each key matches some, no node has all of them", (
        f"ops in {override.module}: {', '.join(ops)}" if within else "drop one of the keys"
    )


def _absent(override: Override, candidates: Sequence[ir.Node]) -> Iterable[tuple[str, str]]:
    paths = sorted({module_of(node) for node in candidates} - {""})
    if override.module is not None and not any(matches_module(override.module, path) for path in paths):
        yield _absent_module(override.module, paths)
    ops = sorted({node.op_type for node in candidates})
    if override.op is not None and override.op not in ops:
        yield f"no {override.op} in the graph", _nearest(override.op, ops) or f"ops here: {', '.join(ops)}"
    names = [node.name or "" for node in candidates]
    if override.node is not None and not fnmatch.filter(names, override.node):
        yield f"no node is called {override.node!r}", _nearest(override.node, names)
    if override.module is None and override.op is None and override.node is None:
        yield "it names none of module, op, node", "say at least one of them"


def _absent_module(wanted: str, paths: Sequence[str]) -> tuple[str, str]:
    known = set(paths)
    for path in paths:
        parts = path.split(".")
        known |= {".".join(parts[:length]) for length in range(1, len(parts))}
    if not known:
        return f"no node knows its module, so {wanted} cannot be found", "select by op or by node name"
    begins = [path for path in sorted(known) if path.startswith(wanted)]
    if begins:
        return (
            f"there is no module {wanted}, only {len(begins)} whose names begin with it",
            f"write the whole part, for example {begins[0]}, or {wanted}*",
        )
    parent = wanted
    while "." in parent:
        parent = parent.rpartition(".")[0]
        if parent in known:
            inside = sorted({path.rpartition(".")[2] for path in known if path.rpartition(".")[0] == parent})
            part = wanted[len(parent) + 1 :].partition(".")[0]
            near = _nearest(part, inside) or (f"it holds {', '.join(inside[:6])}" if inside else "")
            return f"there is a module {parent}, but no {part} in it", near
    return f"there is no module {wanted}", _nearest(wanted, sorted(known))


def _nearest(wanted: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else ""


def _failure(complaints: Sequence[tuple[int, str, str]]) -> StepError:
    index, symptom, fix = complaints[0]
    others = "\n".join(f"{where(i)}: {what}" + (f"; {how}" if how else "") for i, what, how in complaints[1:])
    return StepError(
        Failure(symptom, klass="tooling", fix=fix, where=where(index), evidence=others, usage=True)
    )
