"""What FP16 accumulation could do to the sums inside a node, which the shadow computes in FP32.

A kernel may keep the partial sums of ``sum a*b`` in FP16. No partial sum is larger than ``sum |a||b|``, so that is what
must stay in range. Each addition rounds by at most u = 2**-11 of its partial sum: n of them are off by at most
n*u*sum|a||b|, and by about sqrt(n)*u*sum|a||b| where the roundings are independent (Higham, Accuracy and Stability of
Numerical Algorithms, section 4.2; Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019).
Beyond ``LONG`` terms the first bound is half of the whole sum: it no longer promises a single digit.

``sum |a||b|`` is not computed for products, but bounded: by the norms of rows and columns (MatMul, Gemm), by the
largest input times the sum of a filter's weights (Conv).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from engine.graph.fresh import Names
from engine.precision.formats import LIMITS
from engine.precision.selectors import module_of
from engine.samples import Array

LONG = 1024
_UNIT = 2.0**-11
_MEANS = frozenset({"AveragePool", "GlobalAveragePool", "ReduceMean"})
_SUMS = frozenset({*_MEANS, "ReduceL1", "ReduceL2", "ReduceSum", "ReduceSumSquare"})
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


@dataclass(frozen=True)
class Sum:
    """The longest sums of a node: ``length`` terms, whose magnitudes add up to ``total`` at most; ``result`` is the
    largest magnitude of the node's output."""

    node: str
    op: str
    module: str
    length: int
    total: float
    result: float

    @property
    def overflows(self) -> bool:
        """Whether a partial sum in FP16 could become infinite though the result does not."""
        edge = LIMITS["fp16"].to_inf
        return self.length > 1 and self.result < edge <= self.total

    @property
    def error(self) -> float:
        """What FP16 accumulation may add, relative to the largest result; zero for short sums.

        The probable bound: where terms cancel, as in a trained layer, the error itself is several times smaller.
        """
        if self.length <= LONG or not self.result:
            return 0.0
        return math.sqrt(self.length) * _UNIT * self.total / self.result


@dataclass(frozen=True)
class Watched:
    """Names of graph outputs that tell of a node's sums; ``read`` makes length and total of their values."""

    node: ir.Node
    names: tuple[str, ...]
    read: Callable[[list[Array]], tuple[float, float]]


def watch(lowered: ir.Model, shadow: ir.Model, names: Names) -> tuple[Watched, ...]:
    """Add outputs to ``shadow`` for every node that sums in FP16 in the main graph of ``lowered``."""
    half = {
        node.name for node in lowered.graph if node.outputs and node.outputs[0].dtype == ir.DataType.FLOAT16
    }
    added = _Added(shadow, names)
    nodes = [node for node in shadow.graph if node.name in half and node.op_type in _SUMS | _PRODUCTS]
    return tuple(found for node in nodes if (found := added.node(node)) is not None)


def read(
    watched: Iterator[Watched] | tuple[Watched, ...],
    outputs: Mapping[str, Array],
    largest: Callable[[ir.Node], float],
) -> tuple[Sum, ...]:
    """The sums of one run; nodes whose terms are not finite are left out, for that is another fault."""
    found = []
    for item in watched:
        length, total = item.read([outputs[name] for name in item.names])
        result = largest(item.node)
        if math.isfinite(total) and math.isfinite(result) and total > 0:
            node = item.node
            found.append(Sum(node.name or "", node.op_type, module_of(node), int(length), total, result))
    return tuple(found)


class _Added:
    def __init__(self, shadow: ir.Model, names: Names) -> None:
        self._graph, self._names = shadow.graph, names
        self._opset = shadow.opset_imports.get("", 18)
        self._last: ir.Node

    def node(self, node: ir.Node) -> Watched | None:
        self._last = node
        if node.op_type in _SUMS:
            return self._sum(node)
        first, second = node.inputs[0], node.inputs[1]
        if first is None or second is None or first.shape is None or second.shape is None:
            return None
        return self._product(node, first, second, len(second.shape))

    def _sum(self, node: ir.Node) -> Watched:
        given, made = node.inputs[0], node.outputs[0]
        assert given is not None
        magnitudes = self._op("Abs", [given])
        twin = self._op(node.op_type, [magnitudes, *node.inputs[1:]], node.attributes.values())
        kernel = node.attributes["kernel_shape"].as_ints() if "kernel_shape" in node.attributes else None
        squares, means = node.op_type == "ReduceL2", node.op_type in _MEANS

        def read(values: list[Array]) -> tuple[float, float]:
            worst, before, after = (float(value) for value in values)
            length = math.prod(kernel) if kernel else before / max(after, 1.0)
            return length, worst * worst if squares else worst * (length if means else 1.0)

        return self._watched(
            node, (self._worst(twin), self._op("Size", [given]), self._op("Size", [made])), read
        )

    def _product(self, node: ir.Node, first: ir.Value, second: ir.Value, rank: int) -> Watched:
        scale = abs(node.attributes["alpha"].as_float()) if "alpha" in node.attributes else 1.0
        group = node.attributes["group"].as_int() if "group" in node.attributes else 1
        if node.op_type in ("Conv", "ConvTranspose"):
            summed = [axis for axis in range(rank) if axis != (node.op_type == "ConvTranspose")]
            pair = (
                self._worst(self._op("Abs", [first])),
                self._worst(self._reduced("ReduceL1", second, summed)),
            )
            shaped, counted = second, summed
            group = (
                group if node.op_type == "ConvTranspose" else 1
            )  # a Conv's weights have a group's channels only
        else:
            turned = [
                node.attributes[key].as_int() if key in node.attributes else 0 for key in ("transA", "transB")
            ]
            rows = [-2 if turned[0] else -1]
            columns = [-1 if turned[1] or rank == 1 else -2]
            pair = (
                self._worst(self._reduced("ReduceL2", first, rows)),
                self._worst(self._reduced("ReduceL2", second, columns)),
            )
            shaped, counted, group = first, rows, 1

        def read(values: list[Array]) -> tuple[float, float]:
            one, other, sizes = float(values[0]), float(values[1]), values[2].tolist()
            return math.prod(sizes[axis] for axis in counted) / group, scale * one * other

        return self._watched(node, (*pair, self._op("Shape", [shaped])), read)

    def _watched(
        self,
        node: ir.Node,
        values: tuple[ir.Value, ...],
        read: Callable[[list[Array]], tuple[float, float]],
    ) -> Watched:
        self._graph.outputs.extend(values)
        return Watched(node, tuple(value.name or "" for value in values), read)

    def _worst(self, value: ir.Value) -> ir.Value:
        return self._op("ReduceMax", [value], [ir.AttrInt64("keepdims", 0)], ir.Shape(()))

    def _reduced(self, op: str, value: ir.Value, axes: list[int]) -> ir.Value:
        kept = ir.AttrInt64("keepdims", 0)
        if self._opset < 18:
            return self._op(op, [value], [kept, ir.AttrInt64s("axes", axes)])
        listed = self._op("Constant", [], [ir.AttrInt64s("value_ints", axes)])
        return self._op(op, [value, listed], [kept])

    def _op(
        self,
        op: str,
        inputs: list[ir.Value] | list[ir.Value | None],
        attributes: object = (),
        shape: ir.Shape | None = None,
    ) -> ir.Value:
        node = ir.Node("", op, inputs, list(attributes), name=self._names.fresh(f"sums.{op}"))  # type: ignore[call-overload]
        made = node.outputs[0]
        made.name, made.shape = self._names.fresh(node.name or op), shape
        kind = ir.DataType.INT64 if op in ("Size", "Shape", "Constant") else ir.DataType.FLOAT
        made.type = ir.TensorType(kind)
        self._graph.insert_after(self._last, node)
        self._last = node
        return made
