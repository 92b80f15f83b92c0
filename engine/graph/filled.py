"""Types and shapes of inner values, for files that do not say them: rules match by them."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common


def fill(model: ir.Model) -> None:
    """Infer what is not said; what is said stays as it is."""
    values = [*model.graph.inputs, *(value for node in model.graph.all_nodes() for value in node.outputs)]
    if all(value.type is not None and value.shape is not None for value in values if value.name):
        return
    said = [(value, value.type, value.shape) for value in values]
    common.ShapeInferencePass(strict_mode=False)(model)
    for value, kind, shape in said:
        value.type = kind or value.type
        value.shape = shape if shape is not None else value.shape
