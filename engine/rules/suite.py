"""ONNX's own backend test suite: models of one operator each, with inputs and the outputs they must give."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.defs

from engine.rules.constants import Array

SMALL = 64  # elements of an input that is taken for a constant
# Inputs that say how to compute, not what: exporters write them as constants, and TensorRT wants them so.
CONSTANT_LIKE = frozenset(
    {
        "axes", "axis", "block_shape", "cond", "depth", "dft_length", "ends", "frame_length", "frame_step",
        "image_shape", "iou_threshold", "k", "K", "lower_edge_hertz", "M", "max_output_boxes_per_class",
        "num_mel_bins", "output_shape", "pads", "ratio", "repeats", "roi", "sample_rate", "scales",
        "score_threshold", "shape", "size", "sizes", "split", "starts", "steps", "upper_edge_hertz",
    }
)  # fmt: skip
_RANDOM = frozenset(
    ["Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"]
)


@dataclass(frozen=True)
class Case:
    """One test: a model, its inputs and outputs in order, and how close they must be."""

    name: str
    model: onnx.ModelProto
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    rtol: float
    atol: float

    @property
    def opset(self) -> int:
        return next((item.version for item in self.model.opset_import if item.domain == ""), 1)

    def feeds(self) -> dict[str, Array]:
        return dict(zip((value.name for value in self.model.graph.input), self.inputs, strict=True))


@functools.lru_cache(maxsize=1)
def cases() -> tuple[Case, ...]:
    """Every test of tensors alone, small constant-like inputs as initializers.

    Left out: strings, sequences, optionals and maps at the boundary, operators outside the standard's
    default domain, random ones, training.
    """
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite computes infinities on purpose
        found = load_model_tests(kind="node")
    made = []
    for test in found:
        model = test.model if test.model is not None else onnx.load(f"{test.model_dir}/model.onnx")
        if test.data_sets and _of_tensors(model) and not _random(test.name, model):
            inputs, outputs = test.data_sets[0]
            made.append(_case(test.name, model, inputs, outputs, test.rtol, test.atol))
    return tuple(made)


def of_ops(ops: Sequence[str]) -> tuple[Case, ...]:
    """The tests whose model holds one of ``ops``."""
    return tuple(case for case in cases() if any(node.op_type in ops for node in case.model.graph.node))


def _of_tensors(model: onnx.ModelProto) -> bool:
    graph = model.graph
    return all(node.domain in ("", "ai.onnx") for node in graph.node) and all(
        value.type.WhichOneof("value") == "tensor_type"
        and value.type.tensor_type.elem_type != onnx.TensorProto.STRING
        for value in (*graph.input, *graph.output)
    )


def _random(name: str, model: onnx.ModelProto) -> bool:
    return "bernoulli" in name or "train" in name or any(n.op_type in _RANDOM for n in model.graph.node)


def _case(
    name: str, source: onnx.ModelProto, inputs: Sequence[Any], outputs: Sequence[Any], rtol: float, atol: float
) -> Case:  # fmt: skip
    model = onnx.ModelProto()
    model.CopyFrom(source)
    graph = model.graph
    arrays = {value.name: _array(array) for value, array in zip(graph.input, inputs, strict=False)}
    constant = [name for name in _constant_like(model) if name in arrays and arrays[name].size <= SMALL]
    left = [value for value in graph.input if value.name not in constant]
    graph.initializer.extend(onnx.numpy_helper.from_array(arrays[name], name) for name in constant)
    del graph.input[:]
    graph.input.extend(left)
    given = tuple(arrays[value.name] for value in left)
    return Case(name, model, given, tuple(_array(array) for array in outputs), rtol, atol)


def _array(given: Any) -> Array:
    """Types that numpy lacks come as tensors of ONNX."""
    return onnx.numpy_helper.to_array(given) if isinstance(given, onnx.TensorProto) else np.asarray(given)


def _constant_like(model: onnx.ModelProto) -> list[str]:
    opset = next((item.version for item in model.opset_import if item.domain == ""), 1)
    found: list[str] = []
    for node in model.graph.node:
        if node.op_type == "Attention" or not onnx.defs.has(
            node.op_type, max_inclusive_version=opset, domain=""
        ):
            continue  # Attention's K are keys, not a number
        formals = onnx.defs.get_schema(node.op_type, opset).inputs
        found += [
            name for name, formal in zip(node.input, formals, strict=False) if formal.name in CONSTANT_LIKE
        ]
    return list(dict.fromkeys(name for name in found if name))
