"""What a traced program tells before it is translated: randomness, state, constants, which weights it needs."""

from __future__ import annotations

import math
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
# fmt: off
# Ops whose float argument is a number of the result, not a setting of the algorithm.
_COMPUTES_WITH_IT = frozenset({"add", "sub", "rsub", "mul", "div", "pow", "clamp", "clamp_min", "clamp_max"})
# Layers whose epsilon is an attribute of the node or a number beside it; a batch norm's goes into the weights.
_NORMS = frozenset({"layer_norm", "native_layer_norm", "group_norm", "native_group_norm", "instance_norm", "rms_norm"})
# Conversions compute nothing, and _assert_tensor_metadata is a check of the tracer.
_MOVES = frozenset({"to", "_to_copy", "type_as", "_assert_tensor_metadata"})
# fmt: on
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
class Constant:
    """A float that the program computes with, as the type of that computation rounds it."""

    value: float
    found: Found


@dataclass(frozen=True)
class Study:
    """``random`` makes a port unprovable; ``fragile`` constants are ones that an optimiser may delete.

    ``used`` are the parameters and buffers that the outputs need, by name in the model; ``written`` the buffers
    that the program changes (each one's name is the detail); ``doubles`` are computations in float64.
    """

    random: tuple[Found, ...]
    batch_statistics: tuple[Found, ...]
    fragile: tuple[Found, ...]
    constants: tuple[Constant, ...]
    used: frozenset[str]
    written: tuple[Found, ...]
    doubles: tuple[Found, ...]


def study(program: Any) -> Study:
    """Look through every call of a ``torch.export.ExportedProgram``, subgraphs included."""
    calls = [(node, *_named(node)) for node in _calls(program.graph_module)]
    moving = _moving(program)
    return Study(
        random=tuple(Found(op, module) for node, op, module in calls if _is_random(node, op)),
        batch_statistics=tuple(Found(op, module) for node, op, module in calls if _trains(node, op)),
        fragile=tuple(
            Found(op, module, f"{number:g}")
            for node, op, module in calls
            if op not in _EPSILON_IS_AN_ATTRIBUTE
            for number in _fragile(node)
        ),
        constants=tuple(
            Constant(number, Found(op, module, f"{number:.9g}"))
            for node, op, module in calls
            if (op in _COMPUTES_WITH_IT or op in _NORMS) and node in moving
            for number in (_epsilon(node) if op in _NORMS else _floats(node))
        ),
        used=_used(program),
        written=tuple(_written(program, calls)),
        doubles=tuple(
            Found(op, module)
            for node, op, module in calls
            if op not in _MOVES and _type(node) == "torch.float64" and node.users
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


def _floats(node: Any) -> Iterator[float]:
    """Numbers as float32 keeps them; what a float64 computation holds is not rounded."""
    import numpy as np

    wide = _type(node) == "torch.float64"
    for value in (*node.args, *node.kwargs.values()):
        if isinstance(value, float) and math.isfinite(value):
            yield value if wide else float(np.float32(value))


def _epsilon(node: Any) -> Iterator[float]:
    numbers = list(_floats(node))
    yield from numbers[-1:]


def _moving(program: Any) -> set[Any]:
    """Nodes that depend on an input; what does not is folded, and its numbers with it."""
    names, found = _names(program), set()
    for graph_module in program.graph_module.modules():
        for node in getattr(getattr(graph_module, "graph", None), "nodes", ()):
            inside = graph_module is not program.graph_module
            own = node.op == "placeholder" and (inside or node.name not in names)
            if own or any(source in found for source in node.all_input_nodes):
                found.add(node)
    return found


def types(program: Any) -> dict[str, str]:
    """Type of every tensor of a program by name, for a program after its decompositions: those of the file."""
    return {
        node.name: _type(node) for node in program.graph.nodes if node.op == "call_function" and _type(node)
    }


def _type(node: Any) -> str:
    return str(getattr(node.meta.get("val"), "dtype", ""))


def _names(program: Any) -> dict[str, str]:
    """Parameters and buffers by placeholder; the names are those inside the wrapped model."""
    signature = program.graph_signature
    both = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    return {node: name.removeprefix("model.") for node, name in both.items()}


def _used(program: Any) -> frozenset[str]:
    """What the outputs need, followed backwards; an operation that writes in place is needed as well."""
    names = _names(program)
    waiting = [node for node in program.graph.nodes if node.op == "output" or _writes(node)]
    seen = set(waiting)
    while waiting:
        for source in waiting.pop().all_input_nodes:
            if source not in seen:
                seen.add(source)
                waiting.append(source)
    return frozenset(names[node.name] for node in seen if node.op == "placeholder" and node.name in names)


def _writes(node: Any) -> bool:
    return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))


def _written(program: Any, calls: list[tuple[Any, str, str]]) -> Iterator[Found]:
    names = _names(program)
    for node, op, module in calls:
        if not _writes(node):
            continue
        for index, argument in enumerate(node.target._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write or index >= len(node.args):
                continue
            root = node.args[index]
            while getattr(root, "op", "") == "call_function" and root.args:
                root = root.args[0]  # a view of the buffer
            if getattr(root, "name", "") in names:
                yield Found(op, module, names[root.name])
