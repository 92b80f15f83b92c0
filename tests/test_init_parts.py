"""The parts of ``init``: what layers ask of inputs, names of outputs, limits."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import nn

from engine.errors import StepError
from engine.initial import asked, axes, draft, measure, onnx_shapes, onnx_subject, returned, signature, trials
from engine.initial.attempts import Bench, Trial
from engine.initial.watch import Unmet, Watch


def quiet(text: str) -> None:
    pass


def watched(model: nn.Module, **inputs: torch.Tensor) -> Watch:
    watch = Watch(model, inputs)
    with torch.no_grad(), watch:
        model(**inputs)
    return watch


class Transposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.transpose(1, 2))


def test_a_layer_says_what_it_takes() -> None:
    assert watched(Transposed(), x=torch.zeros(3, 5, 7)).met["x"][0].sizes == {-1: 5}
    with pytest.raises(Unmet, match=r"linear \(linear\) takes size 5 on axis 2, got 7"):
        watched(Transposed(), x=torch.zeros(3, 7, 11))


def test_a_model_cannot_swallow_an_unmet_need() -> None:
    class Swallows(Transposed):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return super().forward(x)
            except Exception:  # noqa: BLE001 - what a model may do
                return x

    with pytest.raises(Unmet):
        watched(Swallows(), x=torch.zeros(3, 7, 11))


def test_the_watch_leaves_no_hooks_behind() -> None:
    before = len(torch.nn.modules.module._global_forward_pre_hooks)
    watched(Transposed(), x=torch.zeros(3, 5, 7))
    assert len(torch.nn.modules.module._global_forward_pre_hooks) == before


def test_an_axis_is_mended_through_a_transpose() -> None:
    model = Transposed()
    found, _ = trials.find(Bench(model, quiet), signature.read(model, {}), {})
    assert found["x"].shape[1] == 5
    assert 1 in found["x"].fixed


class Adds(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Halves(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], -1, 2)


def test_tied_axes_are_one_group() -> None:
    found = {"x": Trial("float32", [3, 7]), "y": Trial("float32", [3, 7])}
    groups, static = axes.find(Bench(Adds(), quiet), found, {})
    assert [group.places for group in groups] == [[("x", 0), ("y", 0)], [("x", 1), ("y", 1)]]
    assert not static


def test_an_axis_of_multiples_is_static() -> None:
    groups, static = axes.find(Bench(Halves(), quiet), {"x": Trial("float32", [3, 8])}, {})
    assert [group.name for group in groups] == ["batch"]
    assert "cannot ask for multiples" in static["x", 1]


class Patches(nn.Module):
    """Drops what is left over at the edge, and has as many positions as 8 columns make patches."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] // 4 != 2:
            raise ValueError("positions")
        return x * 2


def test_a_size_is_said_to_fail_only_where_it_does() -> None:
    _, static = axes.find(Bench(Patches(), quiet), {"x": Trial("float32", [3, 8])}, {})
    assert static["x", 1] == "does not run at 16: ValueError: positions"


def test_time_before_batch_is_named_so() -> None:
    class Rnn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.rnn(x)[0]

    bench = Bench(Rnn(), quiet)
    found, attempt = trials.find(bench, signature.read(bench.model, {}), {})
    groups, _ = axes.find(bench, found, attempt.met)
    assert [group.name for group in groups] == ["seq", "batch"]


Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Data:
    logits: torch.Tensor
    state: object


@pytest.mark.parametrize(
    ("value", "names", "dropped"),
    [
        (torch.zeros(1), ("output",), {}),
        ((torch.zeros(1), [torch.zeros(1), None]), ("output_1", "output_2"), {}),
        (Pair(torch.zeros(1), torch.zeros(1)), ("left", "right"), {}),
        (Data(torch.zeros(1), object()), ("logits",), {"state": "is object, not a tensor"}),
        ({"x": torch.zeros(1), "y": torch.zeros(1)}, ("y",), {"x": "is an input's name too"}),
        ({"a b": torch.zeros(1), "y": torch.zeros(1)}, ("y",), {"a b": "is no name that an output can have"}),
    ],
)
def test_output_names(value: object, names: tuple[str, ...], dropped: dict[str, str]) -> None:
    found = returned.names(value, ["x"])
    assert (found.names, found.dropped) == (names, dropped)


@pytest.mark.parametrize("value", [None, 3, {}, [], {"x": torch.zeros(1)}, [torch.zeros(1), "word"]])
def test_outputs_that_cannot_be_named(value: object) -> None:
    with pytest.raises(StepError) as caught:
        returned.names(value, ["x"])
    assert caught.value.failure.usage


def file_inputs(**shapes: list[Any]) -> dict[str, ir.Value]:
    return {name: ir.Value(name=name, shape=ir.Shape(shape)) for name, shape in shapes.items()}


def begun(inputs: dict[str, ir.Value], *texts: str) -> dict[str, Trial]:
    wanted = asked.Asked("/m.onnx", "", inputs=asked.inputs(texts))
    return onnx_shapes.begin(inputs, dict.fromkeys(inputs, "float32"), Path("/m.onnx"), wanted)


def test_symbols_of_a_file_are_axes() -> None:
    found = begun(file_inputs(x=["N", 5, None], y=["N", "N*2", -1]))
    x, y = found["x"], found["y"]
    assert (x.shape, y.shape) == ([3, 5, 11], [3, 6, 11])
    assert (x.named, y.named) == ({0: "N"}, {0: "N"})
    assert x.tied[2] != y.tied[2]
    assert x.fixed == {1: "fixed in the file"}
    assert y.fixed == {1: "the file computes it as N*2, and an axis cannot follow others"}


def test_hints_on_symbols_of_a_file() -> None:
    found = begun(file_inputs(x=["N", None], y=["N", "a b"]), "x:float32:6,width")
    assert (found["x"].shape, found["y"].shape) == ([6, 7], [6, 7])
    assert (found["x"].fixed, found["y"].fixed) == ({0: "as given"}, {0: "as given"})
    assert (found["x"].named, found["y"].named) == ({1: "width"}, {1: "a_b"})


def test_symbols_that_would_be_one_word_stay_apart() -> None:
    found = begun(file_inputs(x=["a b", "a_b", "7"]))
    assert found["x"].named == {0: "a_b", 1: "a_b_", 2: "axis_7"}


def test_an_input_of_a_file_without_a_shape_needs_one() -> None:
    with pytest.raises(StepError, match="does not say how many axes its input 'x' has"):
        begun({"x": ir.Value(name="x")})
    assert begun({"x": ir.Value(name="x")}, "x:float32:4,n")["x"].shape == [4, 7]


def test_tables_are_found_through_nodes_that_hand_indices_on() -> None:
    x = ir.Value(name="x")
    cast = ir.node("Cast", [x], attributes={"to": 7})
    table = ir.Value(name="t", shape=ir.Shape([3, 9]))
    ir.node("Gather", [table, cast.outputs[0]], attributes={"axis": 1})
    ir.node("Gather", [table, ir.node("Neg", [x]).outputs[0]])
    assert onnx_subject._tables(x) == [9]


class Cells(nn.Module):
    """Takes no more than 21 and no fewer than 4."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not 4 <= x.shape[1] <= 21:
            raise ValueError("too many or too few")
        return x * 2


def test_a_range_ends_where_the_model_does() -> None:
    bench, found = Bench(Cells(), quiet), {"x": Trial("float32", [3, 7])}
    groups, _ = axes.find(bench, found, {})
    axes.choose(bench, found, groups, {})
    assert [(group.axis.min, group.axis.opt, group.axis.max) for group in groups] == [(1, 4, 16), (4, 21, 21)]
    assert groups[1].notes == [
        "It ends at 4, because the model does not run at 3: ValueError: too many or too few",
        "It ends at 21, because the model does not run at 22: ValueError: too many or too few",
    ]


class Masked(nn.Module):
    def forward(self, x: torch.Tensor, drop_mask: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.masked_fill(drop_mask, float("-inf")), -1)


def test_the_sense_of_a_mask_is_the_one_with_finite_outputs() -> None:
    bench = Bench(Masked(), quiet)
    found, _ = trials.find(bench, signature.read(bench.model, {}), {})
    assert (found["drop_mask"].dtype, found["drop_mask"].mask) == ("bool", "drops")


def test_documented_shapes() -> None:
    assert signature._documented("x", "x: images, (batch, 3, 224, 224)") == ("batch", 3, 224, 224)
    assert signature._documented("x", "x (Tensor, optional): anything") == ()
    assert signature._documented("x", "max: (batch, 3)") == ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, 1e-6), (1e-7, 1e-6), (1e-5, 4e-5), (2.4e-3, 1e-2), (0.3, 2.0), (2.5e-4, 1e-3)],
)
def test_limits_are_rounded_up(value: float, expected: float) -> None:
    assert measure.limit(value, 1e-6) == pytest.approx(expected, rel=1e-12)
    assert measure.limit(value, 1e-6) >= value * measure.MARGIN * (1 - 1e-9)


def test_numbers_are_floats_to_yaml() -> None:
    import yaml

    assert yaml.safe_load(draft.number(3e-6)) == 3e-6
    assert yaml.safe_load(draft.number(200.0)) == 200.0


def test_comments_are_single_lines_of_text() -> None:
    lines = draft._comment("a\nb\x1b[31m\u2028c: {", "  ")
    assert lines == ["  # a b [31m c: {"]


def test_names_of_recipes() -> None:
    assert draft._name(asked.Asked("/some/My Net/model.py", "load")) == "my-net"
    assert draft._name(asked.Asked("/some/place/resnet.py", "load")) == "resnet"
