"""Shared by the tests of rewrite rules: models from ONNX text, rules from YAML text, running models."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir

from engine.rules.evaluate import Evaluator
from engine.rules.language import Rule, load_rule

HEADER = '<ir_version: 10, opset_import: ["" : {opset}]>\n'


def model(text: str, opset: int = 18) -> ir.Model:
    """A checked model with inferred shapes; node names are node_<Op>_<index>, as the exporter's are."""
    text = textwrap.dedent(text).strip()
    body = re.sub(r"^#.*\n", "", text, flags=re.M)
    proto = onnx.parser.parse_model(body if body.startswith("<") else HEADER.format(opset=opset) + body)
    _name(proto.graph, "node")
    onnx.checker.check_model(proto, full_check=True)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto, check_type=True, data_prop=True))


def _name(graph: onnx.GraphProto, stem: str) -> None:
    for index, node in enumerate(graph.node):
        node.name = f"{stem}_{node.op_type}_{index}"
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _name(attribute.g, attribute.name)


def check(changed: ir.Model) -> None:
    """The full checker; also that names are unique, which it does not look at."""
    onnx.checker.check_model(ir.to_proto(changed), full_check=True)
    names = [node.name for graph in changed.graphs() for node in graph]
    assert len(names) == len(set(names))


def run(changed: ir.Model, feeds: dict[str, Any]) -> dict[str, Any]:
    return Evaluator(changed)(feeds)


def ops(changed: ir.Model) -> list[str]:
    return [node.op_type for node in changed.graph]


def rule_file(folder: Path, text: str, name: str = "some-rule") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return path


PROOF = """\
proof:
  inputs:
{inputs}
  equal: {{max_abs: 0}}
needed_by: {{tensorrt-rtx: never}}
"""


def rule(folder: Path, match: str, replace: str, where: str = "{}", inputs: str = "", **more: str) -> Rule:
    """A rule from its two texts; proof inputs are float32 [2, 3] unless given."""
    names = re.match(r"\s*\(([^)]*)\)", match)
    assert names is not None
    given = inputs or "\n".join(
        f"    {name.strip()}: {{dtype: float32, shape: [2, 3], values: [normal, edges]}}"
        for name in names[1].split(",")
    )
    extra = "".join(f"{key}: {value}\n" for key, value in more.items() if key != "attributes")
    proof = PROOF.format(inputs=given)
    if "attributes" in more:
        proof = proof.replace("proof:\n", f"proof:\n  attributes: {more['attributes']}\n")
    text = f"rule: some-rule\nclass: op\nwhy: a test\n{extra}match: '{match}'\nreplace: '{replace}'\n"
    text += f"where: {where}\n" if where != "{}" else ""
    return load_rule(rule_file(folder, text + proof))


def random_feeds(changed: ir.Model, sizes: dict[str, int], seed: int = 0) -> dict[str, Any]:
    """Inputs of a fixture: whole numbers for integers, coin flips for bools, normal numbers for floats."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, Any] = {}
    for value in changed.graph.inputs:
        assert value.shape is not None
        assert value.dtype is not None
        dims = [d if isinstance(d, int) else sizes[str(d.value)] for d in value.shape]
        kind = value.dtype.numpy()
        numbers = rng.normal(size=dims) if kind.kind == "f" else rng.integers(0, 2, size=dims)
        feeds[value.name or ""] = np.asarray(numbers).astype(kind)
    return feeds
