"""All rules of the library on a graph of 100,000 nodes: ``python benchmarks/matching.py``; seconds and memory last.

The graph is a deep transformer whose layers nearly match many of the rules and match a few of them: an attention whose
NaN guard must stay (its input may hold anything), a LayerNormalization with one output, casts, products and a
transposed key of which every hundredth layer has the form that a rule is for. Rules are applied without their proofs,
which have costs of their own. Memory is what the process holds at its peak over what it held before the graph, against
the same for the graph alone.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import sys
import time

import numpy as np
import onnx_ir as ir
import psutil

from engine.errors import StepError
from engine.rules.apply import apply_rule
from engine.rules.language import Rule, load_library

NODES = 100_000
WIDTH = 8
GOAL_SECONDS, GOAL_MEMORY = 10.0, 2.0
EVERY = 100  # layers between two that a rule fits


class Net:
    """A graph under construction; ``value`` is what the next node reads."""

    def __init__(self) -> None:
        shape = ir.Shape(["batch", 2, 4, WIDTH])
        self.value = ir.Value(name="x", shape=shape, type=ir.TensorType(ir.DataType.FLOAT))
        self.graph = ir.Graph([self.value], [], nodes=[], opset_imports={"": 20}, name="deep")
        self.count = 0

    def constant(self, name: str, array: np.ndarray) -> ir.Value:
        known = self.graph.initializers.get(name)
        if known is None:
            tensor = ir.tensor(array, name=name)
            known = ir.Value(
                name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor
            )
            self.graph.register_initializer(known)
        return known

    def node(
        self, op: str, *inputs: ir.Value, like: ir.Value | None = None, **attributes: int | str
    ) -> ir.Value:
        self.count += 1
        like = like if like is not None else inputs[0]
        kind = ir.DataType.BOOL if op == "IsNaN" else like.dtype
        shape = None if like.shape is None else like.shape.copy()
        made = ir.Value(name=f"v{self.count}", shape=shape, type=ir.TensorType(kind) if kind else None)
        given = ir.convenience.convert_attributes(attributes)
        self.graph.append(ir.Node("", op, inputs, given, outputs=[made], name=f"n{self.count}_{op}"))
        return made


def layer(net: Net, number: int) -> None:
    """About thirty nodes; the last value is the next layer's input."""
    x = net.value
    scale, zero = net.constant("scale", np.ones(WIDTH, np.float32)), net.constant("zero", np.float32(0))
    weight = net.constant("weight", np.eye(WIDTH, dtype=np.float32))
    normed = net.node("LayerNormalization", x, scale)
    query, key, value = (net.node("MatMul", normed, weight) for _ in range(3))
    turned = net.node("Transpose", key, perm=[0, 1, 3, 2])
    scores = net.node("MatMul", query, turned)
    odds = net.node("Softmax", scores, axis=-1)
    bad = net.node("IsNaN", odds)
    kept = net.node("Where", bad, zero, odds, like=odds)
    mixed = net.node("MatMul", kept, value)
    added = net.node("Add", mixed, x)
    half = net.node("Cast", added, to=1)
    curved = net.node("Celu", half, alpha=2.0) if number % EVERY == 0 else net.node("Elu", half)
    clipped = net.node("Clip", curved)
    squared = net.node("Mul", clipped, clipped)
    root = net.node("Sqrt", squared)
    divided = net.node("Div", curved, net.node("Add", root, net.constant("one", np.float32(1))))
    largest = net.node("Max", divided, zero)
    smallest = net.node("Min", divided, zero)
    both = net.node("Sub", largest, smallest)
    hidden = net.node("MatMul", both, weight)
    gelu = net.node("Gelu", hidden)
    again = net.node("MatMul", gelu, weight)
    last = net.node("LayerNormalization", net.node("Add", again, added), scale)
    net.value = net.node("Identity", last)


def build(nodes: int) -> ir.Model:
    net = Net()
    number = 0
    while net.count < nodes:
        layer(net, number)
        number += 1
    net.graph.outputs.append(net.value)
    return ir.Model(net.graph, ir_version=10)


def active(rules: dict[str, Rule], count: int) -> list[Rule]:
    """``count`` rules; a smaller library is gone through again."""
    chosen = list(rules.values())
    return [chosen[index % len(chosen)] for index in range(count)]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--rules", type=int, default=0, help="how many (all of the library, and at least 40)")
    given = parser.parse_args()
    library = load_library()
    chosen = active(library, given.rules or max(40, len(library)))
    process = psutil.Process()
    empty = process.memory_info().rss
    model = build(given.nodes)
    own = process.memory_info().rss - empty
    count = sum(1 for _ in model.graph)
    applied, started = 0, time.perf_counter()
    slowest = (0.0, "")
    for rule in chosen:
        begun = time.perf_counter()
        with contextlib.suppress(StepError):  # most match nothing here
            applied += len(apply_rule(model, rule, prover=None).accepted)
        slowest = max(slowest, (time.perf_counter() - begun, rule.name))
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - empty
    ratio = peak / own
    print(
        f"{count} nodes, {len(chosen)} rules, {applied} applications; slowest {slowest[1]}: {slowest[0]:.2f} s"
    )
    print(f"graph alone {own / 2**20:.0f} MiB, peak with matching {peak / 2**20:.0f} MiB")
    print(
        f"seconds = {seconds:.1f} (goal {GOAL_SECONDS:g}), memory = {ratio:.2f} x the graph's (goal {GOAL_MEMORY:g})"
    )
    return 0 if seconds <= GOAL_SECONDS and ratio <= GOAL_MEMORY else 1


if __name__ == "__main__":
    sys.exit(main())
