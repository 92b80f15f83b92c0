"""Graphs that come out wrong without a word: each is refused, mended or put into the issue log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.conftest import Cli, record_of

HEAD = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def forward(self, x):
{body}

    def load():
        return Net().eval()
"""


def net(body: str) -> str:
    return HEAD.format(body="\n".join(" " * 12 + line for line in body.splitlines()))


@pytest.mark.parametrize(
    ("body", "reference"),
    [("return x / (x.norm(dim=-1, keepdim=True) + 1e-12)", 0.0), ("return torch.log(x.abs() + 1e-9)", np.log(1e-9)),
     ("return (x * 1.000001 - x) * 1e6", 0.0)],
)  # fmt: skip
def test_small_constants_are_still_there(
    body: str, reference: float, toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    folder = toy(("onnx: {max_abs: 1.0e-5}", "onnx: {max_abs: 1.0}"), model=net(body))
    done = cli("run", folder, "--until", "parity")
    assert done.code == 0, done.text
    session = onnxruntime.InferenceSession(folder / "port" / "onnx" / "export.onnx")
    (got,) = session.run(None, {"x": np.zeros((2, 8), np.float32)})
    assert got == pytest.approx(np.full(got.shape, reference), rel=1e-5)
    export = next(item for item in record_of(folder)["results"] if item["step"] == "export")
    assert "optimiser deletes" in export["issues"][0]["symptom"]


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
@pytest.mark.parametrize(
    "body",
    [
        "return torch.where(x > 90.0, x + torch.randn_like(x), x)",
        "torch.manual_seed(0)\nreturn x + torch.rand_like(x)",
    ],
)
def test_random_numbers_in_the_graph_are_refused(
    body: str, exporter: str, toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    folder = toy(("precision:", f"export: {{exporter: {exporter}}}\nprecision:"), model=net(body))
    done = cli("run", folder, "--until", "parity")
    assert done.code == 3, done.text
    assert "draws random numbers" in done.text
    assert "recipe.yaml:3:9" in done.text


@pytest.mark.parametrize(
    ("body", "words"),
    [("if x.sum() > 1e6:\n    return x * 1000\nreturn x", "branches on the value of a tensor at model.py:6"),
     ("return x * int(x.abs().max() * 0 + 2)", "makes a Python number of the value of a tensor at model.py:6")],
)  # fmt: skip
def test_a_value_of_an_input_that_the_tracer_would_bake_in_is_refused(
    body: str, words: str, toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    folder = toy(("precision:", "export: {exporter: torchscript}\nprecision:"), model=net(body))
    done = cli("run", folder, "--until", "export")
    assert done.code == 3, done.text
    assert words in done.text
    assert "torch.where" in done.text
    assert "recipe.yaml:3:9" in done.text


def test_a_size_that_the_tracer_bakes_in_is_an_open_issue(
    toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    body = "if x.shape[0] > 100:\n    return x * 1000\nreturn x"
    folder = toy(("precision:", "export: {exporter: torchscript}\nprecision:"), model=net(body))
    done = cli("run", folder)
    assert done.code == 0, done.text
    assert "1 open issue" in done.out
    assert "the tracer took a value at model.py:6 for a constant" in (folder / "PORT_REPORT.md").read_text()


def test_batch_statistics_are_an_open_issue(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    body = "return nn.functional.batch_norm(x, None, None, training=True)"
    folder = toy(("min: 1", "min: 2"), model=net(body))
    done = cli("run", folder, "--until", "parity")
    assert done.code == 0, done.text
    issues = next(item for item in record_of(folder)["results"] if item["step"] == "export")["issues"]
    assert "batch statistics" in issues[0]["symptom"]


def test_repeated_and_extreme_indices_are_among_the_samples(
    toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    model = """
        import torch
        from torch import nn

        class Net(nn.Module):
            def forward(self, i):
                table = torch.zeros(100000, 2)
                return table.index_put((i.flatten(),), torch.ones(i.numel(), 2), accumulate=True)[:8]

        def load():
            return Net().eval()
    """
    edits = (
        (
            "x: {dtype: float32, shape: [batch, 8]}",
            "i: {dtype: int64, shape: [batch, 8], values: {integers: [0, 99999]}}",
        ),
        ("precision:", "export: {exporter: torchscript}\nprecision:"),
    )
    done = cli("run", toy(*edits, model=model), "--until", "parity")
    assert done.code == 1, done.text
    assert "y at odd" in done.out


def test_an_integer_model_goes_through(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    edits = (
        (
            "x: {dtype: float32, shape: [batch, 8]}",
            "x: {dtype: int64, shape: [batch, 8], values: {integers: [0, 9]}}",
        ),
        ("base: fp16", "base: fp32"),
    )
    done = cli("run", toy(*edits, model=net("return x * 2 + 1")), "--until", "build")
    assert done.code == 0, done.text
    build = next(item for item in record_of(record_path(done))["results"] if item["step"] == "build")
    assert build["facts"]["types_proof"] == "the graph has no float tensor"


def record_path(done: Cli) -> Path:
    """The recipe folder of a run, from the report line that it printed."""
    return Path(done.out.rsplit("report: ", 1)[1].strip()).parent


def test_a_broken_parity_is_in_the_issue_log(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    folder = toy(("onnx: {max_abs: 1.0e-5}", "onnx: {max_abs: 1.0e-12}"))
    done = cli("run", folder)
    assert done.code == 1, done.text
    text = (folder / "PORT_REPORT.md").read_text()
    assert "accept.onnx.max_abs <= 1e-12 is broken by y at" in text
