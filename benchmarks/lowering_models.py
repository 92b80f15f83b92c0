"""The three models of ``benchmarks/lowering.py``, each an ONNX file with what to feed it (``feeds.npz``).

The decoder and the residual net are written node by node, because exporting the decoder alone would take a minute and
five gigabytes. Their weights are drawn at a scale that keeps the activations of a trained net's size.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent
OPSET, IR_VERSION = 18, 10
SEED = 6
_BLOCK = 1 << 22  # values drawn at a time


@dataclass(frozen=True)
class Decoder:
    """The shape of TinyLlama-1.1B unless told otherwise."""

    layers: int = 22
    width: int = 2048
    inner: int = 5632
    heads: int = 32
    groups: int = 4
    words: int = 32000


class Writer:
    """Builds a graph and writes its weights to the file beside it as they come; none is kept in memory."""

    def __init__(self, path: Path) -> None:
        self._path, self._draws = path, np.random.default_rng(SEED)
        self._data = path.with_suffix(".weights").open("wb")
        self.nodes: list[onnx.NodeProto] = []
        self._tensors: list[onnx.TensorProto] = []
        self.parameters = 0

    def weight(self, name: str, shape: tuple[int, ...], scale: float) -> str:
        size = int(np.prod(shape))
        tensor = TensorProto(name=name, dims=shape, data_type=TensorProto.FLOAT)
        tensor.data_location = TensorProto.EXTERNAL
        place = {"location": self._path.with_suffix(".weights").name, "offset": str(self._data.tell())}
        for key, text in (place | {"length": str(4 * size)}).items():
            tensor.external_data.add(key=key, value=text)
        for start in range(0, size, _BLOCK):
            block = self._draws.standard_normal(min(_BLOCK, size - start), np.float32)
            self._data.write((block * np.float32(scale)).tobytes())
        self._tensors.append(tensor)
        self.parameters += size
        return name

    def constant(self, name: str, array: np.ndarray) -> str:
        self._tensors.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, *inputs: str, name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"node_{name}", **attributes))
        return name

    def save(self, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]) -> None:
        self._data.close()
        graph = helper.make_graph(self.nodes, self._path.stem, inputs, outputs, self._tensors)
        opsets = [helper.make_opsetid("", OPSET)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION), self._path)


def decoder(path: Path, config: Decoder, batch: int = 1, length: int = 16) -> None:
    """A Llama-style decoder: RMS norms, rotary positions, grouped queries, a causal mask of FP32's least value."""
    net = Writer(path)
    head = config.width // config.heads
    for name, values in {
        "zero": 0, "one": 1, "last": -1, "half": head // 2, "far": np.iinfo(np.int64).max, "heads": config.heads,
        "head": head, "groups": config.groups, "width": config.width, "two_index": 2,
    }.items():  # fmt: skip
        net.constant(name, np.array([values], np.int64))
    for name, number in {"two": 2.0, "epsilon": 1e-5, "masked": np.finfo(np.float32).min, "open": 0.0,
                         "scale": head**-0.5}.items():  # fmt: skip
        net.constant(name, np.array(number, np.float32))
    for name, index in (("i0", 0), ("i1", 1)):
        net.constant(name, np.array(index, np.int64))
    net.constant("repeats", np.array([1, 1, config.heads // config.groups, 1, 1], np.int64))
    net.constant("split_heads", np.array([0, config.heads, -1, head], np.int64))
    net.constant("axes01", np.array([0, 1], np.int64))
    frequencies = 10000.0 ** (-np.arange(0, head, 2, dtype=np.float32) / head)
    net.constant("frequencies", frequencies[None, :].astype(np.float32))
    for name, parts in {
        "split_q": ("zero", "zero", "heads", "head"), "split_kv": ("zero", "zero", "groups", "head"),
        "joined": ("zero", "zero", "width"),
    }.items():  # fmt: skip
        net.node("Concat", *parts, name=name, axis=0)
    _positions(net)
    hidden = net.node(
        "Gather", net.weight("embed", (config.words, config.width), 0.02), "input_ids", name="embedded"
    )
    for index in range(config.layers):
        hidden = _layer(net, f"layers.{index}", hidden, config)
    hidden = _norm(net, "norm", hidden, config)
    net.node("MatMul", hidden, net.weight("head_weight", (config.width, config.words), 0.02), name="logits")
    net.save(
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "seq"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "seq", config.words])],
    )
    draws = np.random.default_rng(SEED)
    np.savez(
        path.with_name("feeds.npz"), input_ids=draws.integers(0, config.words, (batch, length), np.int64)
    )


def _positions(net: Writer) -> None:
    net.node("Shape", "input_ids", name="shape")
    net.node("Gather", "shape", "i1", name="length")
    net.node("Range", "i0", "length", "i1", name="places")
    net.node("Unsqueeze", "places", "one", name="rows")
    net.node("Unsqueeze", "places", "zero", name="columns")
    net.node("Greater", "columns", "rows", name="later")
    net.node("Where", "later", "masked", "open", name="mask")
    net.node("Cast", "rows", name="angles_in", to=TensorProto.FLOAT)
    net.node("Mul", "angles_in", "frequencies", name="angles_half")
    net.node("Concat", "angles_half", "angles_half", name="angles", axis=-1)
    for op, name in (("Cos", "cosine"), ("Sin", "sine")):
        net.node(op, "angles", name=f"{name}_plain")
        net.node("Unsqueeze", f"{name}_plain", "axes01", name=name)


def _norm(net: Writer, at: str, x: str, config: Decoder) -> str:
    square = net.node("Pow", x, "two", name=f"{at}.square")
    mean = net.node("ReduceMean", square, "last", name=f"{at}.mean", keepdims=1)
    root = net.node("Sqrt", net.node("Add", mean, "epsilon", name=f"{at}.safe"), name=f"{at}.root")
    scaled = net.node("Mul", x, net.node("Reciprocal", root, name=f"{at}.rsqrt"), name=f"{at}.scaled")
    gain = net.constant(f"{at}.weight", np.ones(config.width, np.float32))
    return net.node("Mul", gain, scaled, name=f"{at}.out")


def _turned(net: Writer, at: str, x: str) -> str:
    low = net.node("Slice", x, "zero", "half", "last", name=f"{at}.low")
    high = net.node("Slice", x, "half", "far", "last", name=f"{at}.high")
    crossed = net.node(
        "Concat", net.node("Neg", high, name=f"{at}.negative"), low, name=f"{at}.crossed", axis=-1
    )
    one = net.node("Mul", x, "cosine", name=f"{at}.cosine")
    other = net.node("Mul", crossed, "sine", name=f"{at}.sine")
    return net.node("Add", one, other, name=f"{at}.turned")


def _layer(net: Writer, at: str, x: str, config: Decoder) -> str:
    width, inner = config.width, config.inner
    narrow = width // config.heads * config.groups
    normed = _norm(net, f"{at}.norm1", x, config)

    def product(name: str, value: str, shape: tuple[int, int]) -> str:
        weight = net.weight(f"{at}.{name}.weight", shape, shape[0] ** -0.5)
        return net.node("MatMul", value, weight, name=f"{at}.{name}")

    parts = {}
    for name, columns, split in (
        ("q", width, "split_q"),
        ("k", narrow, "split_kv"),
        ("v", narrow, "split_kv"),
    ):
        flat = net.node("Reshape", product(name, normed, (width, columns)), split, name=f"{at}.{name}.heads")
        parts[name] = net.node("Transpose", flat, name=f"{at}.{name}.turn", perm=[0, 2, 1, 3])
    query, key = (_turned(net, f"{at}.{name}", parts[name]) for name in ("q", "k"))
    key, value = (_repeated(net, f"{at}.{name}", item) for name, item in (("k", key), ("v", parts["v"])))
    key = net.node("Transpose", key, name=f"{at}.k.last", perm=[0, 1, 3, 2])
    scores = net.node("Mul", net.node("MatMul", query, key, name=f"{at}.dots"), "scale", name=f"{at}.scores")
    odds = net.node(
        "Softmax", net.node("Add", scores, "mask", name=f"{at}.causal"), name=f"{at}.odds", axis=-1
    )
    mixed = net.node("Transpose", net.node("MatMul", odds, value, name=f"{at}.mixed"), name=f"{at}.back",
                     perm=[0, 2, 1, 3])  # fmt: skip
    joined = net.node("Reshape", mixed, "joined", name=f"{at}.joined")
    x = net.node("Add", x, product("o", joined, (width, width)), name=f"{at}.attended")
    normed = _norm(net, f"{at}.norm2", x, config)
    gate = product("gate", normed, (width, inner))
    active = net.node("Mul", gate, net.node("Sigmoid", gate, name=f"{at}.sigmoid"), name=f"{at}.silu")
    gated = net.node("Mul", active, product("up", normed, (width, inner)), name=f"{at}.gated")
    return net.node("Add", x, product("down", gated, (inner, width)), name=f"{at}.out")


def _repeated(net: Writer, at: str, x: str) -> str:
    """Every group's keys or values once for each of its heads."""
    apart = net.node("Unsqueeze", x, "two_index", name=f"{at}.apart")
    spread = net.node("Expand", apart, "repeats", name=f"{at}.spread")
    return net.node("Reshape", spread, "split_heads", name=f"{at}.repeated")


def residual(path: Path) -> None:
    """The shape of ResNet-50, its batch norms folded into the convolutions."""
    net, draws = Writer(path), np.random.default_rng(SEED)
    x = _convolution(net, "stem", "image", (64, 3, 7), 2, 1.0)
    x = net.node("MaxPool", x, name="pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, (count, inner) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(count):
            at, stride = f"stage{stage}.{block}", 2 if stage and not block else 1
            y = _convolution(net, f"{at}.1", x, (inner, channels, 1), 1, 1.0)
            y = _convolution(net, f"{at}.2", y, (inner, inner, 3), stride, 1.0)
            y = _convolution(net, f"{at}.3", y, (4 * inner, inner, 1), 1, 0.3, active=False)
            if not block:
                x = _convolution(net, f"{at}.0", x, (4 * inner, channels, 1), stride, 0.7, active=False)
            x = net.node("Relu", net.node("Add", y, x, name=f"{at}.sum"), name=f"{at}.out")
            channels = 4 * inner
    x = net.node("Flatten", net.node("GlobalAveragePool", x, name="mean"), name="features")
    net.node("Gemm", x, net.weight("fc.weight", (1000, channels), 0.02),
             net.weight("fc.bias", (1000,), 0.02), name="classes", transB=1)  # fmt: skip
    net.save(
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 224, 224])],
        [helper.make_tensor_value_info("classes", TensorProto.FLOAT, ["batch", 1000])],
    )
    np.savez(path.with_name("feeds.npz"), image=draws.standard_normal((2, 3, 224, 224), np.float32))


def _convolution(
    net: Writer, at: str, x: str, shape: tuple[int, int, int], stride: int, gain: float, active: bool = True
) -> str:
    made, read, size = shape
    scale = gain * float(np.sqrt(2 / (read * size * size)))
    weight = net.weight(f"{at}.weight", (made, read, size, size), scale)
    bias = net.weight(f"{at}.bias", (made,), 0.05)
    pads = [size // 2] * 4
    y = net.node("Conv", x, weight, bias, name=f"{at}.conv", kernel_shape=[size, size],
                 strides=[stride, stride], pads=pads)  # fmt: skip
    return net.node("Relu", y, name=f"{at}.relu") if active else y


def minilm(path: Path) -> None:
    """MiniLM-L6 as the shipped recipe has it before it is lowered: exported, simplified and rewritten."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "engine.cli",
            "run", "--no-store",
            "recipes/minilm-l6",
            "--until",
            "rewrite",
            "--out",
            folder,
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"MiniLM could not be exported:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        model = onnx.load(Path(folder) / "onnx" / "rewrite.onnx")
        onnx.save(model, path, save_as_external_data=True, location=path.with_suffix(".weights").name)
    draws = np.random.default_rng(SEED)
    mask = np.ones((8, 64), np.int64)
    mask[1::2, 40:] = 0
    np.savez(path.with_name("feeds.npz"), input_ids=draws.integers(0, 30522, (8, 64)), attention_mask=mask)
