"""ONNX Runtime as a judge: no silent fallback, no optimisation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from engine import runtime
from engine.errors import StepError

TEXT = """
<ir_version: 8, opset_import: ["": 17]>
double (float[n, 4] x) => (float[n, 4] y) { y = Add (x, x) }
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    return path


def test_runs_on_what_was_asked(model: Path) -> None:
    opened = runtime.session(model)
    assert opened.get_providers() == ["CPUExecutionProvider"]
    got = runtime.run(opened, {"x": np.ones((2, 4), np.float32), "other": np.zeros(1)})
    assert got["y"].tolist() == np.full((2, 4), 2.0).tolist()


@pytest.mark.parametrize("provider", ["TensorrtExecutionProvider", "CUDAExecutionProvider"])
def test_a_provider_that_is_not_there_is_an_error(model: Path, provider: str) -> None:
    with pytest.raises(StepError, match=f"asked ONNX Runtime for {provider}"):
        runtime.session(model, (provider, "CPUExecutionProvider"))


def test_a_session_that_fell_back_is_an_error(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    real = onnxruntime.get_available_providers()
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", *real])
    warned = pytest.warns(UserWarning, match="CUDAExecutionProvider")
    with pytest.raises(StepError, match="got CPUExecutionProvider"), warned:
        runtime.session(model, ("CUDAExecutionProvider", "CPUExecutionProvider"))


def test_a_file_that_is_no_graph(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"not onnx")
    with pytest.raises(StepError, match=r"cannot load bad\.onnx"):
        runtime.session(tmp_path / "bad.onnx")


def test_wrong_input_shape(model: Path) -> None:
    with pytest.raises(StepError, match="failed while running"):
        runtime.run(runtime.session(model), {"x": np.ones((2, 5), np.float32)})
