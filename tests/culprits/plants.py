"""The planted models: recipes written into a folder, and what a diagnosis must name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.mutants import models

NETS = Path(__file__).with_name("nets.py")
# Operators of a fault that must stay wide, in the order of its nodes.
OPS: Mapping[str, tuple[str, ...]] = {
    "swell": ("Mul", "Div"), "offset": ("Add", "Sub"), "offset_bf16": ("Add", "Sub"),
    "exponential": ("Exp", "Log"), "faint": ("Mul", "Sqrt"), "total": ("ReduceSum", "Div"),
    "shifted": ("Add", "Softmax"), "shifted_bf16": ("Add", "Softmax"), "wave": ("Add", "Sin"),
    "wave_bf16": ("Add",),  # ONNX has no Sin of bfloat16 before opset 22: it is wide already
    "energy": ("Pow", "ReduceMean"), "loud": ("Mul",), "raw": ("Log",),
    "outlier": ("linear",), "lopsided": ("linear",), "hidden": ("linear",), "outlier_32": ("linear",),
    "spike": ("conv",), "spike_16": ("conv",), "spike_32": ("conv",),
}  # fmt: skip
# Faults that INT8 alone brings out stand in a module of their own, whose one product must not be quantised.
INNER = {"linear": ("Gemm", "MatMul"), "conv": ("Conv",)}


@dataclass(frozen=True)
class Plant:
    """``faults`` maps the number of the block that each stands behind (-1: before the first) to its names."""

    name: str
    kind: str
    count: int
    faults: Mapping[int, tuple[str, ...]]
    base: str = "fp16"
    limit: float = 0.02
    values: str = "{normal: [0.0, 1.0]}"
    accept_onnx: float = 1e-3

    def wanted(self) -> frozenset[tuple[str, str]]:
        """Module and operator of each node that must be named."""
        found, place = set(), 0
        for index in range(-1, self.count):
            place += index >= 0
            for name in self.faults.get(index, ()):
                found |= {_wanted(f"parts.{place}", op) for op in OPS[name]}
                place += 1
        return frozenset(found)


def _wanted(path: str, op: str) -> tuple[str, str]:
    return (f"{path}.{op}", "product") if op in INNER else (path, op)


SYNTHETIC: tuple[Plant, ...] = (
    Plant("dense-swell", "dense", 6, {2: ("swell",)}),
    Plant("dense-swell-first", "dense", 6, {-1: ("swell",)}),
    Plant("dense-offset", "dense", 8, {3: ("offset",)}),
    Plant("dense-exponential", "dense", 6, {1: ("exponential",)}),
    Plant("dense-faint", "dense", 6, {4: ("faint",)}),
    Plant("dense-total", "dense", 5, {2: ("total",)}),
    Plant("dense-shifted", "dense", 5, {2: ("shifted",)}),
    Plant("dense-wave", "dense", 7, {3: ("wave",)}),
    Plant("dense-energy", "dense", 5, {2: ("energy",)}),
    Plant("dense-loud", "dense", 6, {5: ("loud",)}, limit=500.0, accept_onnx=1.0),
    Plant("dense-raw", "dense", 6, {-1: ("raw",)}, values="{uniform: [100000.0, 900000.0]}"),
    Plant("dense-two", "dense", 8, {1: ("offset",), 5: ("swell",)}),
    Plant("residual-swell", "residual", 4, {1: ("swell",)}),
    Plant("residual-offset", "residual", 4, {2: ("offset",)}),
    Plant("residual-two", "residual", 5, {0: ("exponential",), 3: ("wave",)}),
    Plant("residual-faint", "residual", 4, {2: ("faint",)}),
    Plant("conv-swell", "conv", 5, {2: ("swell",)}),
    Plant("conv-offset", "conv", 5, {1: ("offset",)}),
    Plant("conv-two", "conv", 6, {1: ("total",), 4: ("wave",)}),
    Plant("attention-energy", "attention", 2, {0: ("energy",)}),
    Plant("attention-offset", "attention", 3, {1: ("offset",)}),
    Plant("dense-offset-bf16", "dense", 6, {2: ("offset_bf16",)}, base="bf16", limit=0.03),
    Plant("residual-wave-bf16", "residual", 4, {1: ("wave_bf16",)}, base="bf16", limit=0.03),
    Plant("conv-shifted-bf16", "conv", 4, {2: ("shifted_bf16",)}, base="bf16", limit=0.03),
    Plant("dense-outlier-int8", "dense", 6, {2: ("outlier",)}, base="int8", limit=0.02),
    Plant("dense-lopsided-int8", "dense", 6, {3: ("lopsided",)}, base="int8", limit=0.02),
    Plant("dense-two-int8", "dense", 7, {1: ("outlier",), 4: ("lopsided",)}, base="int8", limit=0.01),
    Plant("residual-hidden-int8", "residual", 4, {1: ("hidden",)}, base="int8", limit=0.2),
    Plant("attention-outlier-int8", "attention", 3, {1: ("outlier",)}, base="int8", limit=0.3),
    Plant("conv-spike-int8", "conv", 5, {2: ("spike",)}, base="int8", limit=0.15),
    Plant("dense-both-int8", "dense", 6, {1: ("offset",), 3: ("outlier",)}, base="int8", limit=0.02),
)

_SHAPES = {
    "dense": "[batch, 24]", "residual": "[batch, 24]", "conv": "[batch, 6, 10, 10]", "attention": "[batch, 7, 24]",
}  # fmt: skip


def write(plant: Plant, folder: Path) -> Path:
    """The recipe of ``plant`` and its model file in ``folder``; returns the recipe."""
    folder.mkdir(parents=True, exist_ok=True)
    faults = {index: list(names) for index, names in plant.faults.items()}
    call = f"build({plant.kind!r}, {plant.count}, {faults!r})"
    (folder / "model.py").write_text(f"{NETS.read_text()}\n\ndef load() -> nn.Module:\n    return {call}\n")
    recipe = folder / "recipe.yaml"
    recipe.write_text(
        f"""portwright: 1
name: {plant.name}
about: a model with planted faults

model: {{python: model.py:load}}

axes:
  batch: {{min: 1, opt: 4, max: 9}}

inputs:
  x: {{dtype: float32, shape: {_SHAPES[plant.kind]}, values: {plant.values}}}
outputs: [y]

export: {{opset: {21 if plant.base == "int8" else 18}}}
simplify: none

precision: {{base: {plant.base}}}  # nothing is kept wide yet

build: {{target: sm89}}

accept:
  onnx: {{max_abs: {plant.accept_onnx:.1e}}}
  engine: {{max_abs: {plant.limit:.1e}}}
"""
    )
    return recipe


@dataclass(frozen=True)
class Real:
    """A model of the mutation test with ``fault`` behind its module ``path``."""

    name: str
    model: str
    path: str
    fault: str
    limit: float = 0.02
    base: str = "fp16"

    def wanted(self) -> frozenset[tuple[str, str]]:
        return frozenset(_wanted(f"{self.path}.1", op) for op in OPS[self.fault])


REAL: tuple[Real, ...] = (
    Real("minilm-offset", "minilm", "encoder.layer.3.output.dense", "offset", limit=0.1),
    Real("digits-swell", "digits", "blocks.1", "swell", limit=0.05),
    Real("llama-energy", "llama", "model.layers.0.mlp.down_proj", "energy", limit=0.05),
    Real("vit-faint", "vit", "layers.0.mlp.fc2", "faint", limit=0.05),
    Real("lstm-wave", "lstm", "head", "wave", limit=0.05),
    Real("detector-exponential", "detector", "box", "exponential", limit=0.5),
    Real("digits-spike-int8", "digits", "blocks.1", "spike_32", limit=0.6, base="int8"),
    Real("vit-outlier-int8", "vit", "layers.0.mlp.fc2", "outlier_32", limit=0.3, base="int8"),
)


def write_real(real: Real, folder: Path) -> Path:
    """The recipe of ``real`` in ``folder`` and its model file, which is the model's own with the faults behind."""
    model = models.by_name(real.model)
    recipe = models.write(model, folder, limits=(1e-3, 1e-3))
    if real.base == "int8":
        recipe.write_text(recipe.read_text().replace("opset: 18", "opset: 21"))
    own = folder / ("nets.py" if (folder / "nets.py").exists() else "model.py")
    takes_weights = "weights:" in model.source
    call = "load(weights)" if takes_weights else f"{real.model}()"
    argument = "weights" if takes_weights else ""
    maker = f"def with_fault({argument}):\n    return planted({call}, {real.path!r}, {real.fault!r})"
    (folder / "faulty.py").write_text(
        f"{own.read_text()}\n\n{_without_future(NETS.read_text())}\n\n{maker}\n"
    )
    text = recipe.read_text()
    text = text.replace(f"{own.name}:{'load' if takes_weights else real.model}", "faulty.py:with_fault")
    text = text.replace("precision: {base: fp32}", f"precision:\n  base: {real.base}")
    text = text.replace("engine: {max_abs: 1.0}", f"engine: {{max_abs: {real.limit:.1e}}}")
    recipe.write_text(text)
    return recipe


def _without_future(text: str) -> str:
    return text.replace("from __future__ import annotations\n", "")


__all__ = ["NETS", "OPS", "REAL", "SYNTHETIC", "Plant", "Real", "write", "write_real"]
