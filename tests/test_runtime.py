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


CUT = """
<ir_version: 8, opset_import: ["": 18]>
g (%s) => (int32[2, 3%s] y) { y = %s }
"""
PRODUCTS = {
    "weights": ("uint8[2, 64] a, int8[64, 3] b", "", "MatMulInteger (a, b)"),
    "weights and zero points": ("uint8[2, 64] a, int8[64, 3] b, uint8 p, int8[3] q", "", "MatMulInteger (a, b, p, q)"),
    "convolution": ("int8[2, 64, 4] a, uint8[3, 64, 3] b, int8 p", ", 4", "ConvInteger <pads = [1, 1]> (a, b, p)"),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_whole_numbers_are_not_cut(tmp_path: Path, name: str) -> None:
    """ONNX Runtime's fast kernels are wrong for the largest numbers on CPUs without VNNI."""
    from onnx.reference import ReferenceEvaluator

    proto = onnx.parser.parse_model(CUT % PRODUCTS[name])
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    feeds = {}
    for value in proto.graph.input:
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [size.dim_value for size in value.type.tensor_type.shape.dim]
        feeds[value.name] = np.full(shape, 3 if value.name in "pq" else np.iinfo(kind).max, kind)
    opened = runtime.session(path)
    assert [item.name for item in opened.get_inputs()] == list(feeds)
    wanted = ReferenceEvaluator(proto).run(None, feeds)[0]
    np.testing.assert_array_equal(runtime.run(opened, feeds)["y"], wanted)


def test_weights_of_products_may_lie_in_a_file_of_their_own(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(CUT % ("uint8[2, 64] a", "", "MatMulInteger (a, b)"))
    weights = np.full((64, 3), 127, np.int8)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "b"))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    got = runtime.run(runtime.session(path), {"a": np.full((2, 64), 255, np.uint8)})["y"]
    assert got.tolist() == np.full((2, 3), 255 * 127 * 64).tolist()
