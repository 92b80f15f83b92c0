"""Products of 8-bit integers that no CPU cuts.

On CPUs without VNNI, ONNX Runtime adds pairs of uint8 times int8 in 16 bits and cuts what does not fit. Its option
``session.x64quantprecision`` mends that for constants, and only with graph optimisation on. So the signed operand is
shifted to uint8 together with its zero point: the same numbers, by a kernel that does not cut.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper

# Inputs that are operands, each with its zero point.
_OPERANDS = {
    "MatMulInteger": ((0, 2), (1, 3)),
    "ConvInteger": ((0, 2), (1, 3)),
    "QLinearMatMul": ((0, 2), (3, 5)),
    "QLinearConv": ((0, 2), (3, 5)),
}
_SHIFT = 128


def shifted(path: Path) -> bytes | None:
    """The graph at ``path`` with uint8 operands in the place of int8 ones, or None where nothing in it is cut."""
    if not _names_any(path):
        return None
    try:
        model = onnx.load(str(path), load_external_data=False)
    except DecodeError:
        return None  # ONNX Runtime says what is wrong with it
    types = _types(onnx.shape_inference.infer_shapes(model).graph)
    nodes: list[onnx.NodeProto] = []
    count = len(model.graph.node)
    for node in model.graph.node:
        for place, zero in _signed(node, types):
            nodes += _shift(model.graph, node, place, zero)
        nodes.append(node)
    if len(nodes) == count:
        return None
    made = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(made)
    return bytes(model.SerializeToString())


def _names_any(path: Path) -> bool:
    """Parsing a graph takes far longer than looking for a word in it."""
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return any(data.find(op.encode()) >= 0 for op in _OPERANDS)


def _types(graph: onnx.GraphProto) -> dict[str, int]:
    found = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        found[value.name] = value.type.tensor_type.elem_type
    return found


def _signed(node: onnx.NodeProto, types: dict[str, int]) -> Iterator[tuple[int, int]]:
    """The int8 operand beside a uint8 one. Two of one kind are never cut."""
    operands = _OPERANDS.get(node.op_type, ()) if node.domain == "" else ()
    kinds = {types.get(node.input[place]) for place, _ in operands}
    if kinds == {TensorProto.INT8, TensorProto.UINT8}:
        yield from (pair for pair in operands if types[node.input[pair[0]]] == TensorProto.INT8)


def _shift(graph: onnx.GraphProto, node: onnx.NodeProto, place: int, zero: int) -> Iterator[onnx.NodeProto]:
    stem = f"{node.output[0]}/uncut/{place}"
    by = f"{stem}/by"
    graph.initializer.append(helper.make_tensor(by, TensorProto.INT32, [], [_SHIFT]))
    yield from _added(node.input[place], by, f"{stem}/operand")
    node.input[place] = f"{stem}/operand"
    while len(node.input) <= zero:
        node.input.append("")
    if node.input[zero]:
        yield from _added(node.input[zero], by, f"{stem}/zero")
    else:
        graph.initializer.append(helper.make_tensor(f"{stem}/zero", TensorProto.UINT8, [], [_SHIFT]))
    node.input[zero] = f"{stem}/zero"


def _added(name: str, by: str, to: str) -> Iterator[onnx.NodeProto]:
    yield helper.make_node("Cast", [name], [f"{to}/wide"], to=TensorProto.INT32)
    yield helper.make_node("Add", [f"{to}/wide", by], [f"{to}/sum"])
    yield helper.make_node("Cast", [f"{to}/sum"], [to], to=TensorProto.UINT8)
