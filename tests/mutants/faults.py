"""Single faults of an exporter, an optimiser or a hand; each kind lists the places of a graph where it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

OFF = 1e-6  # relative change of a constant


@dataclass(frozen=True)
class Fault:
    """``plant`` changes the graph that it was listed for; ``near`` are the names of the nodes it touches."""

    kind: str
    place: str
    plant: Callable[[], None]
    near: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Subject:
    """A graph, what its int64 tensors hold at the export shape, and a generator for the choices inside a fault."""

    model: ir.Model
    sizes: Mapping[str, Any]
    rng: np.random.Generator

    @property
    def nodes(self) -> Sequence[ir.Node]:
        return tuple(self.model.graph)


def array(value: ir.Value | None) -> Any:
    """What a constant holds; None for anything else."""
    if value is None:
        return None
    if value.const_value is not None:
        return value.const_value.numpy()
    node = value.producer()
    if node is not None and node.op_type == "Constant" and "value" in node.attributes:
        return node.attributes["value"].as_tensor().numpy()
    return None


def constants(subject: Subject, least: int = 0) -> Iterator[tuple[ir.Value, Any, tuple[str, ...]]]:
    """FP32 constants of at least so many axes that a node of the main graph uses."""
    values = list(subject.model.graph.initializers.values())
    values += [node.outputs[0] for node in subject.nodes if node.op_type == "Constant"]
    for value in values:
        held = array(value)
        users = tuple(use.node.name or "" for use in value.uses())
        if held is not None and held.dtype == np.float32 and held.ndim >= least and users:
            yield value, held, users


def _set(subject: Subject, value: ir.Value, held: Any) -> None:
    """Let a constant hold something else; every user sees it."""
    tensor = ir.tensor(np.ascontiguousarray(held), name=value.name)
    node = value.producer()
    if node is None:
        value.const_value = tensor
    else:
        node.attributes["value"] = ir.AttrTensor("value", tensor)


def _feed(subject: Subject, node: ir.Node, place: int, held: Any) -> None:
    """Give one operand of one node a constant of its own."""
    value = ir.Value(name=f"planted_{node.name}_{place}", const_value=ir.tensor(np.asarray(held)))
    subject.model.graph.register_initializer(value)
    node.replace_input_with(place, value)


def _pass(node: ir.Node, operand: int) -> None:
    """Turn a node into the identity of one of its operands."""
    kept = node.inputs[operand]
    node.op_type = "Identity"
    node.attributes.clear()
    node.resize_inputs(1)
    node.replace_input_with(0, kept)


def swapped(subject: Subject) -> Iterator[Fault]:
    pairs = {"Sub": (0, 1), "Div": (0, 1), "Pow": (0, 1), "MatMul": (0, 1), "Where": (1, 2), "Concat": (0, 1),
             "Less": (0, 1), "Greater": (0, 1), "LessOrEqual": (0, 1), "GreaterOrEqual": (0, 1)}  # fmt: skip
    for node in subject.nodes:
        one, two = pairs.get(node.op_type, (0, 0))
        if not two or len(node.inputs) <= two or node.inputs[one] is node.inputs[two]:
            continue

        def plant(node: ir.Node = node, one: int = one, two: int = two) -> None:
            first, second = node.inputs[one], node.inputs[two]
            node.replace_input_with(one, second)
            node.replace_input_with(two, first)

        yield Fault("swap operands", f"{node.op_type} {node.name}", plant, (node.name or "",))


def _small(value: ir.Value | None) -> bool:
    """Is it an epsilon? Adding one is a kind of its own."""
    held = array(value)
    return (
        held is not None
        and held.size == 1
        and held.dtype == np.float32
        and 0 < float(held.ravel()[0]) <= 1e-2
    )


def dropped(subject: Subject) -> Iterator[Fault]:
    for node in subject.nodes:
        name = (node.name or "",)
        if node.op_type == "Add" and not any(_small(value) for value in node.inputs):
            kept = 1 if array(node.inputs[0]) is not None else 0
            yield Fault("drop an add", f"Add {node.name}", lambda n=node, k=kept: _pass(n, k), name)
        elif node.op_type in ("Gemm", "Conv", "ConvTranspose") and len(node.inputs) > 2 and node.inputs[2]:
            yield Fault(
                "drop an add", f"bias of {node.op_type} {node.name}", lambda n=node: n.resize_inputs(2), name
            )


def axes(subject: Subject) -> Iterator[Fault]:
    for node in subject.nodes:
        name, place = (node.name or "",), f"{node.op_type} {node.name}"
        if node.op_type in ("Softmax", "LogSoftmax", "Concat", "Gather", "Split", "ArgMax", "LayerNormalization",
                            "Flatten", "GatherElements"):  # fmt: skip
            default = {"Softmax": -1, "LogSoftmax": -1, "LayerNormalization": -1, "Flatten": 1}.get(
                node.op_type, 0
            )
            axis = node.attributes["axis"].as_int() if "axis" in node.attributes else default

            def plant(node: ir.Node = node, axis: int = axis) -> None:
                node.attributes["axis"] = ir.AttrInt64("axis", axis - 1 if axis else 1)

            yield Fault("change an axis", place, plant, name)
        elif node.op_type == "Transpose" and "perm" in node.attributes:
            perm = list(node.attributes["perm"].as_ints())
            if len(perm) > 1:
                perm[-1], perm[-2] = perm[-2], perm[-1]

                def turn(node: ir.Node = node, perm: list[int] = perm) -> None:
                    node.attributes["perm"] = ir.AttrInt64s("perm", perm)

                yield Fault("change an axis", place, turn, name)
        elif node.op_type.startswith("Reduce"):
            held = array(node.inputs[1]) if len(node.inputs) > 1 else None
            if held is not None and held.size:
                moved = np.where(held == 0, 1, held - 1)

                def move(node: ir.Node = node, moved: Any = moved) -> None:
                    _feed(subject, node, 1, moved)

                yield Fault("change an axis", place, move, name)
            elif "axes" in node.attributes:
                other = [axis - 1 if axis else 1 for axis in node.attributes["axes"].as_ints()]

                def set_axes(node: ir.Node = node, other: list[int] = other) -> None:
                    node.attributes["axes"] = ir.AttrInt64s("axes", other)

                yield Fault("change an axis", place, set_axes, name)


def nudged(subject: Subject) -> Iterator[Fault]:
    for value, held, users in constants(subject):
        with np.errstate(over="ignore"):
            other = (held * np.float32(1 + OFF)).astype(np.float32)
        if np.isfinite(other).all() and not np.array_equal(other, held):
            what = f"{value.name} {list(held.shape)}" + (f" = {float(held):.6g}" if held.size == 1 else "")
            yield Fault("constant by 1e-6", what, lambda v=value, h=other: _set(subject, v, h), users)


def epsilons(subject: Subject) -> Iterator[Fault]:
    for node in subject.nodes:
        name, place = (node.name or "",), f"{node.op_type} {node.name}"
        if node.op_type in ("LayerNormalization", "BatchNormalization", "InstanceNormalization",
                            "GroupNormalization", "RMSNormalization"):  # fmt: skip

            def plant(node: ir.Node = node) -> None:
                node.attributes["epsilon"] = ir.AttrFloat32("epsilon", 0.0)

            yield Fault("epsilon removed", place, plant, name)
        elif node.op_type in ("Add", "Max", "Clip"):
            for operand, value in enumerate(node.inputs):
                if not _small(value):
                    continue
                held = array(value)

                def zero(node: ir.Node = node, operand: int = operand, held: Any = held) -> None:
                    _feed(subject, node, operand, np.zeros_like(held))

                yield Fault("epsilon removed", place, zero, name)


def shifted(subject: Subject) -> Iterator[Fault]:
    for node in subject.nodes:
        places = {"Slice": (1, 2), "Gather": (1,), "Range": (1,)}.get(node.op_type, ())
        for operand in places:
            held = array(node.inputs[operand])
            if held is None or held.dtype != np.int64 or held.size != 1 or abs(int(held.ravel()[0])) > 2**30:
                continue
            data = node.inputs[0]
            of_shape = data is not None and data.name in subject.sizes and node.op_type == "Gather"
            # Towards the middle: an end beyond the last element would be cut to it again.
            ends = node.op_type == "Slice" and operand == 2
            step = -1 if ends or int(held.ravel()[0]) < 0 or (of_shape and int(held.ravel()[0]) > 0) else 1

            def plant(node: ir.Node = node, operand: int = operand, held: Any = held + step) -> None:
                _feed(subject, node, operand, held)

            yield Fault(
                "off by one", f"operand {operand} of {node.op_type} {node.name}", plant, (node.name or "",)
            )


def rounded(subject: Subject) -> Iterator[Fault]:
    for node in subject.nodes:
        name, place = (node.name or "",), f"{node.op_type} {node.name}"
        if node.op_type in ("Round", "Floor", "Ceil"):
            for other in ("Round", "Floor", "Ceil"):
                if other != node.op_type:
                    yield Fault(
                        "wrong rounding", f"{place} -> {other}",
                        lambda n=node, o=other: setattr(n, "op_type", o), name,
                    )  # fmt: skip
        elif node.op_type == "Resize":
            for mode in ("ceil", "round_prefer_ceil"):

                def resize(node: ir.Node = node, mode: str = mode) -> None:
                    node.attributes["nearest_mode"] = ir.AttrString("nearest_mode", mode)

                yield Fault("wrong rounding", f"{place} -> {mode}", resize, name)
        elif node.op_type in ("MaxPool", "AveragePool"):
            now = node.attributes["ceil_mode"].as_int() if "ceil_mode" in node.attributes else 0

            def pool(node: ir.Node = node, now: int = now) -> None:
                node.attributes["ceil_mode"] = ir.AttrInt64("ceil_mode", 1 - now)

            yield Fault("wrong rounding", f"{place} ceil_mode {1 - now}", pool, name)
        elif node.op_type == "Cast" and node.attributes["to"].as_int() in (6, 7):
            source = node.inputs[0]
            if source is None or source.dtype != ir.DataType.FLOAT:
                continue
            for other in ("Round", "Ceil"):

                def cast(node: ir.Node = node, other: str = other) -> None:
                    before = ir.Node("", other, [node.inputs[0]], name=f"planted_{node.name}")
                    before.outputs[0].name = f"planted_{node.name}_out"
                    subject.model.graph.insert_before(node, before)
                    node.replace_input_with(0, before.outputs[0])

                yield Fault("wrong rounding", f"{place} after {other}", cast, name)


def transposed(subject: Subject) -> Iterator[Fault]:
    for value, held, users in constants(subject, 2):
        other = (
            np.swapaxes(held, -1, -2)
            if held.shape[-1] > 1 and held.shape[-2] > 1
            else np.swapaxes(held, 0, 1)
        )
        other = other.reshape(held.shape)
        if not np.array_equal(other, held):
            yield Fault(
                "transposed weight", f"{value.name} {list(held.shape)}",
                lambda v=value, h=other: _set(subject, v, h), users,
            )  # fmt: skip


def zeroed(subject: Subject) -> Iterator[Fault]:
    for value, held, users in constants(subject, 2):
        row = (
            int(subject.rng.integers(held.shape[-2]))
            if held.ndim == 2
            else int(subject.rng.integers(held.shape[0]))
        )
        other = held.copy()
        other[row] = 0
        if not np.array_equal(other, held):
            yield Fault(
                "weight row zeroed", f"row {row} of {value.name} {list(held.shape)}",
                lambda v=value, h=other: _set(subject, v, h), users,
            )  # fmt: skip


def frozen(subject: Subject) -> Iterator[Fault]:
    """A size that follows the input becomes the one of the export shape."""
    for node in subject.nodes:
        if node.op_type not in (
            "Shape",
            "Gather",
            "Concat",
            "Squeeze",
            "Unsqueeze",
            "Slice",
            "Range",
            "Size",
        ):
            continue
        value = node.outputs[0]
        held = subject.sizes.get(value.name or "")
        if held is None or array(value) is not None or not list(value.uses()) or value.is_graph_output():
            continue

        def plant(node: ir.Node = node, held: Any = held) -> None:
            fixed = ir.Value(name=f"planted_{node.name}", const_value=ir.tensor(np.asarray(held)))
            subject.model.graph.register_initializer(fixed)
            for use in list(node.outputs[0].uses()):
                use.node.replace_input_with(use.idx, fixed)

        near = tuple(use.node.name or "" for use in value.uses())
        yield Fault("frozen dim", f"{node.op_type} {node.name} = {np.asarray(held).tolist()}", plant, near)


KINDS: Mapping[str, Callable[[Subject], Iterator[Fault]]] = {
    "swap operands": swapped, "drop an add": dropped, "change an axis": axes, "constant by 1e-6": nudged,
    "epsilon removed": epsilons, "off by one": shifted, "wrong rounding": rounded,
    "transposed weight": transposed, "frozen dim": frozen, "weight row zeroed": zeroed,
}  # fmt: skip
