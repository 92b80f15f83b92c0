"""Numbers that a graph treats apart are among the samples, and the report says how much of a table was looked up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from engine import route, samples
from engine.errors import Exit
from engine.plan import PlannedInput
from engine.plan_inputs import PlannedMask
from engine.stress import cases, compared, content
from engine.stress.lookups import Lookups
from tests.conftest import record_of
from tests.test_route import edit, silent, tampered
from tests.test_stress import plan_with

__all__ = ["tampered"]  # a fixture


def parsed(text: str) -> onnx.ModelProto:
    model: onnx.ModelProto = onnx.parser.parse_model(text)
    return model


COMPARING = """
<ir_version: 8, opset_import: ["" : 18]>
g (int64[b, s] ids, int64[b, s] more, float[b] x) => (bool[b, s] y, bool[b, s] z, bool[b] w)
<int64 special = {4242}, int64[2] others = {7, 9}, float half = {0.5}, int64[2] shape = {0, 0}>
{
  wide = Reshape(ids, shape)
  y = Equal(special, wide)
  two = Cast<to = 1>(ids)
  z = Less(two, half)
  w = Greater(x, half)
  moved = Add(more, special)
  v = Equal(moved, special)
}
"""


def test_numbers_that_whole_numbered_inputs_are_compared_with() -> None:
    found = content.read(ir.from_proto(parsed(COMPARING)))
    assert found.compared == {"ids": (0.5, 4242.0)}


def test_neighbours_that_are_declared() -> None:
    item = PlannedInput("int64", ("b",), "integers", (0.0, 4242.0))
    assert compared.around(item, (0.5, 4242.0, float("inf"))) == [0, 1, 2, 4241, 4242]


def made(item: PlannedInput, constants: tuple[float, ...], **more: PlannedInput) -> dict[str, Any]:
    plan = plan_with(ids=item, **more)
    graph = content.Content(frozenset({"TopK"}), frozenset(), {"ids": constants})
    found = [case for case in cases.cases(plan, graph) if case.kind == "compared"]
    assert all(case.within for case in found)
    return {case.name: cases.inputs(plan, case)["ids"] for case in found}


@pytest.mark.parametrize("size", [("b", 6), ("b",), ("b", 1), (1, 1), (), (2, 2)])
def test_every_number_is_held_whatever_the_shape(size: tuple[int | str, ...]) -> None:
    held = made(PlannedInput("int64", size, "integers", (0.0, 9999.0)), (4242.0, 17.0))
    there = set(np.concatenate([value.reshape(-1) for value in held.values()]).tolist())
    assert {16, 17, 18, 4241, 4242, 4243} <= there
    assert len(held) == {(1, 1): 6, (): 6, (2, 2): 2}.get(size, len(held))


def test_a_mask_does_not_take_the_numbers_away() -> None:
    mask = PlannedInput("int64", ("b", 6), "mask", (), mask=PlannedMask("right", 1, None, 0, 1.0, 0.0))
    ids = PlannedInput("int64", ("b", 6), "integers", (0.0, 9999.0), masked_by="mask", pad=1.0)
    (value,) = made(ids, (4242.0,), mask=mask).values()
    assert all({4241, 4242, 4243} <= set(row) for row in value)


def test_nothing_is_made_where_the_recipe_does_not_declare_the_number() -> None:
    assert made(PlannedInput("int64", ("b", 6), "integers", (0.0, 99.0)), (4242.0,)) == {}


LOOKING = """
<ir_version: 8, opset_import: ["" : 18]>
g (int64[b] direct, int64[b] moved, float[b] x) => (float[b, 2] y, float[b, 2] z, float[b, 2] w)
<float[100, 2] first = {0.0}, float16[80, 2] second = {0.0}, float[9, 2] small = {0.0}, int64 two = {2}>
{
  y = Gather(first, direct)
  wide = Cast<to = 1>(second)
  later = Add(moved, two)
  z = Gather(wide, later)
  w = Gather(small, direct)
}
"""


def test_rows_that_were_read(tmp_path: Path) -> None:
    text = LOOKING
    for declared in (
        "float[100, 2] first = {0.0}, ",
        "float16[80, 2] second = {0.0}, ",
        "float[9, 2] small = {0.0}, ",
    ):
        text = text.replace(declared, "")
    model = parsed(text)
    for name, rows, kind in (
        ("first", 100, np.float32),
        ("second", 80, np.float16),
        ("small", 9, np.float32),
    ):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((rows, 2), kind), name))
    path = tmp_path / "g.onnx"
    onnx.save(model, path)
    looked = Lookups(path)
    for direct, moved in (([0, 1, -1], [5, 5, 5]), ([1, 2, 3], [5, 6, 77])):
        looked.see({"direct": np.array(direct), "moved": np.array(moved), "x": np.zeros(3, np.float32)})
    assert looked.told() == [
        {"table": "first", "inputs": ["direct"], "rows": 100, "read": 5},
        {"table": "second", "inputs": ["moved"], "rows": 80, "read": 3},
    ]
    assert [item.name for item in tmp_path.iterdir()] == ["g.onnx"]


SPECIAL = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.words = nn.Embedding(10000, 4)

        def forward(self, ids):
            return self.words(ids) * (1.0 + (ids == 4242).unsqueeze(-1))

    def load():
        return Net().eval()
"""


def other_constant(out: Path) -> None:
    """One whole number is treated wrongly; of ten thousand, random ones do not meet it."""

    def change(model: onnx.ModelProto) -> None:
        (tensor,) = [
            item for item in model.graph.initializer
            if item.data_type == onnx.TensorProto.INT64 and onnx.numpy_helper.to_array(item).tolist() in (4242, [4242])
        ]  # fmt: skip
        held = onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(held + 1, tensor.name))

    edit(out / "onnx" / "export.onnx", change)


IDS = (
    "x: {dtype: float32, shape: [batch, 8]}",
    "ids: {dtype: int64, shape: [batch, 8], values: {integers: [0, 9999]}}",
)


def test_a_number_that_is_treated_wrongly_is_found(
    toy: Callable[..., Path], tampered: Callable[[str, Callable[[Path], None]], None]
) -> None:
    folder = toy(IDS, model=SPECIAL)
    tampered("torch", other_constant)
    outcome = route.run(folder, None, "parity", (), silent)
    assert outcome.exit_code == Exit.NOT_ACCEPTED
    assert (
        next(claim.where for claim in outcome.verdict.claims if claim.status == "fail") == "y at compared.ids"
    )


def test_the_report_says_how_much_of_a_table_was_looked_up(toy: Callable[..., Path]) -> None:
    folder = toy(IDS, model=SPECIAL)
    outcome = route.run(folder, None, "parity", (), silent)
    assert outcome.exit_code == Exit.ACCEPTED, outcome.message
    files = [*(folder / "port" / "stress").glob("*.npz"),
             *(folder / "port" / "samples" / f"{name}.npz" for name in ("min", "opt", "max", "odd"))]  # fmt: skip
    read = len({int(number) for file in files for number in samples.read(file, "input")["ids"].flat})
    parity = next(item for item in record_of(folder)["results"] if item["step"] == "parity")
    (table,) = parity["facts"]["lookups"]
    assert table["read"] == read
    text = (folder / "PORT_REPORT.md").read_text()
    assert f"Looked up by `ids` in `{table['table']}`: {read:,} of 10,000 rows" in text
