"""The outputs' dimensions in the file against what the model returned at every shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from engine.errors import StepError
from engine.plan import Plan
from engine.values import Issue

Observed = Mapping[str, Mapping[str, Sequence[int]]]  # by shape, then by output


def check(model: ir.Model, plan: Plan, observed: Observed) -> list[Issue]:
    """Raise StepError for a dimension that moves in the model and is fixed in the file, or has another rank.

    A dimension that bears the name of an axis and is not as long as that axis is an issue.
    """
    issues: list[Issue] = []
    for index, value in enumerate(model.graph.outputs):
        if value.shape is None:
            continue
        for shape, outputs in observed.items():
            real = outputs.get(value.name or "", ())
            if value.name in outputs and len(real) != len(value.shape):
                raise StepError(
                    f"output '{value.name}' has {len(value.shape)} dimensions in the exported graph; the model"
                    f" returns {len(real)} at shape '{shape}'",
                    klass="shape",
                    where=f"outputs[{index}]",
                )
        for axis, dim in enumerate(value.shape):
            real_sizes = {shape: outputs[str(value.name)][axis] for shape, outputs in observed.items()
                          if value.name in outputs}  # fmt: skip
            if isinstance(dim, int):
                _fixed(str(value.name), index, axis, dim, real_sizes)
            elif dim.value in plan.axes:
                issues += _misnamed(str(value.name), axis, str(dim.value), real_sizes, plan)
    return issues


def _fixed(name: str, index: int, axis: int, dim: int, sizes: Mapping[str, int]) -> None:
    others = {shape: size for shape, size in sizes.items() if size != dim}
    if not others:
        return
    shape, size = next(iter(others.items()))
    raise StepError(
        f"dimension {axis} of output '{name}' is fixed to {dim} in the exported graph; the model returns {size}"
        f" there at shape '{shape}'",
        klass="shape",
        cause="the model turns a size into a Python number (len(x), int(x.shape[0]), a loop over it)",
        fix="use x.shape or -1 in the model, or pin the axis in the recipe",
        where=f"outputs[{index}]",
    )


def _misnamed(name: str, axis: int, size: str, sizes: Mapping[str, int], plan: Plan) -> Iterator[Issue]:
    for shape, real in sizes.items():
        asked = plan.shapes[shape][size]
        if real != asked:
            yield Issue(
                "export",
                "shape",
                f"dimension {axis} of output '{name}' is named '{size}' in the file, but is {real} where"
                f" '{size}' is {asked}",
                cause="the exporter tied the dimension to the wrong axis",
                evidence=f"the model's own output at shape '{shape}'",
                disposition="open",
            )
            return
