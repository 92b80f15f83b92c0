"""Graph files: weights by reference, nothing appended, nothing half-written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from engine.errors import StepError
from engine.graph import external, files

TEXT = """
<ir_version: 10, opset_import: ["": 18]>
net (float[n, 64] x) => (float[n, 64] y) { t = MatMul (x, w) y = MatMul (t, v) }
"""


def model() -> ir.Model:
    proto = onnx.parser.parse_model(TEXT)
    rng = np.random.default_rng(0)
    for name in ("w", "v"):
        proto.graph.initializer.append(
            onnx.numpy_helper.from_array(rng.normal(size=(64, 64)).astype(np.float32), name)
        )
    return ir.from_proto(proto)


def test_weights_are_beside_and_read_back(tmp_path: Path) -> None:
    files.save(model(), tmp_path / "a.onnx", "a.weights")
    onnx.checker.check_model(tmp_path / "a.onnx", full_check=True)
    assert external.check(tmp_path / "a.onnx") == 2
    loaded = onnx.load(tmp_path / "a.onnx")
    assert np.array_equal(
        onnx.numpy_helper.to_array(loaded.graph.initializer[0]),
        model().graph.initializers["w"].const_value.numpy(),
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.onnx", "a.weights"]


def test_saving_again_does_not_grow_the_file(tmp_path: Path) -> None:
    for _ in range(3):
        files.save(model(), tmp_path / "a.onnx", "a.weights")
    assert (tmp_path / "a.weights").stat().st_size < 2 * 64 * 64 * 4 + 8192


def test_a_second_graph_shares_the_weights(tmp_path: Path) -> None:
    files.save(model(), tmp_path / "a.onnx", "a.weights")
    files.save(files.load(tmp_path / "a.onnx"), tmp_path / "b.onnx")
    assert (tmp_path / "b.onnx").stat().st_size < 2000
    (tmp_path / "a.onnx").unlink()
    onnx.checker.check_model(tmp_path / "b.onnx", full_check=True)


def test_new_tensors_go_to_a_file_of_their_own(tmp_path: Path) -> None:
    files.save(model(), tmp_path / "a.onnx", "a.weights")
    changed = files.load(tmp_path / "a.onnx")
    changed.graph.initializers["v"].const_value = ir.tensor(np.ones((64, 64), np.float32), name="v")
    files.save(changed, tmp_path / "b.onnx", extra="b.weights")
    assert (tmp_path / "b.onnx").stat().st_size < 2000
    loaded = {
        item.name: onnx.numpy_helper.to_array(item)
        for item in onnx.load(tmp_path / "b.onnx").graph.initializer
    }
    assert (loaded["v"] == 1).all()
    assert np.array_equal(loaded["w"], model().graph.initializers["w"].const_value.numpy())


@pytest.mark.parametrize(("damage", "words"), [("short", "needs bytes"), ("gone", "not there")])
def test_damaged_weights_are_named_with_their_bytes(tmp_path: Path, damage: str, words: str) -> None:
    files.save(model(), tmp_path / "a.onnx", "a.weights")
    data = tmp_path / "a.weights"
    if damage == "short":
        data.write_bytes(data.read_bytes()[:-100])
    else:
        data.unlink()
    with pytest.raises(StepError, match=words) as caught:
        external.check(tmp_path / "a.onnx")
    assert "a.weights" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [("offset", "-1", "offset -1"), ("length", "10", "needs 16,384 bytes"), ("location", "../a.weights", "outside"),
     ("location", "/a.weights", "outside"), ("offset", "x", "no number")],
)  # fmt: skip
def test_external_entries_that_lie(tmp_path: Path, key: str, value: str, words: str) -> None:
    files.save(model(), tmp_path / "a.onnx", "a.weights")
    proto = onnx.load(tmp_path / "a.onnx", load_external_data=False)
    entry = next(item for item in proto.graph.initializer[0].external_data if item.key == key)
    entry.value = value
    (tmp_path / "a.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(StepError, match=words):
        external.check(tmp_path / "a.onnx")


def test_a_file_that_is_no_onnx(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"\xff" * 64)
    with pytest.raises(StepError, match="not an ONNX file"):
        external.check(tmp_path / "a.onnx")
