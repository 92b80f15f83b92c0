"""Valid models that ONNX's own shape inference takes for invalid, because a node leaves an attribute out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from engine.errors import StepError
from engine.graph import files, sound
from engine.rules.evaluate import Evaluator

STFT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,128,1] x) => (float[1,15,9,2] y) <int64 step = {8}, int64 length = {16}> { y = STFT (x, step, , length) }"""
MEAN = """<ir_version: 8, opset_import: ["" : 13]>
g (float[2,3,4,4] x) => (float[2,3,4,4] y) { y = MeanVarianceNormalization (x) }"""


@pytest.mark.parametrize("text", [STFT, MEAN])
def test_a_default_that_is_left_out_makes_no_model_unsound(text: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    with pytest.raises(onnx.shape_inference.InferenceError):
        onnx.checker.check_model(
            str(path), full_check=True
        )  # once it passes, engine/graph/defaults.py may go
    sound.require(path, taken=True)
    model = files.load(path)
    files.save(model, tmp_path / "again.onnx")
    onnx.checker.check_model(str(tmp_path / "again.onnx"), full_check=True)
    (value,) = model.graph.inputs
    shape = [int(size) for size in value.shape or ()]  # type: ignore[arg-type]
    feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    original = ReferenceEvaluator(onnx.parser.parse_model(text)).run(None, feeds)[0]
    np.testing.assert_allclose(Evaluator(model, reference=True)(feeds)["y"], original, rtol=1e-5, atol=1e-5)


def test_a_wrong_shape_beside_it_is_still_found(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(STFT.replace("1,15,9,2", "1,15,8,2")), path)
    with pytest.raises(StepError, match=r"net\.onnx is not valid ONNX"):
        sound.require(path, taken=True)
