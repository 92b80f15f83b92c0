"""Single steps through the command line: refusals of TensorRT, simplification that pays, BF16, rewriting."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx_ir as ir

from engine.graph.provenance import MODULE
from engine.steps import NAMES
from tests.conftest import ROOT, Cli, record_of

FOLD = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def forward(self, x):
            return nn.functional.fold(x[:, :, None].expand(-1, 8, 4), (3, 3), (2, 2))

    def load():
        return Net().eval()
"""

SHAPES = """
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x):
            y = self.linear(x)
            y = y.reshape(y.shape[0], 2, y.shape[1] // 2).transpose(1, 2).transpose(1, 2)
            return y.reshape(y.shape[0], -1) * torch.ones(8).exp().log()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(), Block()])

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return x

    def load():
        torch.manual_seed(0)
        return Net().eval()
"""


def facts(folder: Path, step: str) -> dict[str, Any]:
    found: dict[str, Any] = next(item for item in record_of(folder)["results"] if item["step"] == step)
    return found


def test_an_op_that_tensorrt_refuses_is_named(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    folder = toy(("base: fp16", "base: fp32"), model=FOLD)
    done = cli("run", folder, "--until", "build")
    assert done.code == 3, done.text
    assert "Col2Im" in done.text
    assert "recipe.yaml:11:1" in done.text
    issue = facts(folder, "build")["issues"][-1]
    assert issue["klass"] == "op"
    assert "Col2Im" in issue["symptom"]


def test_simplification_that_pays_is_kept_with_its_provenance(
    toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    folder = toy(
        ("precision:", "export: {exporter: torchscript}\nsimplify: onnxsim\nprecision:"), model=SHAPES
    )
    done = cli("run", folder, "--until", "build")
    assert done.code == 0, done.text
    simplify = facts(folder, "simplify")["facts"]
    assert simplify["kept"] is True, simplify
    assert simplify["nodes_after"] < simplify["nodes_before"]
    graph = ir.load(folder / "port" / "onnx" / "simplify.onnx").graph
    modules = [node.metadata_props.get(MODULE) for node in graph]
    assert modules.count(None) == simplify["nodes_without_provenance"]
    assert {"blocks.0", "blocks.1"} <= {str(module).rsplit(".linear", 1)[0] for module in modules}


def test_bfloat16_is_proven_in_the_network(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    folder = toy(("base: fp16", "base: bf16"), ("engine: {max_abs: 2.0e-2}", "engine: {max_abs: 1.0e-1}"))
    done = cli("run", folder, "--until", "build")
    assert done.code == 0, done.text
    assert "bf16" in facts(folder, "build")["facts"]["types_proof"]


def test_a_type_that_the_target_lacks_is_refused(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    folder = toy(
        ("base: fp16", "base: bf16"),
        ("sm89", "sm75"),
        ("engine: {max_abs: 2.0e-2}", "engine: {max_abs: 1.0e-1}"),
    )
    done = cli("run", folder, "--until", "build")
    assert done.code == 2, done.text
    assert "bf16 needs sm80 or newer; build.target is sm75" in done.text


def test_overflow_is_found_and_named(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    model = """
        import torch
        from torch import nn

        class Square(nn.Module):
            def forward(self, x):
                return (x * 300) ** 2

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.square = Square()

            def forward(self, x):
                return torch.sqrt(self.square(x) + 1) / 300

        def load():
            return Net().eval()
    """
    folder = toy(model=model)
    done = cli("run", folder, "--until", "rehearse")
    assert done.code == 1, done.text
    rehearse = facts(folder, "rehearse")
    (issue,) = rehearse["issues"]
    assert "overflow begins at" in issue["symptom"]
    assert "in square" in issue["symptom"]
    assert issue["klass"] == "numeric"
    # The mend that the issue names works.
    override = "\n  overrides:\n    - {module: square, type: fp32, because: overflow}"
    override += (
        "\n    - {op: Sqrt, type: fp32, because: overflow}\n    - {op: Add, type: fp32, because: overflow}"
    )
    done = cli("run", toy(("base: fp16", "base: fp16" + override), model=model), "--until", "build")
    assert done.code == 0, done.text


def test_a_bar_moves_on_a_terminal(toy: Callable[..., Path]) -> None:
    folder = toy()
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "engine.cli", "run", str(folder), "--until", "export"]
    done = subprocess.Popen(
        command,
        cwd=folder,
        stdout=child,
        stderr=child,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"},
    )
    os.close(child)
    seen = b""
    while True:
        try:
            chunk = os.read(parent, 65536)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    os.close(parent)
    assert done.wait(timeout=60) == 0
    text = seen.decode(errors="replace")
    assert "torch.export traces the model" in text
    assert "translating to ONNX" in text
    assert f"[ 2/{len(NAMES)}] export" in text


def test_an_override_on_a_node_that_simplify_took_out_is_told_what_became_of_it(
    toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    folder = toy(
        (
            "precision:\n  base: fp16",
            "export: {exporter: torchscript}\nsimplify: onnxsim\nprecision:\n  base: fp16\n"
            "  overrides: [{node: /model/blocks.0/Div, type: fp32, because: wanted}]",
        ),
        model=SHAPES,
    )
    done = cli("run", folder, "--until", "lower")
    assert done.code == 2
    assert "no node is called '/model/blocks.0/Div'" in done.err
    assert "simplify took it out: its module blocks.0 is now " in done.err
