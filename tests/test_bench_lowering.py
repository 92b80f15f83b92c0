"""The parts of ``make bench-lowering`` on a decoder that is small: models, conversion and the judge of every result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.conftest import ROOT

MAKE = """
import sys
from pathlib import Path
import lowering_models
lowering_models.decoder(Path(sys.argv[1]), lowering_models.Decoder(2, 64, 96, 4, 2, 50))
"""


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(ROOT), str(ROOT / "benchmarks")))
    return subprocess.run(
        [sys.executable, *arguments], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lowering")
    for arguments in (
        ["-c", MAKE, str(folder / "model.onnx")],
        [
            "benchmarks/lowering_convert.py",
            "portwright",
            str(folder / "model.onnx"),
            str(folder / "low.onnx"),
        ],
    ):
        arguments[0] = arguments[0] if arguments[0] == "-c" else str(ROOT / arguments[0])
        done = script(*arguments)
        assert done.returncode == 0, done.stderr
    return folder / "low.onnx"


def judged(result: Path) -> dict[str, float | str]:
    done = script(
        str(ROOT / "benchmarks" / "lowering_judge.py"), str(result.with_name("model.onnx")), str(result)
    )
    assert done.returncode == 0, done.stderr
    verdict: dict[str, float | str] = json.loads(done.stdout)
    return verdict


def test_a_good_result_is_valid_and_a_little_off(result: Path) -> None:
    found = judged(result)
    assert found["checker"] == found["loads"] == ""
    assert 0 < float(found["error"]) < float(found["largest"]) < 0.01


def test_a_spoilt_result_is_seen(result: Path) -> None:
    model = onnx.load(result)
    weight = next(item for item in model.graph.initializer if item.name == "head_weight")
    weight.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(weight), weight.name))
    onnx.save(model, result.with_name("spoilt.onnx"))
    assert float(judged(result.with_name("spoilt.onnx"))["error"]) > 0.1
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).astype(np.float32), weight.name))
    onnx.save(model, result.with_name("mixed.onnx"))
    found = judged(result.with_name("mixed.onnx"))
    assert found["checker"]
    assert found["loads"]


def test_an_unknown_model_is_refused_before_anything_is_installed() -> None:
    done = script(str(ROOT / "benchmarks" / "lowering.py"), "--only", "resnet,vgg")
    assert done.returncode == 2
    assert "no model vgg; there are minilm, resnet, decoder" in done.stderr
