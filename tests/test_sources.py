"""Every source of a model, to the end on a tiny one; and what is wrong with its files, in one message."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper
from safetensors.torch import save_file
from torch import nn

from engine import host, intake, route
from engine.digests import digest_file
from engine.errors import Failure
from engine.graph.provenance import MODULE
from engine.sources import onnx_file
from engine.steps.context import Context
from engine.values import StepResult
from tests.conftest import Cli, record_of

Toy = Callable[..., Path]
Run = Callable[..., Cli]
OLD = "model: {python: model.py:load}"


class Net(nn.Module):
    """What conftest's toy model is; ``dim`` names the batch axis in exports."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(16)
        self.last = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(torch.relu(self.norm(self.first(x))))
        return result


BUILD = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(8, 16)
            self.norm = nn.LayerNorm(16)
            self.last = nn.Linear(16, 4)

        def forward(self, x):
            return self.last(torch.relu(self.norm(self.first(x))))

    def build():
        return Net()
"""


def exported(path: Path, high: int = 16) -> None:
    batch = torch.export.Dim("batch", min=1, max=high)
    torch.export.save(
        torch.export.export(Net().eval(), (torch.zeros(3, 8),), dynamic_shapes=({0: batch},)), path
    )


def traced(path: Path) -> None:
    torch.jit.save(torch.jit.trace(Net().eval(), torch.zeros(3, 8)), path)  # type: ignore[no-untyped-call]


def written(path: Path, opset: int = 17, **options: Any) -> None:
    """An ONNX file by the tracing exporter: with node names that tell modules, and no metadata."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _trace(path, opset, **options)


def _trace(path: Path, opset: int, **options: Any) -> None:
    torch.onnx.export(
        Net().eval(), (torch.zeros(3, 8),), str(path), dynamo=False, opset_version=opset, input_names=["x"],
        output_names=["y"], dynamic_axes={"x": {0: "n"}, "y": {0: "n"}}, **options,
    )  # fmt: skip


def fails(folder: Path, *steps: str) -> tuple[Failure, str]:
    """Run steps in this process until one fails; the failure, and the message that the user would get."""
    loaded, plan = intake.make_plan(folder)
    out = folder / "port"
    out.mkdir()
    context = Context(plan, out, {}, lambda text, done, total: None)
    for name in steps:
        result, failure = host.run_step(name, context)
        if failure is not None:
            assert not failure.bug, failure.evidence
            return failure, route.explain(failure, loaded)
        assert result is not None
        context.earlier[name] = result
    raise AssertionError("no step failed")


def checked_steps(folder: Path) -> dict[str, StepResult]:
    """The steps up to ``check`` in this process."""
    _, plan = intake.make_plan(folder)
    (folder / "port").mkdir()
    context = Context(plan, folder / "port", {}, lambda text, done, total: None)
    for name in ("source", "export", "check"):
        result, failure = host.run_step(name, context)
        assert failure is None, failure
        assert result is not None
        context.earlier[name] = result
    return context.earlier


def checked(folder: Path, cli: Run) -> dict[str, Any]:
    done = cli("run", folder)
    assert done.code == 0, done.text
    return record_of(folder)


def facts(record: dict[str, Any], step: str) -> dict[str, Any]:
    found: dict[str, Any] = next(item for item in record["results"] if item["step"] == step)["facts"]
    return found


def modules(folder: Path) -> set[str]:
    graph = ir.load(folder / "port" / "onnx" / "lower.onnx").graph
    return {str(node.metadata_props.get(MODULE)) for node in graph}


def by_hand(folder: Path, step: str) -> None:
    """The report's own script for a step runs, and finds next to no difference."""
    text = (folder / "PORT_REPORT.md").read_text()
    code = text.split(f"**{step}**", 1)[1].split("```python\n", 1)[1].split("```", 1)[0]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    if step == "parity":
        assert float(done.stdout.split()[1]) < 1e-5


@pytest.mark.parametrize("form", ["safetensors", "pt in a dict"])
def test_checkpoint(form: str, toy: Toy, cli: Run) -> None:
    name, key = ("w.safetensors", "") if form == "safetensors" else ("w.pt", "")
    if form == "pt in a dict":
        key = ", key: ema.model"
    folder = toy((OLD, f"model: {{checkpoint: {{python: model.py:build, path: {name}{key}}}}}"), model=BUILD)
    state = Net().state_dict()
    if form == "safetensors":
        save_file(state, folder / name)
    else:
        torch.save({"ema": {"model": state}} if key else state, folder / name)
    record = checked(folder, cli)
    came = facts(record, "source")["origin"]
    assert came["files"] == {name: digest_file(folder / name), "model.py": digest_file(folder / "model.py")}
    assert f"weights {name}" in came["what"]
    assert digest_file(folder / name) in (folder / "PORT_REPORT.md").read_text()
    if key:
        by_hand(folder, "source")
    stored = np.load(folder / "port" / "samples" / "min.npz")
    expected = Net().eval()(torch.from_numpy(stored["input/x"])).detach().numpy()
    assert np.array_equal(stored["fp32/y"], expected)


def failing(state: dict[str, Any], toy: Toy) -> str:
    folder = toy((OLD, "model: {checkpoint: {python: model.py:build, path: w.pt}}"), model=BUILD)
    torch.save(state, folder / "w.pt")
    failure, message = fails(folder, "source")
    assert failure.usage
    assert "recipe.yaml:3:9" in message
    return message


def test_every_key_that_does_not_fit_is_in_one_message(toy: Toy) -> None:
    state = Net().state_dict()
    state["more"] = state.pop("last.bias")
    state["first.weight"] = torch.zeros(16, 7)
    message = failing(state, toy)
    assert "1 missing: last.bias; 1 unexpected: more; 1 of another shape" in message
    assert "first.weight is [16, 7], the model has [16, 8]" in message


def test_a_prefix_of_every_key_is_named(toy: Toy) -> None:
    message = failing({f"module.{name}": value for name, value in Net().state_dict().items()}, toy)
    assert "every name starts with 'module.' in the file only" in message


def test_a_state_dict_inside_is_named(toy: Toy) -> None:
    assert "key: state_dict" in failing({"epoch": 3, "state_dict": Net().state_dict()}, toy)


class Evil:
    harm = ""

    def __reduce__(self) -> Any:
        return (open, (self.harm, "w"))


def test_a_pickle_is_not_run(toy: Toy, tmp_path: Path) -> None:
    evil = Evil()
    evil.harm = str(tmp_path / "harm")
    assert "cannot be read as weights alone" in failing({"a": evil}, toy)
    assert not (tmp_path / "harm").exists()


def test_tied_weights_are_stored_once(tmp_path: Path) -> None:
    from engine.errors import StepError
    from engine.sources import weights

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
            self.b.weight = self.a.weight

    state = {name: value + 1 for name, value in Tied().state_dict().items() if name != "b.weight"}
    torch.save(state, tmp_path / "w.pt")
    model = Tied()
    weights.fill(model, tmp_path / "w.pt", "", "model.checkpoint")
    assert torch.equal(model.b.weight, state["a.weight"])
    del state["c.weight"]
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(StepError, match=r"1 missing: c\.weight$"):
        weights.fill(Tied(), tmp_path / "w.pt", "", "model.checkpoint")


def test_another_sha256(toy: Toy) -> None:
    folder = toy((OLD, f"model: {{exported: m.pt2, sha256: {'ab' * 32}}}"))
    exported(folder / "m.pt2")
    failure, message = fails(folder, "source")
    assert failure.usage
    assert "recipe.yaml:3:26: the model file m.pt2 has another sha256" in message


def test_exported_program(toy: Toy, cli: Run) -> None:
    override = "\n  overrides:\n    - {module: norm, type: fp32, because: an example}"
    folder = toy((OLD, "model: {exported: m.pt2}"), ("base: fp16", "base: fp16" + override))
    exported(folder / "m.pt2")
    record = checked(folder, cli)
    assert facts(record, "source")["origin"]["what"] == "exported program m.pt2"
    assert not any(item["issues"] for item in record["results"] if item["step"] == "source")
    assert {"first", "norm", "last"} <= modules(folder)
    by_hand(folder, "source")


def test_exported_program_of_a_narrower_axis(toy: Toy) -> None:
    folder = toy((OLD, "model: {exported: m.pt2}"))
    exported(folder / "m.pt2", high=8)
    message = fails(folder, "source")[1]
    assert "recipe.yaml:5:3: the program limits axis 'batch' to 1..8; the recipe asks 1..16" in message


def test_exported_program_of_a_fixed_size(toy: Toy) -> None:
    folder = toy((OLD, "model: {exported: m.pt2}"))
    torch.export.save(torch.export.export(Net().eval(), (torch.zeros(3, 8),)), folder / "m.pt2")
    message = fails(folder, "source")[1]
    assert "recipe.yaml:5:3: the program fixes 'batch' of 'x' to 3; the recipe asks 1..16" in message


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("[batch, 9]", "the program fixes 9 of 'x' to 8"),
        ("[batch, 8, 1]", "'x' has 2 dimensions in the program"),
    ],
)
def test_exported_program_of_another_shape(shape: str, words: str, toy: Toy) -> None:
    folder = toy((OLD, "model: {exported: m.pt2}"), ("[batch, 8]", shape))
    exported(folder / "m.pt2")
    assert words in fails(folder, "source")[1]


@pytest.mark.parametrize(
    ("source", "name"), [("exported", "m.pt2"), ("torchscript", "m.ts"), ("onnx", "m.onnx")]
)
def test_a_file_that_is_none(source: str, name: str, toy: Toy) -> None:
    folder = toy((OLD, f"model: {{{source}: {name}}}"))
    (folder / name).write_bytes(b"\xffnothing\xff" * 10)
    assert f"recipe.yaml:3:9: {name} " in fails(folder, "source")[1]


def test_inputs_are_those_of_the_program(toy: Toy) -> None:
    folder = toy((OLD, "model: {exported: m.pt2}"), ("  x: {", "  xs: {"))
    exported(folder / "m.pt2")
    message = fails(folder, "source")[1]
    assert "takes no 'xs'" in message
    assert "did you mean 'x'?" in message


def test_torchscript(toy: Toy, cli: Run) -> None:
    folder = toy((OLD, "model: {torchscript: m.ts}"))
    traced(folder / "m.ts")
    record = checked(folder, cli)
    assert facts(record, "export")["exporter"] == "torchscript"
    assert {"first", "norm", "last"} <= modules(folder)
    by_hand(folder, "export")


def test_onnx_file(toy: Toy, cli: Run) -> None:
    override = "\n  overrides:\n    - {module: norm, type: fp32, because: an example}"
    folder = toy((OLD, "model: {onnx: m.onnx}"), ("base: fp16", "base: fp16" + override))
    written(folder / "m.onnx")
    record = checked(folder, cli)
    came = facts(record, "source")["origin"]
    assert came["reference"] == "the ONNX file"
    assert came["files"] == {"m.onnx": digest_file(folder / "m.onnx")}
    claims = {claim["name"]: claim for claim in record["verdict"]["claims"]}
    assert claims["parity with PyTorch"]["status"] == "not run"
    assert claims["accept.onnx.max_abs"]["evidence"] == "compared with the ONNX file"
    assert record["verdict"]["headline"] == "ACCEPTED; 2 claims not run"
    text = (folder / "PORT_REPORT.md").read_text()
    assert "parity with PyTorch is *not run*" in text
    assert "## Parity: ONNX Runtime against the ONNX file, FP32" in text
    assert "pytorch-eager" not in text
    assert "| parity | ONNX Runtime against the ONNX file given, FP32 |" in text
    assert "against PyTorch" not in text
    assert "Same computation: not run: there is no PyTorch model." in text
    by_hand(folder, "source")
    by_hand(folder, "parity")


def test_rounding_of_an_onnx_file_is_not_run_and_says_why(toy: Toy, cli: Run) -> None:
    folder = toy((OLD, "model: {onnx: m.onnx}"), ("max_abs: 1.0e-5}", "max_abs: 1.0e-5}\n  rounding: 1"))
    written(folder / "m.onnx")
    done = cli("run", folder, "--until", "parity")
    assert done.code == 0, done.text
    claims = {claim["name"]: claim for claim in record_of(folder)["verdict"]["claims"]}
    for name in ("accept.rounding", "accept.rounding (of constants)"):
        assert (claims[name]["status"], claims[name]["why"]) == ("not run", "there is no PyTorch model")


def external(folder: Path) -> None:
    written(folder / "m.onnx")
    onnx.save(onnx.load(folder / "m.onnx"), folder / "m.onnx", save_as_external_data=True, location="m.data",
              size_threshold=16)  # fmt: skip


def test_onnx_weights_outside_are_copied_beside_the_graph(toy: Toy, cli: Run) -> None:
    folder = toy((OLD, "model: {onnx: m.onnx}"))
    external(folder)
    record = checked(folder, cli)
    copy = folder / "port" / "onnx" / "source.weights"
    assert copy.read_bytes() == (folder / "m.data").read_bytes()
    assert facts(record, "source")["origin"]["files"]["m.data"] == digest_file(folder / "m.data")
    # Neither the customer's file nor the copy is linked: the ONNX checker refuses such files.
    assert os.stat(folder / "m.data").st_nlink == 1


def test_onnx_weights_cut_off(toy: Toy) -> None:
    folder = toy((OLD, "model: {onnx: m.onnx}"))
    external(folder)
    os.truncate(folder / "m.data", 100)
    assert "recipe.yaml:3:9: external data file m.data: 100 bytes" in fails(folder, "source")[1]


def pinned(toy: Toy, *pins: str) -> Path:
    """An ONNX file with weights outside, and ``external_sha256`` with ``pins``."""
    folder = toy((OLD, "model: {onnx: m.onnx}"))
    (folder / "m.data").unlink(missing_ok=True)  # onnx.save would append to it
    external(folder)
    beside = "".join(f"\n    {pin}" for pin in pins)
    sha256 = digest_file(folder / "m.onnx")
    beside = f"\n  external_sha256:{beside}" if pins else ""
    return toy((OLD, f"model:\n  onnx: m.onnx\n  sha256: {sha256}{beside}"))


def test_pinned_weights_beside_an_onnx_file(toy: Toy) -> None:
    folder = pinned(toy)
    found = digest_file(folder / "m.data")
    results = checked_steps(folder)
    assert [(issue.symptom, issue.fix, issue.disposition) for issue in results["check"].issues] == [
        (
            "model.sha256 pins the graph alone, not its weights in m.data",
            f"external_sha256: {{m.data: {found}}}",
            "open",
        )
    ]
    shutil.rmtree(folder / "port")
    assert checked_steps(pinned(toy, f"m.data: {found}"))["check"].issues == ()


@pytest.mark.parametrize(
    ("pins", "words"),
    [
        ((f"m.data: {'ab' * 32}",), "the weight file m.data has another sha256 than the recipe says"),
        (("{}", f"other: {'ab' * 32}"), "m.onnx has no weights in 'other'"),
    ],
)
def test_weights_that_are_not_the_pinned_ones(pins: tuple[str, ...], words: str, toy: Toy) -> None:
    folder = pinned(toy)
    there = f"m.data: {digest_file(folder / 'm.data')}"
    failure, message = fails(pinned(toy, *(there if pin == "{}" else pin for pin in pins)), "source")
    assert words in message
    assert "recipe.yaml:" in message
    assert failure.usage


def test_weights_copied_while_they_changed(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = pinned(toy)
    copy = onnx_file._copy

    def damaged(model: ir.Model, target: Path) -> list[Path]:
        done = copy(model, target)
        data = done[0].read_bytes()
        done[0].write_bytes(data[:-4] + bytes(4))
        return done

    monkeypatch.setattr(onnx_file, "_copy", damaged)
    assert (
        "onnx/source.weights is not a weight file that the source step read"
        in fails(folder, "source", "export", "check")[1]
    )


def test_onnx_weights_elsewhere_are_not_read(toy: Toy) -> None:
    folder = toy((OLD, "model: {onnx: m.onnx}"))
    external(folder)
    model = onnx.load(folder / "m.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            entry.value = "../secret" if entry.key == "location" else entry.value
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    (folder / "m.data").rename(folder.parent / "secret")
    message = fails(folder, "source")[1]
    assert "recipe.yaml:3:9: weights at '../secret', which is outside the graph's own folder" in message
    assert not (folder / "port" / "onnx").exists()


def small(path: Path, opset: int = 17, **changes: Any) -> None:
    """A graph with unnamed nodes, a weight among the inputs and a local function: what old or odd files have."""
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", opset)],
    )  # fmt: skip
    shape = changes.get("shape", ["n", 8])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Twice", ["h"], ["t"], domain="own"),
         helper.make_node("Relu", ["t"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", changes.get("dtype", TensorProto.FLOAT), shape),
         helper.make_tensor_value_info("w", TensorProto.FLOAT, [8, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [shape[0], 4])],
        [helper.make_tensor("w", TensorProto.FLOAT, [8, 4], np.linspace(-1, 1, 32, dtype=np.float32))],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, functions=[twice], ir_version=9), path)


def test_odd_onnx_file(toy: Toy, cli: Run) -> None:
    folder = toy((OLD, "model: {onnx: m.onnx}"), ("base: fp16", "base: fp32"))
    small(folder / "m.onnx")
    checked(folder, cli)
    graph = ir.load(folder / "port" / "onnx" / "export.onnx")
    names = [node.name for node in graph.graph]
    assert len(set(names)) == len(names) == 3
    assert not graph.functions
    assert [value.name for value in graph.graph.inputs] == ["x"]


def test_sizes_that_the_recipe_fixes_are_pinned(toy: Toy, cli: Run) -> None:
    recipe_edits = ((OLD, "model: {onnx: m.onnx}"), ("base: fp16", "base: fp32"), ("[batch, 8]", "[3, 8]"),
                    ("axes:\n  batch: {min: 1, opt: 4, max: 16}\n", ""))  # fmt: skip
    folder = toy(*recipe_edits)
    small(folder / "m.onnx")
    record = checked(folder, cli)
    assert facts(record, "export")["inputs"] == {"x": "float[3x8]"}


@pytest.mark.parametrize(
    ("edits", "changes", "words"),
    [
        ((), {"opset": 26}, "m.onnx has opset 26, above 24"),
        ((("precision:", "export: {opset: 18}\nprecision:"),), {}, "m.onnx has opset 17; the recipe asks 18"),
        (
            (),
            {"shape": [4, 8]},
            "axis 'batch' was asked dynamic (1..16), but dimension 0 of 'x' is fixed to 4",
        ),
        ((("  x: {", "  z: {"),), {}, "m.onnx has no input 'z'"),
        ((("[y]", "[y, z]"),), {}, "m.onnx has no output 'z'"),
        (
            (("dtype: float32", "dtype: int64"),),
            {},
            "input 'x' is float[nx8] in the graph; the recipe says int64",
        ),
    ],
)
def test_onnx_file_that_is_not_as_declared(edits: Any, changes: dict[str, Any], words: str, toy: Toy) -> None:
    folder = toy((OLD, "model: {onnx: m.onnx}"), *edits)
    small(folder / "m.onnx", **changes)
    message = fails(folder, "source", "export")[1]
    assert words in message
    assert "recipe.yaml:" in message


BERT = """
    portwright: 1
    name: bert
    model: {transformers: {name: BertModel, config: bert, arguments: {num_hidden_layers: 1}}}
    axes:
      batch: {min: 1, opt: 2, max: 4}
    inputs:
      input_ids: {dtype: int64, shape: [batch, 6], values: {integers: [1, 49], masked_by: attention_mask}}
      attention_mask: {dtype: int64, shape: [batch, 6], values: {mask: {padding: mixed, low: 2}}}
    outputs: [last_hidden_state]
    precision: {base: fp16}
    build: {target: sm89}
    bench: {rounds: 1, warmup: 0}
    accept:
      onnx: {max_abs: 1.0e-5}
      engine: {max_abs: 5.0e-2}
"""


def bert(folder: Path, **settings: Any) -> None:
    config = {"model_type": "bert", "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2,
              "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 16}  # fmt: skip
    (folder / "bert").mkdir()
    (folder / "bert" / "config.json").write_text(json.dumps(config | settings))


def test_transformers_with_random_weights_says_so(toy: Toy, cli: Run) -> None:
    folder = toy(recipe=BERT)
    bert(folder)
    record = checked(folder, cli)
    came = facts(record, "source")["origin"]
    assert came["what"] == "transformers BertModel, num_hidden_layers 1, random weights of seed 0"
    issue = next(item for item in record["results"] if item["step"] == "source")["issues"][-1]
    assert issue["symptom"] == "the weights are random (seed 0): no trained model was ported"
    by_hand(folder, "parity")
    source = (folder / "PORT_REPORT.md").read_text().split("**source**", 1)[1]
    assert "torch.manual_seed(0)" in source.split("```", 2)[1]


def test_transformers_with_local_weights(toy: Toy, cli: Run) -> None:
    edit = ("{transformers: {name: BertModel, config: bert, arguments: {num_hidden_layers: 1}}}",
            "{transformers: {name: AutoModel}, weights: {path: trained}}")  # fmt: skip
    folder = toy(edit, recipe=BERT)
    bert(folder)
    code = (
        "from transformers import BertConfig, BertModel\n"
        "BertModel(BertConfig.from_pretrained('bert')).save_pretrained('trained')"
    )
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True)
    done = cli("run", folder, "--until", "parity")
    assert done.code == 0, done.text
    came = facts(record_of(folder), "source")["origin"]
    assert came["what"] == "transformers AutoModel, weights trained"
    assert set(came["files"]) == {"config.json", "model.safetensors"}
    assert not any(
        "random" in issue["symptom"] for item in record_of(folder)["results"] for issue in item["issues"]
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("BertModel", "BretModel", "transformers has no 'BretModel'"),
        ("BertModel", "BertTokenizer", "BertTokenizer"),
        ("num_hidden_layers: 1", "hidden_layers: 1", "BertConfig has no 'hidden_layers'"),
    ],
)
def test_transformers_errors(old: str, new: str, words: str, toy: Toy) -> None:
    folder = toy((old, new), recipe=BERT)
    bert(folder)
    message = fails(folder, "source")[1]
    assert words in message
    assert "recipe.yaml:3:" in message


def test_files_of_the_same_name_are_all_digested(tmp_path: Path) -> None:
    from engine import origin

    for index, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(str(index))
    found: dict[str, str] = {}
    origin._add(found, tmp_path / "a", "model")
    origin._add(found, tmp_path / "b" / "config.json", "model")
    assert set(found) == {"config.json", "b/config.json"}


def installed(name: str) -> bool:
    from importlib import metadata

    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


@pytest.mark.parametrize("library", ["torchvision", "timm"])
def test_a_library_that_is_not_there(library: str, toy: Toy) -> None:
    if installed(library):
        pytest.skip(f"{library} is installed")
    folder = toy((OLD, f"model: {{{library}: {{name: resnet18}}}}"))
    failure, message = fails(folder, "source")
    assert failure.usage
    assert f"{library} is not installed" in message
    assert f"pip install {library}" in message


@pytest.mark.parametrize("library", ["torchvision", "timm"])
def test_a_library_that_is_there(library: str, toy: Toy, cli: Run) -> None:
    if not installed(library):
        pytest.skip(f"{library} is not installed")
    folder = toy(
        (
            OLD,
            f"model: {{{library}: {{name: resnet18, arguments: {{num_classes: 4}}}}, weights: {{path: w.pt}}}}",
        ),
        ("x: {dtype: float32, shape: [batch, 8]}", "x: {dtype: float32, shape: [batch, 3, 32, 32]}"),
        ("max_abs: 1.0e-5", "max_abs: 1.0e-4"),
    )
    maker = {"torchvision": "import torchvision as t; m = t.models.resnet18(num_classes=4)",
             "timm": "import timm; m = timm.create_model('resnet18', num_classes=4)"}[library]  # fmt: skip
    code = f"import torch; torch.manual_seed(0); {maker}; torch.save(m.state_dict(), 'w.pt')"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True)
    done = cli("run", folder, "--until", "parity")
    assert done.code == 0, done.text


def test_a_model_in_the_base_recipe_runs_from_the_variant(toy: Toy, cli: Run, tmp_path: Path) -> None:
    toy()
    variant = tmp_path / "variant"
    variant.mkdir()
    (variant / "recipe.yaml").write_text("extends: ../toy\nname: variant\nprecision: {base: fp32}\n")
    done = cli("run", variant, "--until", "parity")
    assert done.code == 0, done.text
    assert not (tmp_path / "toy" / "port").exists()
    assert record_of(variant)["plan"]["model"]["file"] == str((tmp_path / "toy" / "model.py").resolve())


def test_a_values_function_runs_in_the_source_step_only(toy: Toy, cli: Run) -> None:
    folder = toy(("[batch, 8]}", "[batch, 8], values: {python: values.py:make}}"))
    (folder / "values.py").write_text(
        "import os\nfrom pathlib import Path\nlog = Path(__file__).with_name('calls')\n"
        "def make(name, shape, dtype, rng):\n"
        "    with log.open('a') as stream:\n        stream.write(f'{os.getpid()}\\n')\n"
        "    return rng.uniform(-1, 1, shape).astype(dtype)\n"
    )
    for command in ("check", "plan", "show"):
        assert cli(command, folder).code == 0
    assert not (folder / "calls").exists()
    assert cli("run", folder, "--until", "export").code == 0
    record = record_of(folder)
    calls = (folder / "calls").read_text().split()
    assert len(set(calls)) == 1
    assert len(calls) == 2 * len(record["plan"]["shapes"])
