"""What an assignment of types costs: bytes moved and multiplications by type, until a GPU can time it.

Both are counted at the opt shape and given relative to the same graph in FP32. A tensor counts once, as written, in the
type that it is written in; Q is part of the kernel before it and DQ of the kernel behind. INT4 weights save bytes, not
multiplications: their product runs in the float type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from engine.precision.formats import PRECISIONS, is_weight
from engine.precision.prepare import nodes
from engine.precision.quantizable import is_ours
from engine.precision.report import LoweringReport
from engine.quantize.insert import Quantised
from engine.recipe import NodeType

# Multiplications of a tensor core in the time of one in FP32 (TF32), by the data sheets of Ampere to Blackwell.
SPEED: Mapping[NodeType, float] = {"fp32": 1, "fp16": 2, "bf16": 2, "int8": 4, "fp8": 4, "int4": 2}
_BITS = {ir.DataType.FLOAT: 32, ir.DataType.FLOAT16: 16, ir.DataType.BFLOAT16: 16, ir.DataType.INT8: 8,
         ir.DataType.UINT8: 8, ir.DataType.FLOAT8E4M3FN: 8, ir.DataType.INT4: 4, ir.DataType.BOOL: 8,
         ir.DataType.INT32: 32, ir.DataType.INT64: 64}  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """Each relative to FP32 throughout; ``unknown`` tensors have a size that is not known and count for nothing."""

    multiplications: float
    bytes: float
    unknown: int

    @property
    def whole(self) -> float:
        """The mean of the two: which of them a GPU waits for differs from layer to layer."""
        return (self.multiplications + self.bytes) / 2


class Sizes:
    """Elements of every tensor and multiplications of every product of a prepared FP32 graph."""

    def __init__(self, model: ir.Model, sizes: Mapping[str, int]) -> None:
        fixed = model.clone()
        for value in fixed.graph.inputs:
            if value.shape is not None:
                known = (dim if isinstance(dim, int) else sizes.get(str(dim), dim) for dim in value.shape)
                value.shape = ir.Shape(known)
        for node in nodes(fixed):
            for output in node.outputs:
                output.shape = None
        ShapeInferencePass(check_type=False, strict_mode=False)(fixed)
        self.elements: dict[str, int] = {}
        self.products: dict[str, int] = {}
        for node in nodes(fixed):
            for item in (*node.inputs, *node.outputs):
                if item is not None and item.name and (count := _count(item)) is not None:
                    self.elements[item.name] = count
            if (product := self._product(node)) is not None:
                self.products[node.name or ""] = product
        self._multiplications = sum(self.products.values())
        self._bytes = sum(count * _BITS.get(value.dtype or ir.DataType.FLOAT, 32)
                          for value in _written(fixed) if (count := self.elements.get(value.name or "")))  # fmt: skip

    def _product(self, node: ir.Node) -> int | None:
        if node.op_type not in ("MatMul", "Gemm", "Conv", "ConvTranspose") or node.domain:
            return None
        result, operand = self.elements.get(node.outputs[0].name or ""), node.inputs[1]
        shape = operand.shape if operand is not None else None
        if result is None or shape is None or not all(isinstance(dim, int) for dim in shape):
            return None
        dims = [int(dim) for dim in shape if isinstance(dim, int)]
        if node.op_type == "MatMul":
            return result * (dims[-2] if len(dims) > 1 else dims[0])
        if node.op_type == "Gemm":
            turned = node.attributes.get("transB")
            return result * dims[1 if turned and turned.as_int() else 0]
        return result * math.prod(dims[1:])

    def cost(self, lowered: ir.Model, report: LoweringReport, quantised: Quantised) -> Cost:
        """The cost of a graph that was lowered from this one."""
        kinds = quantised.types(report.node_types)
        work = sum(count / SPEED[kinds.get(name, "fp32")] for name, count in self.products.items())
        bits, unknown = 0, 0
        for value in _written(lowered):
            count = self._elements(value)
            if count is None:
                unknown += 1
            else:
                bits += count * _BITS.get(value.dtype or ir.DataType.FLOAT, 32)
        return Cost(
            work / self._multiplications if self._multiplications else 1.0,
            bits / self._bytes if self._bytes else 1.0,
            unknown,
        )

    def _elements(self, value: ir.Value) -> int | None:
        """Of a tensor that lowering added: those of the one that it was made from, or that is made of it."""
        found = _count(value) if is_weight(value) else self.elements.get(value.name or "")
        maker = value.producer()
        if found is None and maker is not None and (maker.op_type == "Cast" or is_ours(maker)) and maker.inputs[0]:
            return self._elements(maker.inputs[0])
        if found is None:  # a graph output keeps its name, and what is cast to it has a new one
            casts = (user.outputs[0].name for user, _ in value.uses() if user.op_type == "Cast")
            found = next((self.elements[name] for name in casts if name in self.elements), None)
        return found


def _count(value: ir.Value) -> int | None:
    shape = value.const_value.shape if value.const_value is not None else value.shape
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        return None
    return math.prod(int(dim) for dim in shape if isinstance(dim, int))


def _written(model: ir.Model) -> list[ir.Value]:
    """Tensors that pass through memory: weights as stored, and what a node writes for others to read."""
    found: list[ir.Value] = [value for graph in model.graphs() for value in graph.initializers.values() if value.uses()]
    for node in nodes(model):
        if node.op_type == "Constant" or (is_ours(node) and node.op_type == "DequantizeLinear"):
            continue
        for value in node.outputs:
            users = [user for user, _ in value.uses()]
            fused = bool(users) and all(is_ours(user) for user in users) and not value.is_graph_output()
            if not (fused and value.dtype in PRECISIONS):
                found.append(value)
    return found
