"""Integer types that TensorRT lacks, the ones that hold their numbers, and what operators do with them."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

Type = ir.DataType

# uint64 has no wider type: from 2**63 on its numbers are negative ones in int64.
WIDER: Mapping[Type, Type] = {
    Type.UINT8: Type.INT32,
    Type.INT16: Type.INT32,
    Type.UINT16: Type.INT32,
    Type.UINT32: Type.INT64,
}
# Their numbers do not depend on the width of the type, as long as the inputs are in its range.
SAME = frozenset(
    (
        "ArgMax", "ArgMin", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Cast", "Clip", "Compress", "Concat",
        "Constant", "ConstantOfShape", "DepthToSpace", "Equal", "Expand", "EyeLike", "Flatten", "Gather",
        "GatherElements", "GatherND", "Greater", "GreaterOrEqual", "Identity", "If", "Less", "LessOrEqual",
        "Loop", "Max", "MaxPool", "Min", "Mod", "NonZero", "OneHot", "Pad", "ReduceMax", "ReduceMin",
        "Reshape", "ReverseSequence", "Scan", "ScatterElements", "ScatterND", "Shape", "Sign", "Size",
        "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "TopK", "Transpose", "Trilu", "Unique",
        "Unsqueeze", "Where",
    )
)  # fmt: skip
WRAPS = frozenset(
    (
        "Abs", "Add", "BitShift", "BitwiseNot", "CumSum", "Div", "Gemm", "MatMul", "Mul", "Neg", "Pow",
        "ReduceSum", "Sub", "Sum",
    )
)  # fmt: skip


def join_casts(graph: ir.Graph) -> None:
    """A type made wider and narrow again at once is the type that was there."""
    for node in list(graph):
        first = _cast_before(node)
        if first is None or first.inputs[0] is None:
            continue
        source, end = first.inputs[0], node.outputs[0]
        node.replace_input_with(0, source)
        if source.dtype == end.dtype and not end.is_graph_output():
            end.replace_all_uses_with(source)
            graph.remove(node, safe=True)
        if not first.outputs[0].uses() and not first.outputs[0].is_graph_output():
            graph.remove(first, safe=True)


def _cast_before(node: ir.Node) -> ir.Node | None:
    """The cast to a wider type that a cast reads, when it loses nothing."""
    value = node.inputs[0] if node.op_type == "Cast" else None
    first = value.producer() if value is not None else None
    if value is None or first is None or first.op_type != "Cast" or first.graph is not node.graph:
        return None
    source = first.inputs[0]
    kind = source.dtype if source is not None else None
    return first if kind is not None and WIDER.get(kind) == value.dtype else None


def number_range(dtype: Type) -> tuple[int, int]:
    """The least and the largest number of an integer type."""
    bits = dtype.bitwidth
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.is_signed() else (0, 2**bits - 1)
