"""Types and shapes that a file declares, against those that follow from its nodes; and types TensorRT lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx

from engine.errors import quoted
from engine.graph.faults import Fault, all_nodes, described, dims, who
from engine.values import Issue

_SMALL = 64 * 1024  # bytes; larger weights decide no shapes and are left out of the inference


@dataclass(frozen=True)
class Inferred:
    """Types by value name as inference finds them from inputs and weights alone; ``trouble`` if it stopped."""

    types: dict[str, onnx.TypeProto]
    trouble: str = ""


def infer(model: onnx.ModelProto) -> Inferred:
    """Strict inference that may not lean on what the file declares; with data propagation where that works."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for value in bare.graph.output:
        value.ClearField("type")
    for tensor in bare.graph.initializer:
        if len(tensor.raw_data) > _SMALL:
            tensor.raw_data = b""
    trouble = ""
    for propagate in (True, False):
        try:
            done = onnx.shape_inference.infer_shapes(
                bare, check_type=True, strict_mode=True, data_prop=propagate
            )
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
            trouble = str(error).strip()
            continue
        values = (*done.graph.input, *done.graph.value_info, *done.graph.output)
        return Inferred({item.name: item.type for item in values if item.type.WhichOneof("value")})
    return Inferred({}, trouble)


def faults(model: onnx.ModelProto, inferred: Inferred) -> Iterator[Fault]:
    """Declarations that contradict the inference, at the boundary and inside."""
    if inferred.trouble:
        yield Fault(f"types and shapes do not fit together: {_first(inferred.trouble)}")
    axes = {size for value in model.graph.input for size in dims(value.type.tensor_type.shape)
            if isinstance(size, str) and size}  # fmt: skip
    makers = {name: node for node in model.graph.node for name in node.output}
    for what, values in (("output", model.graph.output), ("value", model.graph.value_info)):
        for value in values:
            found = inferred.types.get(value.name)
            if found is None or not value.type.WhichOneof("value"):
                continue
            if _contradict(value.type, found, axes):
                maker = makers.get(value.name)
                yield Fault(
                    f"{what} {quoted(value.name)} is declared {described(value.type)},"
                    f" {who(maker) if maker else 'the file'} gives {described(found)}",
                    "the declaration was not changed with the graph; TensorRT goes by the one or the other",
                    "take the declaration out, or export the model again",
                )


def _first(text: str) -> str:
    """The first complaint of an inference error, which may hold thousands."""
    line = text.splitlines()[0].removeprefix("[ShapeInferenceError] ").removeprefix("Inference error(s): ")
    return line.split("(op_type:", 2)[1].join(("(op_type:", "")) if line.startswith("(op_type:") else line


def _contradict(declared: onnx.TypeProto, found: onnx.TypeProto, axes: set[str]) -> bool:
    if declared.WhichOneof("value") != found.WhichOneof("value"):
        return True
    one, other = declared.tensor_type, found.tensor_type
    if declared.WhichOneof("value") != "tensor_type":
        return False
    if one.elem_type != other.elem_type:
        return True
    if not one.HasField("shape") or not other.HasField("shape"):
        return False
    if len(one.shape.dim) != len(other.shape.dim):
        return True
    return any(
        _apart(size, truth, axes) for size, truth in zip(dims(one.shape), dims(other.shape), strict=True)
    )


def _apart(size: int | str, truth: int | str, axes: set[str]) -> bool:
    """A number against another number, or against an axis of an input, which is no number."""
    return isinstance(size, int) and (truth in axes or isinstance(truth, int)) and size != truth


def boundary(model: onnx.ModelProto) -> Iterator[Fault]:
    """Inputs and outputs must be tensors of numbers."""
    for what, values in (("input", model.graph.input), ("output", model.graph.output)):
        for value in values:
            kind = _unusual(value.type)
            if kind:
                yield Fault(f"{what} {quoted(value.name)} is {kind}", "TensorRT takes tensors of numbers only",
                            f"make the {what} one or more tensors", "op")  # fmt: skip
    for sparse in (*model.graph.sparse_initializer,):
        yield Fault(f"the weight {quoted(sparse.values.name)} is stored sparse", "TensorRT takes dense weights only",
                    "write it dense", "op")  # fmt: skip
    for node in all_nodes(model.graph):
        for attribute in node.attribute:
            if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
                yield Fault(f"{who(node)} holds a sparse tensor", "TensorRT takes dense weights only",
                            "write it dense", "op")  # fmt: skip


def _unusual(kind: onnx.TypeProto) -> str:
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        return "a tensor of strings" if kind.tensor_type.elem_type == onnx.TensorProto.STRING else ""
    named = {"sequence_type": "a sequence", "map_type": "a map", "optional_type": "an optional",
             "sparse_tensor_type": "a sparse tensor"}  # fmt: skip
    return named.get(which or "", "")


def inside(inferred: Inferred, step: str) -> list[Issue]:
    """Values inside the graph of types that TensorRT does not have. A rule may still replace their nodes."""
    names = [f"{name}: {_unusual(kind)}" for name, kind in inferred.types.items() if _unusual(kind)]
    if not names:
        return []
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")
    return [
        Issue(
            step, "op", f"values that are no tensors of numbers ({len(names)})",
            cause="TensorRT has no sequences, maps, optionals or strings", evidence=shown,
            fix="replace their nodes by rules, or change the model", disposition="open",
        )
    ]  # fmt: skip
