"""What an exported graph is held against; every check both ways."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from engine import intake
from engine.errors import StepError
from engine.graph import constants_account, output_dims
from engine.plan import Plan
from tests.conftest import Cli, record_of
from tests.test_silent import net


def exported(folder: Path) -> dict[str, Any]:
    step: dict[str, Any] = next(item for item in record_of(folder)["results"] if item["step"] == "export")
    return step


def symptoms(folder: Path) -> list[str]:
    return [issue["symptom"] for issue in exported(folder)["issues"]]


def run(folder: Path, cli: Callable[..., Cli]) -> Cli:
    return cli("run", folder, "--until", "export")


def traced(exporter: str) -> tuple[str, str]:
    return "precision:", f"export: {{exporter: {exporter}, opset: 18}}\nprecision:"


def graph(*dims: int | str) -> ir.Model:
    y = ir.Value(name="y", shape=ir.Shape(dims), type=ir.TensorType(ir.DataType.FLOAT))
    return ir.Model(ir.Graph([], [y], nodes=[]), ir_version=10)


@pytest.fixture
def plan(toy: Callable[..., Path]) -> Plan:
    return intake.make_plan(toy())[1]


def test_an_output_that_moves_and_is_fixed_in_the_file(plan: Plan) -> None:
    with pytest.raises(StepError) as caught:
        output_dims.check(graph(3, 4), plan, {"export": {"y": [3, 4]}, "min": {"y": [1, 4]}})
    failure = caught.value.failure
    assert failure.symptom == (
        "dimension 0 of output 'y' is fixed to 3 in the exported graph; the model returns 1 there at shape 'min'"
    )
    assert (failure.where, failure.klass) == ("outputs[0]", "shape")
    assert failure.cause
    assert failure.fix


def test_another_rank(plan: Plan) -> None:
    with pytest.raises(StepError) as caught:
        output_dims.check(graph("batch"), plan, {"min": {"y": [1, 4]}})
    assert str(caught.value) == (
        "output 'y' has 1 dimensions in the exported graph; the model returns 2 at shape 'min'"
    )


def test_an_output_tied_to_the_wrong_axis_is_an_issue(plan: Plan) -> None:
    observed = {"min": {"y": [1, 4]}, "max": {"y": [16, 5]}}
    (issue,) = output_dims.check(graph("batch", "batch"), plan, observed)
    assert (
        issue.symptom == "dimension 1 of output 'y' is named 'batch' in the file, but is 4 where 'batch' is 1"
    )
    assert issue.disposition == "open"
    assert not output_dims.check(graph("batch", 4), plan, {"min": {"y": [1, 4]}, "max": {"y": [16, 4]}})
    assert not output_dims.check(graph("other", 4), plan, {"min": {"y": [7, 4]}})


@pytest.mark.parametrize(
    ("body", "got", "line"),
    [("if x.shape[0] > 4:\n    return x * 2\nreturn x + 1", "1..4", 6), ("return x.view(len(x), 8) + 1", "3", 6)],
)  # fmt: skip
def test_a_narrowed_axis_names_asked_got_and_line(
    body: str, got: str, line: int, toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    done = run(toy(model=net(body)), cli)
    assert done.code == 3, done.text
    assert f"the model takes axis 'batch' only as {got}; the recipe asks 1..16" in done.text
    assert f"decided at model.py:{line}" in done.text
    assert "recipe.yaml:5:3" in done.text


STATE = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))
            self.norm = nn.BatchNorm1d(8)

        def forward(self, x):
            {line}
            return self.norm(x)

    def load():
        return Net().eval()
"""


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_a_buffer_that_forward_updates_is_an_open_issue(
    exporter: str, toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    folder = toy(traced(exporter), model=STATE.format(line="self.calls.add_(1)"))
    done = run(folder, cli)
    assert done.code == 0, done.text
    words = {"dynamo": "writes to its own buffers (calls)", "torchscript": "it was exported: 'calls' changed"}
    assert any(words[exporter] in text for text in symptoms(folder))
    assert all(issue["disposition"] == "open" for issue in exported(folder)["issues"])


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_a_module_that_forward_leaves_alone_is_no_issue(
    exporter: str, toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    folder = toy(traced(exporter), model=STATE.format(line="pass"))
    done = run(folder, cli)
    assert done.code == 0, done.text
    assert symptoms(folder) == []
    facts = exported(folder)["facts"]
    assert facts["weights_unused"] == ["calls", "norm.num_batches_tracked"]
    assert (
        facts["capture"]
        == {"dynamo": "torch.export, non-strict", "torchscript": "traced with one input"}[exporter]
    )


def test_modes_are_compared() -> None:
    from torch import nn

    from engine import model_state

    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).eval()
    before = model_state.take(net)
    assert model_state.changes(before, model_state.take(net)) == []
    net[1].train()
    net[0].weight.data[0, 0] += 1
    net[0].register_buffer("cache", net[0].bias.detach() * 1)
    assert model_state.changes(before, model_state.take(net)) == [
        "1 went to training mode", "'0.weight' changed", "'0.cache' is new"]  # fmt: skip


def test_float64_inside_is_an_open_issue_with_its_module(
    toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    folder = toy(model=net("return (x.double() * 0.1).float()"))
    done = run(folder, cli)
    assert done.code == 0, done.text
    (issue,) = exported(folder)["issues"]
    assert issue["symptom"] == "the model computes in float64 (1 operations)"
    assert issue["evidence"] == "mul in the root module"
    assert issue["disposition"] == "open"


def numbers(**values: float) -> ir.Model:
    found = [ir.Value(name=name, const_value=ir.tensor(np.float32(value))) for name, value in values.items()]
    return ir.Model(ir.Graph([], [], nodes=[], initializers=found), ir_version=10)


def test_a_constant_that_is_nearly_one_of_the_model() -> None:
    (near,) = constants_account.near_misses([0.125, 0.3], numbers(a=0.125, b=0.30001))
    assert str(near) == "0.300009996 ('b') in the file, 0.3 in the model"
    (scale,) = constants_account.near_misses([0.7071], numbers(a=0.70710678))
    assert scale.constant == "a"


@pytest.mark.parametrize("value", [0.3, -0.3, 1 / 0.3, 0.3**0.5, 1 / 0.3**0.5, 0.3 * 0.2, 0.5, 7.0])
def test_what_a_translation_makes_of_a_constant_is_no_near_miss(value: float) -> None:
    assert constants_account.near_misses([0.3, 0.2], numbers(a=value, b=0.3)) == []


def test_a_constant_that_is_gone() -> None:
    assert constants_account.absent([1e-6, 1e-5], numbers(a=1e-5)) == [1e-6]
    inside = ir.Value(name="many", const_value=ir.tensor(np.array([1, 1e-6], np.float32)))
    model = ir.Model(ir.Graph([], [], nodes=[], initializers=[inside]), ir_version=10)
    assert constants_account.absent([1e-6], model) == []


def test_an_epsilon_is_looked_for_among_the_attributes() -> None:
    x = ir.Value(name="x")
    node = ir.node("LayerNormalization", [x, x], {"epsilon": 1e-12}, name="norm")
    model = ir.Model(ir.Graph([x], node.outputs, nodes=[node]), ir_version=10)
    assert constants_account.absent([1e-12], model) == []
    assert constants_account.absent([1e-5], model) == [1e-5]


def test_a_changed_weight_stops_the_port(
    toy: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An exporter that writes one element wrong, in this process."""
    from engine import torch_model
    from engine.exporters import dynamo
    from engine.sources import torch_sources
    from engine.steps import export, source
    from engine.steps.context import Context

    plan = intake.make_plan(toy())[1]
    real = dynamo.export

    def faulty(*arguments: Any) -> Any:
        made = real(*arguments)
        value = made.model.graph.initializers["first.bias"]
        array = value.const_value.numpy().copy()
        array[5] += 1
        value.const_value = ir.tensor(array)
        return made

    context = Context(plan, tmp_path / "out", {}, lambda text, done, total: None)
    source.run(context)
    context.memo["port"] = torch_model.Port(torch_sources.load(plan), ("x",), ("y",)).eval()
    monkeypatch.setattr(dynamo, "export", faulty)
    with pytest.raises(StepError) as caught:
        export.run(context)
    assert caught.value.failure.symptom.startswith("weights changed on the way: first.bias[5] is ")
    assert caught.value.failure.where == "export.exporter"
    monkeypatch.setattr(dynamo, "export", real)
    done = export.run(context)
    assert done.facts["weights"] == {"as it is": 6}
