"""What is in a graph: ops, types, and the oddities that make ports slow or wrong."""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx_ir as ir

from engine.graph.provenance import MODULE
from engine.values import Issue

_RANDOM = frozenset(
    ["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"]
)
_SENTINEL = 65504.0  # largest finite float16


def take(model: ir.Model) -> dict[str, Any]:
    """Counts that repeat exactly: nodes, ops, tensor types of values, weights by type in bytes."""
    ops = Counter(node.op_type for node in model.graph.all_nodes())
    types = Counter(
        value.dtype.name.lower() for node in model.graph.all_nodes() for value in node.outputs if value.dtype
    )
    weights: Counter[str] = Counter()
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                weights[value.const_value.dtype.name.lower()] += value.const_value.nbytes
    return {
        "nodes": sum(ops.values()),
        "ops": dict(sorted(ops.items())),
        "value_types": dict(sorted(types.items())),
        "weight_bytes": dict(sorted(weights.items())),
    }


def random_nodes(model: ir.Model) -> list[str]:
    """Nodes that draw random numbers, as ``name (op) in module``; none belongs into a port."""
    found = []
    for node in model.graph.all_nodes():
        if node.op_type in _RANDOM or (node.op_type == "Dropout" and _training(node)):
            module = node.metadata_props.get(MODULE)
            found.append(f"{node.name} ({node.op_type})" + (f" in {module}" if module else ""))
    return found


def training_norms(model: ir.Model) -> list[str]:
    """Batch norms that use the statistics of the batch, as ``name in module``."""
    found = []
    for node in model.graph.all_nodes():
        if node.op_type == "BatchNormalization" and _flag(node, "training_mode"):
            module = node.metadata_props.get(MODULE)
            found.append(f"{node.name}" + (f" in {module}" if module else ""))
    return found


def _flag(node: ir.Node, name: str) -> bool:
    return name in node.attributes and bool(node.attributes[name].as_int())


def _training(node: ir.Node) -> bool:
    mode = node.inputs[2] if len(node.inputs) > 2 else None
    if mode is None:
        return False
    return mode.const_value is None or bool(mode.const_value.numpy())


def oddities(model: ir.Model, step: str) -> list[Issue]:
    """Things worth knowing before TensorRT sees the graph. None of them is an error."""
    found = []
    for what, cause, nodes in (
        ("Cast feeding Cast", "a value is converted twice", _chains(model, "Cast")),
        ("Transpose feeding Transpose", "two permutations that could be one", _chains(model, "Transpose")),
        ("IsNaN/Where guard behind Softmax", "PyTorch's guard for fully masked rows", _nan_guards(model)),
        ("Erf spelled-out GELU", "five ops that TensorRT fuses into one kernel", _of_type(model, "Erf")),
        ("If", "a branch TensorRT must be able to decide at build time", _of_type(model, "If")),
        ("NonZero", "its output size depends on values", _of_type(model, "NonZero")),
    ):
        if nodes:
            found.append(_issue(step, what, cause, nodes))
    constants = _beyond_half(model)
    if constants:
        cause = "becomes inf in FP16; lowering must clamp it or keep its node wide"
        found.append(_issue(step, "constant beyond the FP16 range", cause, constants, "numeric"))
    return found


def _issue(step: str, what: str, cause: str, names: list[str], klass: Any = "op") -> Issue:
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Issue(step, klass, f"{what} ({len(names)})", cause=cause, evidence=shown)


def _of_type(model: ir.Model, op: str) -> list[str]:
    return [node.name or "?" for node in model.graph.all_nodes() if node.op_type == op]


def _chains(model: ir.Model, op: str) -> list[str]:
    names = []
    for node in model.graph.all_nodes():
        source = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
        if node.op_type == op and source is not None and source.op_type == op:
            names.append(node.name or "?")
    return names


def _nan_guards(model: ir.Model) -> list[str]:
    names = []
    for node in model.graph.all_nodes():
        source = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
        if node.op_type == "IsNaN" and source is not None and source.op_type == "Softmax":
            names.append(node.name or "?")
    return names


def _beyond_half(model: ir.Model) -> list[str]:
    names = []
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is None or tensor.dtype != ir.DataType.FLOAT or not 0 < tensor.size <= 16:
                continue
            if any(_SENTINEL < abs(float(item)) < float("inf") for item in tensor.numpy().ravel()):
                names.append(f"{value.name} = {float(tensor.numpy().ravel()[0]):.3g}")
    return names
