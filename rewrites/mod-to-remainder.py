"""Mod of floats with the sign of the divisor, and Mod of narrow integers in int32."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part

NARROW = {"int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64"}
FLOATS = ("float16", "bfloat16", "float32", "float64")


def apply(graph: gs.Graph, match: Captured) -> None:
    dtype, fmod, add = match.dtypes["A"], match.attributes["fmod"], Part(graph)
    a, b = graph.nodes[0].inputs
    if dtype in NARROW:
        a, b = (add.cast(value, NARROW[dtype]) for value in (a, b))
        rest = add("Sub", a, add("Mul", add("Div", a, b), b)) if fmod else add("Mod", a, b)
        add.finish({"C": add.cast(rest, dtype)})
    elif dtype in FLOATS and not fmod:
        add.finish({"C": _floored(add, a, b, np.array(0, dtype))})
    elif dtype == "uint64":
        raise RefusedError("A is uint64; no integer type of TensorRT holds its numbers")
    else:
        raise RefusedError(f"TensorRT takes Mod of {dtype} with fmod {fmod} as it is")


def _floored(add: Part, a: gs.Tensor, b: gs.Tensor, zero: np.ndarray) -> gs.Tensor:
    rest = add("Mod", a, b, fmod=1)
    signs = add("Xor", add("Less", rest, zero), add("Less", b, zero))
    moved = add("And", signs, add("Not", add("Equal", rest, zero)))
    return add("Where", moved, add("Add", rest, b), rest)
