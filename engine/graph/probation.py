"""What a simplified graph must keep, and what it must not grow. Each function says why it is refused, or ""."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import onnx_ir as ir

from engine.graph import provenance
from engine.graph.provenance import MODULE

GROWTH = 4096  # bytes that all weights together may grow by: folded scalars and shapes
LOST = 0.1  # largest share of nodes that may come out of it without a module
_COUNTED = 1024  # bytes; smaller weights may be repeated
_UNFOLDING = frozenset(["Expand", "Tile", "ConstantOfShape"])


def refusal(before: ir.Model, after: ir.Model) -> str:
    """The first reason against ``after``, whose provenance was restored; the cheap ones first."""
    checks: tuple[Callable[[ir.Model, ir.Model], str], ...] = (
        _boundary, _versions, _nodes, _axes, _unfolded, _shared, _bytes, _provenance,
    )  # fmt: skip
    return next((why for check in checks if (why := check(before, after))), "")


def _boundary(before: ir.Model, after: ir.Model) -> str:
    for what, old, new in (("inputs", before.graph.inputs, after.graph.inputs),
                           ("outputs", before.graph.outputs, after.graph.outputs)):  # fmt: skip
        names = [", ".join(str(value.name) for value in values) for values in (old, new)]
        if names[0] != names[1]:
            return f"the {what} {names[0]} became {names[1] or 'none'}"
        for one, other in zip(old, new, strict=True):
            if one.dtype != other.dtype:
                return f"'{one.name}' was {_kind(one)} and became {_kind(other)}"
            if one.shape is not None and other.shape is not None and len(one.shape) != len(other.shape):
                return f"'{one.name}' had {len(one.shape)} dimensions and has {len(other.shape)}"
            if what == "inputs" and one.shape is not None and one.shape != other.shape:
                return f"the shape of input '{one.name}' was {one.shape} and became {other.shape}"
    return ""


def _kind(value: ir.Value) -> str:
    return value.dtype.name.lower() if value.dtype else "of no type"


def _versions(before: ir.Model, after: ir.Model) -> str:
    old, new = dict(before.opset_imports), dict(after.opset_imports)
    if old.get("") != new.get(""):
        return f"opset {old.get('')} became {new.get('')}"
    added = sorted(
        {node.domain for node in after.graph.all_nodes()} - {node.domain for node in before.graph.all_nodes()}
    )
    return f"nodes of the domain '{added[0]}' came in" if added else ""


def _nodes(before: ir.Model, after: ir.Model) -> str:
    old, new = (sum(1 for _ in model.graph.all_nodes()) for model in (before, after))
    return f"{old} nodes became {new}" if new >= old else ""


def _axes(before: ir.Model, after: ir.Model) -> str:
    """An axis of the inputs that became a number somewhere. Other symbols may: inference knows more afterwards."""
    axes = {dim.value for value in before.graph.inputs if value.shape is not None
            for dim in value.shape if isinstance(dim, ir.SymbolicDim) and dim.value}  # fmt: skip
    old = {value.name: value for value in _values(before)}
    for value in _values(after):
        was = old.get(value.name)
        if was is None or was.shape is None or value.shape is None or len(was.shape) != len(value.shape):
            continue
        for index, (dim, now) in enumerate(zip(was.shape, value.shape, strict=True)):
            if isinstance(dim, ir.SymbolicDim) and dim.value in axes and isinstance(now, int):
                return f"dimension {index} of '{value.name}' was the axis {dim.value} and became {now}"
    return ""


def _values(model: ir.Model) -> Iterator[ir.Value]:
    yield from model.graph.inputs
    for node in model.graph.all_nodes():
        yield from node.outputs


def _weights(model: ir.Model) -> dict[str, ir.Value]:
    """Initializers and values of Constant nodes, by name."""
    found = {value.name or "": value for graph in model.graphs() for value in graph.initializers.values()}
    constants = (node for node in model.graph.all_nodes() if node.op_type == "Constant")
    return found | {node.outputs[0].name or "": node.outputs[0] for node in constants}


def _size(value: ir.Value) -> int:
    tensor = value.const_value
    if tensor is None and (node := value.producer()) is not None and "value" in node.attributes:
        tensor = node.attributes["value"].as_tensor()
    return int(tensor.nbytes) if tensor is not None else 0


def _unfolded(before: ir.Model, after: ir.Model) -> str:
    makers = {value.name: node for node in before.graph.all_nodes() for value in node.outputs}
    for name, value in _weights(after).items():
        maker = makers.get(name)
        if maker is not None and maker.op_type in _UNFOLDING and _size(value) > _COUNTED:
            return f"{maker.op_type} '{maker.name}' became a weight of {_size(value):,} bytes"
    return ""


def _shared(before: ir.Model, after: ir.Model) -> str:
    """A weight that several nodes read must not be copied for them, also where that is a small part of all."""
    old, new = _weights(before), _weights(after)
    fresh = Counter(_size(value) for name, value in new.items() if name not in old)
    for name, value in old.items():
        size, users = _size(value), len(value.uses())
        if size <= _COUNTED or users < 2:
            continue
        left = len(new[name].uses()) if name in new else 0
        copies = fresh[size] + (1 if left else 0)
        if left < users and copies > 1:
            return f"the weight '{name}', which {users} nodes share, became {copies} weights"
    return ""


def _bytes(before: ir.Model, after: ir.Model) -> str:
    old, new = (sum(map(_size, _weights(model).values())) for model in (before, after))
    return f"the weights grew from {old:,} to {new:,} bytes" if new > old + GROWTH else ""


def _provenance(before: ir.Model, after: ir.Model) -> str:
    """Overrides by module would miss what has none."""
    old, new = _orphans(before), _orphans(after)
    total = sum(1 for _ in after.graph.all_nodes())
    if not provenance.modules(before) or new <= max(old, LOST * total):
        return ""
    return f"{new} of {total} nodes lost the module that they came from"


def _orphans(model: ir.Model) -> int:
    return sum(1 for node in model.graph.all_nodes() if MODULE not in node.metadata_props)


def restore_names(after: ir.Model, before: ir.Model) -> int:
    """Give nodes their names back: by the value that they make, when the op is the same. Returns how many."""
    old = {value.name: node for node in before.graph.all_nodes() for value in node.outputs if value.name}
    taken, count = {node.name for node in after.graph.all_nodes()}, 0
    for index, node in enumerate(after.graph.all_nodes()):
        was = next((old[value.name] for value in node.outputs if value.name in old), None)
        same = was is not None and was.op_type == node.op_type
        if same and was is not None and was.name and was.name != node.name and was.name not in taken:
            node.name, count = was.name, count + 1
        elif not node.name:
            node.name = next(name for name in _fresh(node.op_type, index) if name not in taken)
        taken.add(node.name)
    return count


def _fresh(op: str, index: int) -> Iterator[str]:
    name = f"simplified_{op}_{index}"
    while True:
        yield name
        name += "_"
