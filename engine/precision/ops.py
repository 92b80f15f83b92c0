"""What ONNX itself says about a node: which slots are floating point, which types they may take.

Type constraints come from ``onnx.defs``; the few lists here say what a schema cannot: which ops only
move data, and which never look at the type of what they are given.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import onnx_ir as ir
from onnx import defs

from engine.precision.formats import DTYPES, Precision, is_float
from engine.precision.quantizable import MARK, is_ours

# fmt: off
_MOVES = frozenset({
    "CenterCropPad", "Compress", "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather",
    "GatherElements", "GatherND", "Identity", "OneHot", "Pad", "Reshape", "ReverseSequence",
    "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose",
    "Trilu", "Unsqueeze", "Where",
})
# fmt: on
_BLIND = frozenset({"Shape", "Size", "IsNaN", "IsInf"})
_SOURCES = frozenset({"ConstantOfShape", "EyeLike"})
_QUANTIZERS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
_STAY = {
    "BitCast": "BitCast depends on the width of the type",
    "MelWeightMatrix": "ONNX Runtime cannot run MelWeightMatrix in a narrow type",
}
_SUBGRAPHS = frozenset({"If", "Loop", "Scan"})  # those whose values keep one type inside and outside
# Ops that build in FP32 and not in the narrow type, found by lowering ONNX's 1,884 node models one by one.
_BUILT_WITH = "TensorRT-RTX 1.7.1"
_UNBUILT_LOW = frozenset({"Celu", "MeanVarianceNormalization", "TensorScatter"})
_UNBUILT = {
    ir.DataType.FLOAT16: _UNBUILT_LOW,
    ir.DataType.BFLOAT16: _UNBUILT_LOW
    | {"ConvTranspose", "GRU", "HardSwish", "LpNormalization", "LpPool", "Mish", "RandomUniformLike"},
}
_PEEPHOLES = 7  # input of LSTM
_TYPE_ATTRIBUTES = {
    "Cast": "to",
    "EyeLike": "dtype",
    "RandomNormal": "dtype",
    "RandomUniform": "dtype",
    "BlackmanWindow": "output_datatype",
    "HammingWindow": "output_datatype",
    "HannWindow": "output_datatype",
}
_STASHED = frozenset({"LayerNormalization"})
_TYPE_NAMES = {
    "tensor(float)": ir.DataType.FLOAT,
    "tensor(float16)": ir.DataType.FLOAT16,
    "tensor(bfloat16)": ir.DataType.BFLOAT16,
}


@dataclass(frozen=True)
class Slot:
    """One floating point input or output of a node: ``group`` is the type variable, ``allowed`` its types."""

    index: int
    is_output: bool
    group: str
    allowed: frozenset[ir.DataType]

    @property
    def is_fixed(self) -> bool:
        """Whether the schema names one concrete type instead of a type variable."""
        return self.group.startswith("tensor(")


def moves_data(node: ir.Node) -> bool:
    """Whether the node copies values without computing: its result is exact in any type."""
    if node.domain or node.op_type not in _MOVES:
        return False
    reduction = node.attributes.get("reduction")
    return reduction is None or reduction.as_string() == "none"


def casts_between_floats(node: ir.Node) -> bool:
    return node.op_type == "Cast" and is_float(node.inputs[0]) and is_float(node.outputs[0])


def makes_float(node: ir.Node) -> bool:
    """Whether the node makes floats out of none: a cast from integers, a fill."""
    if node.op_type in _SOURCES and not node.domain:
        return is_float(node.outputs[0])
    return node.op_type == "Cast" and not is_float(node.inputs[0]) and is_float(node.outputs[0])


def is_blind(node: ir.Node) -> bool:
    """Whether the node takes a float of any type without loss (Shape, IsNaN, a cast to integers)."""
    if node.op_type == "Cast":
        return is_float(node.inputs[0]) and not is_float(node.outputs[0])
    return node.op_type in _BLIND and not node.domain


def is_free(node: ir.Node) -> bool:
    """Whether the node may take the type of its neighbours: it does not compute in floating point."""
    if is_ours(node) and node.op_type == "QuantizeLinear":
        return True
    return moves_data(node) or is_blind(node) or makes_float(node) or casts_between_floats(node)


def is_quantizer(node: ir.Node) -> bool:
    return node.op_type in _QUANTIZERS


def touches_float(node: ir.Node) -> bool:
    return any(map(is_float, node.inputs)) or any(map(is_float, node.outputs))


def holds_graphs(node: ir.Node) -> bool:
    kinds = {attribute.type for attribute in node.attributes.values()}
    return bool(kinds & {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS})


def handles_sequences(node: ir.Node) -> bool:
    """Whether the node takes or gives a sequence or an optional instead of a tensor."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    return any(isinstance(value.type, ir.SequenceType | ir.OptionalType) for value in values)


@functools.cache
def _schema(op: str, version: int, domain: str) -> defs.OpSchema | None:
    try:
        return defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return None


def schema_of(node: ir.Node, opsets: Mapping[str, int]) -> defs.OpSchema | None:
    version = node.version or opsets.get(node.domain)
    return None if version is None else _schema(node.op_type, version, node.domain)


@functools.cache
def _groups(op: str, version: int, domain: str) -> Mapping[str, frozenset[ir.DataType]]:
    schema = _schema(op, version, domain)
    assert schema is not None
    groups = {
        c.type_param_str: frozenset(_TYPE_NAMES[t] for t in c.allowed_type_strs if t in _TYPE_NAMES)
        for c in schema.type_constraints
    }
    return groups | {name: frozenset({dtype}) for name, dtype in _TYPE_NAMES.items()}


def slots_of(node: ir.Node, opsets: Mapping[str, int]) -> tuple[Slot, ...]:
    """Every floating point slot of the node, inputs first; empty for an op without a schema."""
    schema = schema_of(node, opsets)
    if schema is None:
        return ()
    groups = _groups(node.op_type, schema.since_version, node.domain)
    found = []
    for is_output, values, formals in (
        (False, node.inputs, schema.inputs),
        (True, node.outputs, schema.outputs),
    ):
        for index, value in enumerate(values):
            if is_float(value):
                group = formals[min(index, len(formals) - 1)].type_str
                found.append(Slot(index, is_output, group, groups.get(group, frozenset())))
    return tuple(found)


def slot_type(node: ir.Node, slot: Slot, dtype: ir.DataType) -> ir.DataType:
    """The type this slot takes when the node computes in ``dtype``."""
    if slot.is_output and slot.index > 0 and node.op_type in _STASHED:
        stash = node.attributes.get("stash_type")
        return ir.DataType(stash.as_int()) if stash else ir.DataType.FLOAT
    return dtype if dtype in slot.allowed else ir.DataType.FLOAT


def refuses(node: ir.Node, dtype: ir.DataType, opsets: Mapping[str, int]) -> str:
    """Why the node cannot be given ``dtype``, mostly because ONNX does not let it; empty when it can.

    An input whose schema says FLOAT and nothing else (scales of Resize) does not count: it stays FLOAT.
    """
    if is_ours(node):
        held = DTYPES[cast("Precision", node.metadata_props[MARK])]
        return "" if dtype in (held, ir.DataType.FLOAT) else f"its scale is a number of {held.name}"
    if is_quantizer(node):
        return "quantisation keeps the type it was calibrated in"
    if handles_sequences(node):
        return "it handles sequences or optionals"
    if node.op_type in _STAY:
        return _STAY[node.op_type]
    if holds_graphs(node) and node.op_type not in _SUBGRAPHS:
        return f"the graph inside {node.op_type} states its own types"
    if node.domain or schema_of(node, opsets) is None:
        return f"{node.domain or 'ai.onnx'}::{node.op_type} is not an op of ONNX itself"
    slots = slots_of(node, opsets)
    main = slots[0].group if slots else ""
    inputs = {slot.group for slot in slots if not slot.is_output}
    for slot in slots:
        side = slot.is_fixed and slot.group != main
        result = slot.is_output and slot.group not in inputs and slot.group != main
        if dtype not in slot.allowed and not side and not result:
            version = node.version or opsets.get(node.domain, 0)
            return f"{node.op_type} takes no {dtype.name} at opset {version}{_later(node, slot, dtype)}"
    return ""


def unbuilt(node: ir.Node, dtype: ir.DataType) -> str:
    """Why TensorRT would not build the node in ``dtype`` though ONNX allows it; empty when it does."""
    peepholes = (
        node.op_type == "LSTM" and len(node.inputs) > _PEEPHOLES and node.inputs[_PEEPHOLES] is not None
    )
    if node.op_type not in _UNBUILT.get(dtype, frozenset()) and not (
        peepholes and dtype != ir.DataType.FLOAT
    ):
        return ""
    return f"{_BUILT_WITH} does not build {node.op_type} in {dtype.name}"


def _later(node: ir.Node, slot: Slot, dtype: ir.DataType) -> str:
    for version in range(1, defs.onnx_opset_version() + 1):
        schema = _schema(node.op_type, version, "")
        if schema is None or schema.since_version != version:
            continue
        if dtype in _groups(node.op_type, version, "").get(slot.group, frozenset()):
            return f" (from opset {version} it does)"
    return ""


def type_attribute(node: ir.Node) -> str:
    """Name of the attribute that decides the type of the node's floats; "" where the inputs decide."""
    if node.domain or not is_float(node.outputs[0]):
        return ""
    return _TYPE_ATTRIBUTES.get(node.op_type) or ("dtype" if "dtype" in node.attributes else "")


def precise(name: Precision) -> ir.DataType:
    return DTYPES[name]
