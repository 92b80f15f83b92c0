"""Which nodes a quantised type can be given, and how their weights lie.

Taken are products with a constant weight: TensorRT has kernels in INT8 and FP8 for these, and their weights are
what INT4 makes smaller. A product of two activations stays in its float type.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from engine.precision.formats import is_float, is_weight
from engine.recipe import QuantType

OPS = ("Conv", "Gemm", "MatMul")
MARK = "portwright.quantize"  # on the nodes that quantising puts in: the float type that holds their scales
BLOCKS = (128, 64)  # of INT4 along the dimension that is summed over; all that TensorRT takes
_WEIGHT = 1  # index of the operand that is the weight
_RANK = {"Gemm": 2, "MatMul": 2}


@dataclass(frozen=True)
class Weight:
    """``channel`` is the axis of the weight that becomes the output's channels, ``summed`` the one summed over."""

    value: ir.Value
    channel: int
    summed: int

    @property
    def shape(self) -> tuple[int, ...]:
        assert self.value.const_value is not None
        return tuple(self.value.const_value.shape.numpy())


def weight_of(node: ir.Node) -> Weight | None:
    """The node's constant weight, None where it has none that can be quantised."""
    if node.op_type not in OPS or node.domain or len(node.inputs) <= _WEIGHT:
        return None
    value = node.inputs[_WEIGHT]
    if value is None or not is_float(value) or not is_weight(value) or value.const_value is None:
        return None
    rank = len(value.const_value.shape)
    if rank < 2 or rank != _RANK.get(node.op_type, rank):
        return None
    turned = node.op_type == "Conv" or (node.op_type == "Gemm" and _flag(node, "transB"))
    return Weight(value, 0, 1) if turned else Weight(value, 1, 0)


def activation_of(node: ir.Node) -> ir.Value:
    value = node.inputs[0]
    assert value is not None
    return value


def why_not(node: ir.Node, kind: QuantType) -> str:
    """Why the node cannot be given the quantised type; empty where it can."""
    if node.op_type not in OPS or node.domain:
        return f"{node.op_type} is not quantised; {', '.join(OPS)} are"
    weight = weight_of(node)
    if weight is None:
        return f"the weight of this {node.op_type} is not a constant matrix or filter"
    if kind != "int4":
        return ""
    if node.op_type == "Conv":
        return "int4 is for the weights of Gemm and MatMul"
    if block_of(weight) is None:
        return f"int4 scales blocks of {BLOCKS[-1]}; {weight.shape[weight.summed]} is no multiple of that"
    return ""


def block_of(weight: Weight) -> int | None:
    """The block size that INT4 takes for the weight."""
    return next((size for size in BLOCKS if weight.shape[weight.summed] % size == 0), None)


def is_ours(node: ir.Node) -> bool:
    """Whether quantising put the node in."""
    return MARK in node.metadata_props


def _flag(node: ir.Node, name: str) -> bool:
    attribute = node.attributes.get(name)
    return attribute is not None and attribute.as_int() == 1
