"""Constants that were computed from weights, computed again: batch norms in convolutions, and constant subgraphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from engine.errors import StepError
from engine.graph.bits import Array, orders, same_bits

Difference = tuple[str, str, Array, Array]  # parameter, constant, what it should hold, what it holds
_ROUNDING = (
    1e-6  # of a sum's largest term: how far two orders of the same few float32 operations may be apart
)
_MOST_NODES = 200
_MOSTLY = 0.5  # share of elements from which on the rest is a fault and not a coincidence


@dataclass(frozen=True)
class Explained:
    """Parameters with one explanation, the constants that it explains, and what of it does not hold."""

    parameters: tuple[str, ...]
    fate: Literal["repacked", "folded"]
    into: str
    constants: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    computed: bool = False  # the differences are in the constants' own elements


def batch_norms(
    wanted: Mapping[str, Array],
    tensors: Mapping[str, Array],
    free: Mapping[str, Array],
    epsilons: Mapping[str, float],
) -> Iterator[Explained]:
    """Convolutions and linear layers whose weights in the file are the model's, scaled by a batch norm."""
    norms = [name.removesuffix(".running_var") for name in tensors if name.endswith(".running_var")]
    for name, weight in wanted.items():
        if not name.endswith("weight") or weight.ndim < 2 or weight.dtype.kind != "f":
            continue
        for norm in norms:
            made = _fused(name, weight, norm, tensors, free, epsilons.get(norm, 1e-5))
            if made is not None:
                yield made
                break


def _fused(
    name: str,
    weight: Array,
    norm: str,
    tensors: Mapping[str, Array],
    free: Mapping[str, Array],
    epsilon: float,
) -> Explained | None:
    mean, variance = tensors[f"{norm}.running_mean"], tensors[f"{norm}.running_var"]
    gamma = tensors.get(f"{norm}.weight", np.ones_like(mean))
    beta = tensors.get(f"{norm}.bias", np.zeros_like(mean))
    scale = (gamma / np.sqrt(variance + np.float32(epsilon))).astype(weight.dtype)
    for axis in (0, 1):
        if weight.shape[axis] != scale.size:
            continue
        spread = scale.reshape([-1 if at == axis else 1 for at in range(weight.ndim)])
        for other, constant in free.items():
            if constant.shape != weight.shape or constant.dtype != weight.dtype or not weight.size:
                continue
            first = (0,) * weight.ndim
            if not np.isclose(constant[first], weight[first] * scale[0], rtol=1e-5, atol=1e-30):
                continue
            expected = weight * spread
            close = np.abs(constant - expected) <= _ROUNDING * np.abs(expected)
            if not close.all():
                if close.mean() < _MOSTLY:
                    continue
                apart = ((name, other, expected, np.where(close, expected, constant)),)
                return Explained((), "folded", other, (other,), apart, computed=True)
            prefix = name.removesuffix("weight")
            bias = tensors.get(f"{prefix}bias", np.zeros_like(mean))
            shifted = (bias - mean) * scale + beta
            size = np.abs(bias * scale) + np.abs(mean * scale) + np.abs(beta)
            found = next(
                (at for at, value in free.items()
                 if value.shape == shifted.shape and value.dtype == shifted.dtype and _alike(value, shifted, size)),
                None,
            )  # fmt: skip
            parts = [f"{norm}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
            members = [part for part in (name, f"{prefix}bias", *parts) if part in tensors]
            if found is None:
                return Explained((name,), "folded", f"{other}, scaled by {norm}", (other,))
            into = f"{other} and {found}: {norm} in {prefix.rstrip('.') or 'the root module'}"
            return Explained(tuple(members), "folded", into, (other, found))
    return None


def _alike(got: Array, expected: Array, size: Array) -> bool:
    return bool((np.abs(got - expected) <= _ROUNDING * size).all())


def recomputed(
    wanted: Mapping[str, Array], before: ir.Model, constants: Mapping[str, Array]
) -> Iterator[Explained]:
    """Constants of the file that the graph before folding computes from these weights alone."""
    for name in wanted:
        start = before.graph.initializers.get(name)
        if start is None:
            continue
        for value in _downstream(start):
            got = constants.get(value.name or "")
            if got is None:
                continue
            result = _evaluate(value)
            if result is None:
                continue
            if result.dtype == got.dtype and result.size == got.size and result.tobytes() == got.tobytes():
                yield Explained((name,), "folded", str(value.name), (str(value.name),))
            elif result.shape == got.shape:
                yield _different(name, wanted[name], str(value.name), result, got)
            break


def _different(name: str, tensor: Array, constant: str, result: Array, got: Array) -> Explained:
    for order in orders(tensor, result):
        if same_bits(tensor.transpose(order), result):  # only turned: its own elements can be named
            back = ((name, constant, tensor, got.transpose(np.argsort(order))),)
            return Explained((), "folded", constant, (constant,), back)
    apart = ((name, constant, result, got),)
    return Explained((), "folded", constant, (constant,), apart, computed=True)


def _downstream(start: ir.Value) -> Iterator[ir.Value]:
    waiting, seen = [start], {start}
    while waiting and len(seen) <= _MOST_NODES:
        for node in waiting.pop(0).consumers():
            for output in node.outputs:
                if output not in seen:
                    seen.add(output)
                    waiting.append(output)
                    yield output


def _evaluate(value: ir.Value) -> Array | None:
    """The value by ONNX's reference implementation, None when it depends on an input or cannot be computed."""
    import onnx

    from engine.graph import reference

    nodes: dict[ir.Node, None] = {}
    feeds: dict[str, Array] = {}
    waiting = [value]
    while waiting:
        item = waiting.pop()
        producer = item.producer()
        if item.const_value is not None and item.name:
            feeds[item.name] = item.const_value.numpy()
        elif producer is None or len(nodes) > _MOST_NODES:
            return None
        elif producer not in nodes:
            nodes[producer] = None
            waiting.extend(source for source in producer.inputs if source is not None)
    graph = value.producer().graph if value.producer() is not None else None  # type: ignore[union-attr]
    if graph is None:
        return None
    order = [node for node in graph if node in nodes]
    protos = [ir.to_proto(node) for node in order]
    inputs = [onnx.helper.make_empty_tensor_value_info(name) for name in feeds]
    outputs = [onnx.helper.make_empty_tensor_value_info(str(value.name))]
    made = onnx.helper.make_model(
        onnx.helper.make_graph(protos, "folded", inputs, outputs),
        opset_imports=[
            onnx.helper.make_opsetid(domain, version) for domain, version in graph.opset_imports.items()
        ],
    )
    try:
        (result,) = reference.Reference(made).run(feeds).values()
    except StepError:
        return None  # no reference implementation for this: not explained
    found: Array = result
    return found


def contains(part: Array, whole: Array) -> bool:
    """Whether one of the two is a slice of the other along one axis, both C-ordered or the larger one turned."""
    if part.ndim != whole.ndim or part.ndim == 0 or part.shape == whole.shape or not part.size * whole.size:
        return False
    small, large = (part, whole) if part.size < whole.size else (whole, part)
    if small.size < 2:
        return False  # a single number is found anywhere
    turned = [large] + ([large.T] if large.ndim == 2 else [])
    return any(_slice_of(small, candidate) for candidate in turned)


def _slice_of(small: Array, large: Array) -> bool:
    apart = [axis for axis in range(small.ndim) if small.shape[axis] != large.shape[axis]]
    if len(apart) != 1 or small.shape[apart[0]] > large.shape[apart[0]]:
        return False
    axis, length = apart[0], small.shape[apart[0]]
    one, many = np.moveaxis(small, axis, 0), np.moveaxis(large, axis, 0)
    firsts = many.reshape(len(many), -1)[: len(many) - length + 1, 0]
    starts = np.flatnonzero(firsts == one.reshape(length, -1)[0, 0])
    return any(np.array_equal(many[at : at + length], one) for at in starts[:64])
