"""Models that return, take or do unusual things, through the command line: one clear message, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from tests.conftest import Cli, record_of

HEAD = """
    import dataclasses
    from collections import OrderedDict, namedtuple
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a = nn.Linear(8, 4)
            self.b = nn.Linear(8, 3)

        def forward(self, x):
{body}

    @dataclasses.dataclass
    class Out:
        logits: torch.Tensor
        extra: object = None

    def load():
        return Net().eval()
"""


def net(body: str) -> str:
    return HEAD.format(body="\n".join(" " * 12 + line for line in body.splitlines()))


GOOD: dict[str, tuple[str, str]] = {
    "tensor": ("return self.a(x)", "[y]"),
    "tuple": ("return self.a(x), self.b(x)", "[p, q]"),
    "nested tuple with None": ("return self.a(x), (self.b(x), None)", "[p, q]"),
    "list": ("return [self.a(x), self.b(x)]", "[p, q]"),
    "dict by key, in the recipe's order": ('return {"p": self.a(x), "q": self.b(x)}', "[q, p]"),
    "dict, one output chosen": ("return OrderedDict(p=self.a(x), q=self.b(x), n=7)", "[q]"),
    "dataclass": ("return Out(self.a(x))", "[logits]"),
    "named tuple": ('return namedtuple("R", "p q")(self.a(x), self.b(x))', "[p, q]"),
}


@pytest.mark.parametrize("case", GOOD)
def test_what_a_model_may_return(case: str, toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    body, outputs = GOOD[case]
    folder = toy(("outputs: [y]", f"outputs: {outputs}"), model=net(body))
    done = cli("run", folder, "--until", "parity")
    assert done.code == 0, done.text
    parity = next(item for item in record_of(folder)["results"] if item["step"] == "parity")
    names = {item["output"] for item in parity["measurements"]["comparisons"]}
    assert names == set(outputs.strip("[]").split(", "))


BAD: dict[str, tuple[str, tuple[tuple[str, str], ...], int, tuple[str, ...]]] = {
    "forward raises": (
        'raise RuntimeError("no such luck")', (), 3,
        ("recipe.yaml:6:1", "forward at shape 'export'", "no such luck", "RuntimeError"),
    ),
    "returns a key that is not there": (
        'return {"logit": self.a(x)}', (("[y]", "[logits]"),), 2,
        ("recipe.yaml:8:11", "no 'logits'", "did you mean 'logit'?"),
    ),
    "returns too many": (
        "return self.a(x), self.b(x)", (), 2, ("recipe.yaml:8:1", "2 tensors, the recipe names 1"),
    ),
    "returns no tensor": ("return 3", (), 2, ("recipe.yaml:8:11", "output 'y' is int, not a tensor")),
    "takes another name": (
        "return self.a(x)", (("  x: {", "  z: {"),), 2, ("recipe.yaml:7:3", "takes no 'z'", "forward(x)"),
    ),
    "NaN in PyTorch": (
        "return self.a(x) / 0 * 0", (), 3, ("recipe.yaml:6:1", "not finite", "PyTorch itself"),
    ),
    "noise in forward": (
        "return self.a(x) + torch.randn_like(self.a(x))", (), 3,
        ("recipe.yaml:3:9", "two runs of the model on the same input give different 'y'"),
    ),
    "functional dropout left on": (
        "return nn.functional.dropout(self.a(x))", (), 3, ("recipe.yaml:3:9", "functional dropout"),
    ),
    "data-dependent branch": (
        "return self.a(x) if x.sum() > 0 else self.a(x) * 2", (), 3, ("torch.export failed",),
    ),
    "batch baked in by len": (
        "return self.a(x) + torch.ones(len(x), 1) * int(x.shape[0] > 2)", (), 3, ("batch",),
    ),
    "unsupported op in the exporter": (
        "return torch.linalg.eigvals(x.T @ x).real[: 1] + self.a(x)", (), 3, ("dynamo exporter failed",),
    ),
    "prints garbage and exits": ("import os; os._exit(7)", (), 3, ("'source'", "exit code 7")),
    "segfaults": ("import ctypes; ctypes.string_at(0)", (), 3, ("'source'", "signal 11")),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_model(case: str, toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    body, edits, code, words = BAD[case]
    folder = toy(*edits, model=net(body))
    done = cli("run", folder, "--until", "parity")
    assert done.code == code, done.text
    for word in words:
        assert word in done.text, done.text
    assert "Traceback" not in done.text
    record: dict[str, Any] = record_of(folder)
    assert record["failure"]["symptom"]
    report = (folder / "PORT_REPORT.md").read_text()
    assert "**Verdict: NOT ACCEPTED" in report


def test_debug_shows_the_traceback(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    folder = toy(model=net('raise RuntimeError("no such luck")'))
    done = cli("--debug", "run", folder, "--until", "source")
    assert "Traceback" in done.text or "raise RuntimeError" in done.text


def test_training_mode_is_switched_off_and_said(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    model = net("return self.b(self.a(x))").replace("nn.Linear(8, 3)", "nn.Dropout()").replace(".eval()", "")
    folder = toy(model=model)
    done = cli("run", folder, "--until", "parity")
    assert done.code == 0, done.text
    source = record_of(folder)["results"][0]
    assert source["issues"][0]["symptom"].startswith("the model came in training mode")
    assert source["issues"][0]["disposition"] == "fixed"


def test_weights_of_another_digest(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    model = net("return self.a(x)").replace("def load():", "def load(path):")
    edit = ("model: {python: model.py:load}",
            f"model: {{python: model.py:load, weights: {{path: w.bin, sha256: {'ab' * 32}}}}}")  # fmt: skip
    folder = toy(edit, model=model)
    (folder / "w.bin").write_bytes(b"weights")
    done = cli("run", folder, "--until", "source")
    assert done.code == 2, done.text
    assert "another sha256" in done.text
    assert "recipe.yaml:3:" in done.text


def test_model_that_prints_does_not_break_the_protocol(
    toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    folder = toy(model=net('print("{\\"kind\\": \\"result\\"}", flush=True)\nreturn self.a(x)'))
    done = cli("run", folder, "--until", "source", "--json")
    assert done.code == 0, done.text
    assert json.loads(done.out)["verdict"]["accepted"] is True


def test_torchscript_exporter(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    recipe_edit = ("precision:", "export: {exporter: torchscript, opset: 17}\nprecision:")
    folder = toy(recipe_edit)
    done = cli("run", folder, "--until", "lower")
    assert done.code == 0, done.text
    results = {item["step"]: item for item in record_of(folder)["results"]}
    assert results["export"]["facts"]["exporter"] == "torchscript"
    assert results["export"]["facts"]["opset"] == 17
    assert {"first", "norm", "last"} <= set(results["lower"]["facts"]["modules"])


def test_an_input_that_no_output_needs_stays_an_input(
    toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    model = net("return self.a(x)").replace("forward(self, x)", "forward(self, x, unused)")
    folder = toy(("  x: {dtype: float32, shape: [batch, 8]}", "  x: {dtype: float32, shape: [batch, 8]}\n"
                  "  unused: {dtype: float32, shape: [batch, 8]}"), model=model)  # fmt: skip
    done = cli("run", folder, "--until", "parity")
    assert done.code == 0, done.text
    session = onnxruntime.InferenceSession(folder / "port" / "onnx" / "export.onnx")
    assert [item.name for item in session.get_inputs()] == ["x", "unused"]
