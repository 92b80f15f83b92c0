"""What a toolchain can do, by its own word: asked once, when it is added."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import compatibility, refusals, toolchain
from engine.errors import StepError
from engine.refusals import Question
from engine.toolchain import Toolchain

if TYPE_CHECKING:
    import onnx

_SECONDS = 120  # for one small engine

# Name of a type -> ONNX text of the smallest graph that computes in it; quantised ones in pairs around a float.
_GRAPHS = {
    "fp32": ("float[2,4] x", "float[2,4] y", "y = Relu (x)", 18),
    "fp16": ("float16[2,4] x", "float16[2,4] y", "y = Relu (x)", 18),
    "bf16": ("bfloat16[2,4] x", "bfloat16[2,4] y", "y = Relu (x)", 18),
    "int32": ("int32[2,4] x", "int32[2,4] y", "y = Add (x, x)", 18),
    "int64": ("int64[2,4] x", "int64[2,4] y", "y = Add (x, x)", 18),
    "int8": ("int8[2,4] x", "int8[2,4] y", "y = Add (x, x)", 18),
    "uint8": ("uint8[2,4] x", "float[2,4] y", "y = Cast <to = 1> (x)", 18),
    "bool": ("bool[2,4] x", "bool[2,4] y", "y = Not (x)", 18),
}
# Name -> ONNX number of the quantised type and opset. A weight in that type, widened to FP16 before a MatMul.
_QUANTISED = {"int8 quantised": (3, 19), "fp8 quantised": (17, 19), "int4 quantised": (22, 21)}


def ask(tool: Toolchain) -> dict[str, Any]:
    """Everything that ``toolchain show`` prints. Raises StepError when it does not start."""
    facts = toolchain.probe(tool, operators())
    if not facts["ok"]:
        texts = "; ".join(error["text"] for error in facts["errors"])
        raise StepError(f"toolchain {tool.spec} does not start: {texts}")
    version = facts["version"]
    asked = Toolchain(tool.spec, tool.python, tool.module, version)
    return {
        "spec": tool.spec,
        "python": str(tool.python),
        "module": tool.module,
        "version": version,
        "parser_version": facts["parser_version"],
        "targets": facts["targets"],
        "devices": facts["devices"],
        "no_device": facts["no_device"],
        "opset": opset(tool.module, version),
        "types_declared": facts["data_types"],
        "types": types(asked, facts["targets"]),
        "operators": facts["operators"],
    }


def opset(module: str, version: str) -> int | None:
    try:
        return compatibility.opset_limit(module, version)
    except ValueError:
        return None


def operators() -> Sequence[str]:
    """Every operator of the ONNX standard that is not deprecated."""
    import onnx.defs

    return sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == "" and not
                   schema.deprecated})  # fmt: skip


def types(tool: Toolchain, targets: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """Target -> type -> ``builds`` or the refusal. ``any`` stands for a build that names no target."""
    import onnx

    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="portwright-") as folder:
        files = {}
        for number, (name, model) in enumerate(_models().items()):
            files[name] = Path(folder) / f"{number}.onnx"
            onnx.save(model, files[name])
        for target in (None, *targets):
            questions = [Question(path) for path in files.values()]
            answers = refusals.ask(tool, questions, target=target, seconds=_SECONDS)
            found[target or "any"] = {
                name: "builds" if answer.ok else _reason(answer)
                for name, answer in zip(files, answers, strict=True)
            }
    return found


def _reason(answer: refusals.Answer) -> str:
    lines = [line for refusal in answer.refusals for line in refusal.text.split("\n") if line.strip()]
    return lines[0].strip()[:200] if lines else f"refused at {answer.stage} without a word"


def _models() -> dict[str, onnx.ModelProto]:
    import onnx.parser

    text = '<ir_version: 10, opset_import: ["" : {opset}]> g ({x}) => ({y}) {{ {body} }}'
    made = {
        name: onnx.parser.parse_model(text.format(x=x, y=y, body=body, opset=version))
        for name, (x, y, body, version) in _GRAPHS.items()
    }
    return made | {name: _quantised(*how) for name, how in _QUANTISED.items()}


def _quantised(kind: int, opset: int) -> onnx.ModelProto:
    from onnx import TensorProto, helper

    packed = bytes(8 if kind == TensorProto.INT4 else 16)
    weight = helper.make_tensor("w", kind, [4, 4], packed, raw=True)
    scale = helper.make_tensor("s", TensorProto.FLOAT16, [4], [0.5] * 4)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["wide"], axis=1),
        helper.make_node("MatMul", ["x", "wide"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [2, 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [weight, scale])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
