"""DFT over a fixed length as a product with a constant matrix."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError


def apply(graph: gs.Graph, match: Captured) -> None:
    """Replace the one DFT of ``graph``; the axis moves beside the complex parts and back."""
    shape = match.shapes["signal"]
    rank = len(shape)
    axis = match.attributes["axis"] % rank
    inverse, onesided = match.attributes["inverse"], match.attributes["onesided"]
    length, parts = shape[axis], shape[-1]
    if not isinstance(length, int):
        raise RefusedError(f"the length of the transform, axis {axis} of signal, is dynamic ({length})")
    if axis == rank - 1 or parts not in (1, 2):
        raise RefusedError(f"axis {axis} with {parts} parts is no signal")
    if onesided and (inverse or parts == 2):
        raise RefusedError("a one-sided transform is defined forward and of real signals only")
    weights = _weights(length, parts, inverse, onesided).astype(match.dtypes["signal"])
    signal, spectrum = graph.inputs[0], graph.outputs[0]
    spectrum.inputs.clear()

    order = [*(i for i in range(rank - 1) if i != axis), axis, rank - 1]
    back = [order.index(i) for i in range(rank)]
    lead = [0] * (rank - 2)  # 0 keeps a size as it is
    moved = _transposed(graph, signal, order, "moved")
    flat = _node(graph, "Reshape", [moved, _shape("rows", [*lead, length * parts])], "flat")
    product = _node(graph, "MatMul", [flat, gs.Constant("weights", weights)], "product")
    pairs = _shape("pairs", [*lead, weights.shape[1] // 2, 2])
    if order == sorted(order):
        graph.nodes.append(gs.Node("Reshape", inputs=[product, pairs], outputs=[spectrum]))
        return
    paired = _node(graph, "Reshape", [product, pairs], "paired")
    graph.nodes.append(gs.Node("Transpose", attrs={"perm": back}, inputs=[paired], outputs=[spectrum]))


def _weights(length: int, parts: int, inverse: int, onesided: int) -> np.ndarray:
    """[length * parts, 2 * outputs]: rows hold real (and imaginary) part by turns, columns likewise."""
    count = length // 2 + 1 if onesided else length
    # the exponent is reduced modulo the length first, so that large products lose no digits
    steps = np.outer(np.arange(length), np.arange(count)) % length
    turn = np.exp((2j if inverse else -2j) * np.pi * steps / length) / (length if inverse else 1)
    weights = np.empty((length, parts, count, 2))
    weights[:, 0, :, 0], weights[:, 0, :, 1] = turn.real, turn.imag
    if parts == 2:
        weights[:, 1, :, 0], weights[:, 1, :, 1] = -turn.imag, turn.real
    return weights.reshape(length * parts, 2 * count)


def _transposed(graph: gs.Graph, tensor: gs.Tensor, order: list[int], name: str) -> gs.Tensor:
    if order == sorted(order):
        return tensor
    made = gs.Variable(name)
    graph.nodes.append(gs.Node("Transpose", attrs={"perm": order}, inputs=[tensor], outputs=[made]))
    return made


def _node(graph: gs.Graph, op: str, inputs: list[gs.Tensor], name: str) -> gs.Tensor:
    made = gs.Variable(name)
    graph.nodes.append(gs.Node(op, inputs=inputs, outputs=[made]))
    return made


def _shape(name: str, sizes: list[int]) -> gs.Constant:
    return gs.Constant(name, np.array(sizes, dtype=np.int64))
