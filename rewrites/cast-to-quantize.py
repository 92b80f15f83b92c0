"""Cast and CastLike from or to a type of 8 or 4 bits that TensorRT has for weights and quantised values."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part

SMALL = {"float8_e4m3fn": "FLOAT8E4M3FN", "float4_e2m1fn": "FLOAT4E2M1", "int4": "INT4"}
REAL = ("float32", "float16", "bfloat16")


def apply(graph: gs.Graph, match: Captured) -> None:
    source, target, add = match.dtypes["input"], match.dtypes["output"], Part(graph)
    value = graph.nodes[0].inputs[0]
    shape = match.shapes["input"]
    fixed = shape is not None and all(isinstance(size, int) for size in shape)
    if {"int4", "float4_e2m1fn"} & {source, target} and fixed and np.prod(shape, dtype=np.int64) % 2:
        raise RefusedError("TensorRT has 4-bit tensors of an even number of elements only")
    if source in SMALL and target not in SMALL:
        kind = target if target in REAL else "float32"
        real = add("DequantizeLinear", value, np.array(1, kind))
        add.finish({"output": real if kind == target else add.cast(real, target)})
        return
    if target not in SMALL or source not in REAL:
        raise RefusedError(f"a cast from {source} to {target} is not between a float type and a small one")
    if not match.attributes.get("saturate", 1) and target != "int4":
        raise RefusedError("TensorRT gives the largest number where saturate=0 asks for NaN")
    if target == "int4":  # a cast drops the fraction and what does not fit, quantising rounds and saturates
        half, size = np.array(8, np.int32), np.array(16, np.int32)
        whole = add("Mod", add("Add", add.cast(value, "int32"), half), size)
        value = add.cast(add("Sub", whole, half), source)
    to = onnx.TensorProto.DataType.Value(SMALL[target])
    add.finish({"output": add("QuantizeLinear", value, np.array(1, source), output_dtype=to)})
