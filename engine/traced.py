"""What a traced program tells before it is translated: randomness, batch statistics, constants that may be lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# fmt: off
_RANDOM = frozenset({
    "bernoulli", "exponential", "geometric", "log_normal", "multinomial", "normal", "normal_functional",
    "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "random", "randperm",
    "rrelu_with_noise", "uniform",
})
_DROPOUT = frozenset({
    "alpha_dropout", "dropout", "feature_alpha_dropout", "feature_dropout", "native_dropout",
})
# fmt: on
_EPSILON_IS_AN_ATTRIBUTE = frozenset(["batch_norm", "layer_norm", "native_layer_norm"])
# The dynamo exporter's optimiser takes addends up to 1e-8 for 0 and factors within about 1e-5 of 1 for 1.
_NEAR_ZERO, _NEAR_ONE = 1e-7, 1e-4


@dataclass(frozen=True)
class Found:
    """One operation of the program: its ATen name and the module it is in."""

    op: str
    module: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.op}{' ' + self.detail if self.detail else ''} in {self.module or 'the root module'}"


@dataclass(frozen=True)
class Study:
    """``random`` makes a port unprovable; ``fragile`` constants are ones that an optimiser may delete."""

    random: tuple[Found, ...]
    batch_statistics: tuple[Found, ...]
    fragile: tuple[Found, ...]


def study(program: Any) -> Study:
    """Look through every call of a ``torch.export.ExportedProgram``, subgraphs included."""
    calls = [(node, *_named(node)) for node in _calls(program.graph_module)]
    return Study(
        random=tuple(Found(op, module) for node, op, module in calls if _is_random(node, op)),
        batch_statistics=tuple(Found(op, module) for node, op, module in calls if _trains(node, op)),
        fragile=tuple(
            Found(op, module, f"{number:g}")
            for node, op, module in calls
            if op not in _EPSILON_IS_AN_ATTRIBUTE
            for number in _fragile(node)
        ),
    )


def _calls(module: Any) -> Iterator[Any]:
    for graph_module in module.modules():
        graph = getattr(graph_module, "graph", None)
        if graph is not None:
            yield from (node for node in graph.nodes if node.op == "call_function")


def _named(node: Any) -> tuple[str, str]:
    parts = str(node.target).split(".")
    name = parts[1] if len(parts) > 1 else parts[0]
    stack = node.meta.get("nn_module_stack") or {}
    path = list(stack.values())[-1][0] if stack else ""
    return name.rstrip("_"), "" if path == "model" else str(path).removeprefix("model.")


def _is_random(node: Any, op: str) -> bool:
    if op in _RANDOM:
        return True
    if op in _DROPOUT:
        return len(node.args) < 3 or node.args[2] is not False
    if op == "scaled_dot_product_attention":
        dropout = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
        return bool(dropout)
    return False


def _trains(node: Any, op: str) -> bool:
    return op == "batch_norm" and len(node.args) > 5 and node.args[5] is True


def _fragile(node: Any) -> Iterator[float]:
    for value in (*node.args, *node.kwargs.values()):
        if isinstance(value, float) and (0 < abs(value) <= _NEAR_ZERO or 0 < abs(value - 1) <= _NEAR_ONE):
            yield value
