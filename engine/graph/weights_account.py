"""Where every parameter and buffer of the model went in an ONNX graph; by content, not by trust in a name.

Each one is in the file bit for bit (under its name or another, also permuted or cast), or it is the part of a
constant that was computed from it and is computed again here, or nothing needs it, or it is missing. A constant
that should be a weight and holds other bits is the one thing that cannot be explained: :class:`Changed`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from engine.graph import folded, repacked
from engine.graph.bits import MOST_AXES, Array, flat, orders, same_bits
from engine.graph.files import all_initializers

Fate = Literal["as it is", "renamed", "permuted", "cast", "part", "repacked", "folded", "unused", "missing"]


@dataclass(frozen=True)
class Weight:
    """One parameter or buffer; ``into`` names what it became where that is not itself."""

    name: str
    fate: Fate
    into: str = ""


@dataclass(frozen=True)
class Changed:
    """A constant of the file that stands for ``parameter`` and differs from it, first at ``element``.

    ``computed`` says that the constant is computed from the parameter; ``element`` is then one of the constant.
    """

    parameter: str
    constant: str
    element: tuple[int, ...]
    model: float
    file: float
    count: int
    computed: bool = False

    def __str__(self) -> str:
        index = f"[{', '.join(map(str, self.element))}]"
        if self.computed:
            what = f"{self.constant}{index}, computed from '{self.parameter}',"
            return f"{what} is {self.model:.9g} by the model and {self.file:.9g} in the file"
        place = f"{self.parameter}{index}"
        return f"{place} is {self.model:.9g} in the model and {self.file:.9g} in the file ('{self.constant}')"


@dataclass(frozen=True)
class Account:
    weights: tuple[Weight, ...]
    changed: tuple[Changed, ...]

    def by_fate(self, fate: Fate) -> tuple[Weight, ...]:
        return tuple(weight for weight in self.weights if weight.fate == fate)


def account(
    tensors: Mapping[str, Array],
    model: ir.Model,
    used: Set[str] | None = None,
    before: ir.Model | None = None,
    epsilons: Mapping[str, float] | None = None,
) -> Account:
    """Account for ``tensors`` (by name in the model) in ``model``.

    ``used`` are those that the outputs need, None for unknown. ``before`` is the same graph before its constants
    were folded; ``epsilons`` are those of the batch norms by module path.
    """
    constants = constants_of(model)
    ledger = _Ledger(tensors, constants)
    wanted = [name for name in tensors if used is None or name in used]
    for find in (_named, _renamed, _permuted, _cast):
        for name in wanted:
            if name not in ledger.fates:
                find(ledger, name)
    for group in repacked.find({name: tensors[name] for name in wanted}, model, constants):
        ledger.take(group)
    for group in folded.batch_norms(
        ledger.open_tensors(wanted), tensors, ledger.open_constants(), epsilons or {}
    ):
        ledger.take(group)
    if before is not None:
        for group in folded.recomputed(ledger.open_tensors(wanted), before, constants):
            ledger.take(group)
    for name in ledger.open_tensors(wanted):
        if not _part(ledger, name):
            _nearly(ledger, name)
    for name in tensors:
        if name in ledger.fates or any(item.parameter == name for item in ledger.changed):
            continue
        nothing_needs_it = (used is not None and name not in used) or name.endswith("num_batches_tracked")
        if not nothing_needs_it and tensors[name].ndim == 1 and not tensors[name].any():
            ledger.put(name, "folded", "nothing: it is all zeros, and an addition of them was dropped")
        else:
            ledger.put(name, "unused" if nothing_needs_it else "missing")
    changed = {item.parameter: item for item in ledger.changed if item.parameter not in ledger.fates}
    return Account(
        tuple(ledger.fates[name] for name in tensors if name in ledger.fates), tuple(changed.values())
    )


def constants_of(model: ir.Model) -> dict[str, Array]:
    """Every initializer and Constant of a graph by name; numpy's own view where there is one."""
    found = {}
    for value in all_initializers(model):
        if value.const_value is not None and value.name:
            found[value.name] = value.const_value
    for node in model.graph.all_nodes():
        tensor = node.attributes.get_tensor("value", None) if node.op_type == "Constant" else None
        if tensor is not None and node.outputs[0].name:
            found[node.outputs[0].name] = tensor
    return {name: tensor.numpy() for name, tensor in found.items() if tensor.dtype.itemsize >= 1}


class _Ledger:
    """What is explained so far. Only fingerprints are kept; arrays are views of the model and the file."""

    def __init__(self, tensors: Mapping[str, Array], constants: Mapping[str, Array]) -> None:
        self.tensors, self.constants = tensors, constants
        self.fates: dict[str, Weight] = {}
        self.changed: list[Changed] = []
        self.claimed: set[str] = set()
        self.by_content: dict[tuple[str, int, int], list[str]] = {}
        self.by_sum: dict[tuple[str, int, int], list[str]] = {}
        for name, array in constants.items():
            self.by_content.setdefault(_content(array), []).append(name)
            if array.ndim > 1:
                self.by_sum.setdefault(_sum(array), []).append(name)

    def put(self, name: str, fate: Fate, into: str = "", claims: str = "") -> None:
        self.fates[name] = Weight(name, fate, into)
        if claims:
            self.claimed.add(claims)

    def take(self, group: folded.Explained) -> None:
        for name in group.parameters:
            self.put(name, group.fate, group.into)
        self.claimed |= set(group.constants)
        for name, constant, expected, got in group.differences:
            if all(item.parameter != name for item in self.changed):
                difference(self.changed, name, constant, expected, got, group.computed)

    def open_tensors(self, wanted: list[str]) -> dict[str, Array]:
        known = {*self.fates, *(item.parameter for item in self.changed)}
        return {name: self.tensors[name] for name in wanted if name not in known}

    def open_constants(self) -> dict[str, Array]:
        return {name: array for name, array in self.constants.items() if name not in self.claimed}


def _named(ledger: _Ledger, name: str) -> None:
    tensor, constant = ledger.tensors[name], ledger.constants.get(name)
    if constant is not None and constant.shape == tensor.shape and same_bits(tensor, constant):
        ledger.put(name, "as it is", claims=name)


def _renamed(ledger: _Ledger, name: str) -> None:
    tensor = ledger.tensors[name]
    for other in ledger.by_content.get(_content(tensor), []):
        if same_bits(tensor, ledger.constants[other]):
            ledger.put(name, "renamed", other, claims=other)
            return


def _permuted(ledger: _Ledger, name: str) -> None:
    tensor = ledger.tensors[name]
    if not 1 < tensor.ndim <= MOST_AXES:
        return
    for other in ledger.by_sum.get(_sum(tensor), []):
        constant = ledger.constants[other]
        for order in orders(tensor, constant):
            if same_bits(tensor.transpose(order), constant):
                ledger.put(name, "permuted", f"{other} {list(order)}", claims=other)
                return


def _cast(ledger: _Ledger, name: str) -> None:
    tensor = ledger.tensors[name]
    for other, constant in ledger.constants.items():
        if constant.dtype == tensor.dtype or constant.shape != tensor.shape or tensor.dtype.kind != "f":
            continue
        if constant.dtype.kind == "f" and same_bits(tensor.astype(constant.dtype), constant):
            ledger.put(name, "cast", f"{other} ({constant.dtype})", claims=other)
            return


def _part(ledger: _Ledger, name: str) -> bool:
    tensor = ledger.tensors[name]
    for other, constant in ledger.constants.items():
        if constant.dtype == tensor.dtype and folded.contains(tensor, constant):
            ledger.put(name, "part", other, claims=other)
            return True
    return False


def _nearly(ledger: _Ledger, name: str) -> None:
    """A constant that nothing explains, of the same or a permuted shape, most of it equal or all of it close."""
    tensor = ledger.tensors[name]
    candidates = ledger.open_constants()
    if name in candidates:  # its own name decides first
        candidates = {name: candidates.pop(name), **candidates}
    for other, constant in candidates.items():
        if constant.dtype != tensor.dtype or constant.size != tensor.size or not constant.size:
            continue
        for order in orders(tensor, constant):
            turned = tensor.transpose(order)
            alike = float((turned == constant).mean())
            near = (
                tensor.size > 1 and tensor.dtype.kind == "f" and bool(np.allclose(turned, constant, 1e-3, 0))
            )
            if (other == name and turned.shape == tensor.shape) or near or (alike >= 0.5 and tensor.size > 4):
                back = constant.transpose(np.argsort(order))
                difference(ledger.changed, name, other, tensor, back)
                return


def difference(
    found: list[Changed], name: str, constant: str, expected: Array, got: Array, computed: bool = False
) -> None:
    where = np.argwhere(expected != got)
    if len(where):
        element = tuple(int(index) for index in where[0])
        found.append(
            Changed(
                name, constant, element, float(expected[element]), float(got[element]), len(where), computed
            )
        )


def _content(array: Array) -> tuple[str, int, int]:
    return str(array.dtype), array.size, zlib.crc32(flat(array).view(np.uint8).data)


def _sum(array: Array) -> tuple[str, int, int]:
    """The same for every order of the elements."""
    bits = (
        flat(array).view(f"u{array.dtype.itemsize}") if array.dtype.itemsize in (1, 2, 4, 8) else flat(array)
    )
    return str(array.dtype), array.size, int(bits.sum(dtype=np.uint64))
