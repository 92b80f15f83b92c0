"""Every weight of the model accounted for in the file, and faults that are planted there."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from onnx import numpy_helper
from torch import nn

from engine import model_state, traced
from engine.graph.bits import same_bits
from engine.graph.weights_account import Account, account


class Net(nn.Module):
    """One of everything that an exporter moves, packs or folds."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv = nn.Conv1d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm1d(8, eps=1e-4)
        self.lstm = nn.LSTM(8, 5, 2, batch_first=True, bidirectional=True)
        self.lin = nn.Linear(10, 4)
        self.gru = nn.GRU(4, 4, batch_first=True)
        self.rnn = nn.RNN(4, 4, batch_first=True)
        self.norm = nn.LayerNorm(4)
        self.table = nn.Embedding(10, 4)
        self.twice = nn.Parameter(torch.randn(4, 4))
        self.apart = nn.Linear(3, 3)
        self.bn.running_var.uniform_(0.5, 2)
        self.bn.running_mean.normal_()
        self.bn.weight.data.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.bn(self.conv(x))).transpose(1, 2)
        hidden = self.lin(self.lstm(hidden)[0]) @ (self.twice.t() * 2.0)
        hidden = self.rnn(self.gru(hidden)[0])[0] + self.table.weight[2:4].sum(0)
        return self.norm(hidden)


Made = tuple[Net, bytes, bytes | None, frozenset[str] | None]


@cache
def made(exporter: str) -> Made:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters' own
        return exported(exporter)


def exported(exporter: str) -> Made:
    net, example = Net().eval(), (torch.randn(2, 3, 5),)
    if exporter == "torchscript":
        written = io.BytesIO()
        torch.onnx.export(net, example, written, dynamo=False, opset_version=17)
        return net, written.getvalue(), None, None
    program = torch.export.export(net, example, strict=False)
    translated = torch.onnx.export(program, dynamo=True, opset_version=18, optimize=False, verbose=False)
    assert translated is not None
    before = ir.to_proto(translated.model).SerializeToString()
    translated.optimize()
    return net, ir.to_proto(translated.model).SerializeToString(), before, traced.study(program).used


def taken(exporter: str, change: Callable[[onnx.ModelProto], None] | None = None) -> Account:
    net, written, before, used = made(exporter)
    model = onnx.load_from_string(written)
    if change is not None:
        change(model)
    origin = ir.from_proto(onnx.load_from_string(before)) if before else None
    tensors, epsilons = model_state.tensors(net), model_state.epsilons(net)
    return account(tensors, ir.from_proto(model), used, origin, epsilons)


def fates(of: Account) -> dict[str, str]:
    return {weight.name: weight.fate for weight in of.weights}


def test_dynamo_loses_nothing_and_every_fate_is_named() -> None:
    found = taken("dynamo")
    assert not found.changed
    named = fates(found)
    assert set(named) == set(model_state.tensors(made("dynamo")[0]))
    assert "missing" not in named.values()
    assert named["norm.weight"] == "as it is"
    assert named["lin.weight"] == "permuted"
    assert (
        named["twice"] == named["table.weight"] == named["conv.weight"] == named["bn.running_var"] == "folded"
    )
    # The dynamo exporter unrolls a plain RNN.
    assert {fate for name, fate in named.items() if name.startswith(("lstm", "gru"))} == {"repacked"}
    assert {name for name, fate in named.items() if fate == "unused"} == {
        "apart.weight", "apart.bias", "bn.num_batches_tracked"}  # fmt: skip


def test_torchscript_names_what_it_cannot_explain() -> None:
    found = taken("torchscript")
    assert not found.changed
    named = fates(found)
    assert named["lin.weight"] == "permuted"
    assert named["conv.weight"] == named["bn.weight"] == "folded"
    assert {fate for name, fate in named.items() if name.startswith(("lstm", "gru", "rnn"))} == {"repacked"}
    # Computed into other constants, and what no output needs: without a program nobody can tell them apart.
    missing = {name for name, fate in named.items() if fate == "missing"}
    assert missing == {"twice", "apart.weight", "apart.bias"}
    assert named["table.weight"] == "part"


def edit(shape: tuple[int, ...], change: Callable[[Any], None]) -> Callable[[onnx.ModelProto], None]:
    """Change the first constant of ``shape``."""

    def planted(model: onnx.ModelProto) -> None:
        item = next(item for item in model.graph.initializer if tuple(item.dims) == shape)
        array = numpy_helper.to_array(item).copy()
        change(array)
        item.CopyFrom(numpy_helper.from_array(array, item.name))

    return planted


def nudge(array: Any) -> None:
    array.reshape(-1)[1] *= np.float32(1 + 1e-6)


def zero_row(array: Any) -> None:
    array[1] = 0


def zero_first_direction(array: Any) -> None:
    array[0] = 0


FAULTS = {
    "a transposed weight, off by 1e-6": ((10, 4), nudge, "lin.weight[1, 0]"),
    "a transposed weight, a row zeroed": ((10, 4), zero_row, "lin.weight[0, 1]"),
    "an LSTM's packed weight": ((2, 20, 8), nudge, "lstm.weight_ih_l0[0, 1]"),
    "an LSTM's first direction dropped": ((2, 20, 10), zero_first_direction, "lstm.weight_ih_l1[0, 0]"),
    "a GRU's packed bias": ((1, 24), nudge, "gru.bias_ih_l0[5]"),
    "a layer norm": ((4,), nudge, "[1]"),
}


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str, exporter: str) -> None:
    shape, change, place = FAULTS[fault]
    found = taken(exporter, edit(shape, change))
    assert found.changed, fates(found)
    text = str(found.changed[0])
    assert place in text
    assert "in the model and" in text
    assert found.changed[0].model != found.changed[0].file


def test_a_folded_constant_is_computed_again() -> None:
    """twice.t() * 2 is in no parameter; only the graph before folding tells what it must be."""
    found = taken("dynamo", edit((4, 4), nudge))
    assert [item.parameter for item in found.changed] == ["twice"]
    assert "[0, 1], computed from 'twice', is" in str(found.changed[0])


def test_a_batch_norm_that_was_folded_wrongly_is_found() -> None:
    found = taken("dynamo", edit((8, 3, 3), zero_row))
    assert "conv.weight[1, 0, 0], computed from 'conv.weight', is" in str(found.changed[0])


def test_the_message_names_element_and_both_values() -> None:
    weight = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    other = weight.copy()
    other[1, 0] = 3.000001
    graph = ir.Graph([], [], nodes=[], initializers=[ir.Value(name="w", const_value=ir.tensor(other))])
    (found,) = account({"w": weight}, ir.Model(graph, ir_version=10)).changed
    assert str(found) == "w[1, 0] is 3 in the model and 3.00000095 in the file ('w')"
    assert found.count == 1


def constant(**arrays: Any) -> ir.Model:
    values = [ir.Value(name=name, const_value=ir.tensor(array)) for name, array in arrays.items()]
    return ir.Model(ir.Graph([], [], nodes=[], initializers=values), ir_version=10)


def test_slices_concatenations_and_casts() -> None:
    rng = np.random.default_rng(0)
    query, key = (rng.normal(size=(4, 6)).astype(np.float32) for _ in range(2))
    wide = rng.normal(size=(3, 5))
    model = constant(qk=np.concatenate([query, key]), narrow=wide.astype(np.float32), some=query[1:3])
    found = fates(account({"query": query, "key": key, "wide": wide}, model))
    assert found == {"query": "part", "key": "part", "wide": "cast"}


def test_a_bias_of_zeros_may_be_dropped_and_another_not() -> None:
    tensors = {"zeros": np.zeros(3, np.float32), "small": np.full(3, 1e-9, np.float32)}
    assert fates(account(tensors, constant())) == {"zeros": "folded", "small": "missing"}


def test_same_bits_tells_zeros_and_nans_apart() -> None:
    assert same_bits(np.array([np.nan]), np.array([np.nan]))
    assert not same_bits(np.array([0.0]), np.array([-0.0]))
    assert not same_bits(np.zeros(2, np.float32), np.zeros(2, np.int32))
    assert same_bits(np.arange(6).reshape(2, 3).T, np.array([[0, 3], [1, 4], [2, 5]]))
