"""Modes that the parser takes for others: read back from a real parsed network, and from one that lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest

from engine import modes_proof, toolchain
from engine.errors import StepError
from engine.graph import modes
from engine.process import Limits
from engine.steps import build

TEXT = """
<ir_version: 10, opset_import: ["": 20]>
g (float[2, 3, 8, 8] x, float[2, 4, 4, 2] grid) => (
  float[2, 3, 4, 4] y1, float[2, 3, 4, 4] y2, float[2, 3, 16, 16] y3, float[2, 3, 16, 16] y4, float[2, 3, 5, 5] y5,
  float[2, 3, 5, 5] y6, float[2, 3, 4, 4] y7, float[2, 8, 8] y8, float[2, 3, 1, 1] y9, float y10)
  <float[4] twice = {1, 1, 2, 2}, int64[1] channel = {1}, int64[2] last = {-1, -2}> {
  [linear] y1 = GridSample <padding_mode = "border", align_corners = 1> (x, grid)
  [near] y2 = GridSample <mode = "nearest", padding_mode = "reflection"> (x, grid)
  [smooth] y3 = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, , twice)
  [blocks] y4 = Resize <coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, , twice)
  [counted] y5 = AveragePool <kernel_shape = [2, 2], strides = [2, 2], pads = [1, 1, 1, 1], count_include_pad = 1> (x)
  [mean] y6 = AveragePool <kernel_shape = [2, 2], strides = [2, 2], pads = [1, 1, 1, 1]> (x)
  [most] y7 = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
  [flat] y8 = ReduceMean <keepdims = 0> (x, channel)
  [peak] y9 = ReduceMax (x, last)
  [all] y10 = ReduceSum <keepdims = 0> (x)
}
"""


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What the nodes ask for, and the worker's result for the same file."""
    folder = tmp_path_factory.mktemp("modes")
    onnx.save(onnx.parser.parse_model(TEXT), folder / "m.onnx")
    model = onnx.shape_inference.infer_shapes(onnx.load(folder / "m.onnx"))
    asked = [
        {"node": node.name, "op": node.op_type, "mode": mode}
        for node in ir.from_proto(model).graph
        if (mode := modes.expected(node))
    ]
    request = {"onnx": str(folder / "m.onnx"), "engine": str(folder / "e"), "profiles": [], "target": "sm89"}
    tool = toolchain.resolve("tensorrt-rtx")
    outcome = toolchain.build(tool, request, log=folder / "log", limits=Limits(120))
    assert outcome.kind == "ok", outcome
    assert outcome.result["ok"], outcome.result["errors"]
    return asked, outcome.result


def test_every_mode_is_found_in_the_real_network(
    parsed: tuple[list[dict[str, Any]], dict[str, Any]],
) -> None:
    asked, result = parsed
    proof = modes_proof.prove(asked, result["network"])
    assert proof.wrong == ()
    assert (proof.checked, proof.unseen) == (10, 0)
    assert proof.text == "10 nodes have the asked mode in the parsed network"


@pytest.mark.parametrize(
    ("node", "name", "value"),
    [("linear", "interpolation_mode", "NEAREST"), ("linear", "sample_mode", "FILL"), ("near", "align_corners", True),
     ("smooth", "resize_mode", "NEAREST"), ("smooth", "coordinate_transformation", "HALF_PIXEL"),
     ("blocks", "nearest_rounding", "CEIL"), ("counted", "average_count_excludes_padding", True),
     ("mean", "average_count_excludes_padding", False), ("most", "type", "AVERAGE"), ("flat", "op", "MAX"),
     ("flat", "axes", 4), ("peak", "axes", 8), ("all", "axes", 7), ("peak", "keep_dims", False)],
)  # fmt: skip
def test_a_mode_taken_for_another_is_an_error(
    node: str, name: str, value: Any, parsed: tuple[list[dict[str, Any]], dict[str, Any]]
) -> None:
    """The properties are those that the real network has; one of them is changed."""
    asked, result = parsed
    layers = [dict(layer, properties=dict(layer["properties"])) for layer in result["network"]["layers"]]
    layer = next(layer for layer in layers if layer["name"] == node)
    true = layer["properties"][name]
    assert true != value
    layer["properties"][name] = value
    (wrong,) = modes_proof.prove(asked, {"layers": layers}).wrong
    assert (wrong.node, wrong.name, wrong.asked, wrong.found) == (node, name, true, value)
    with pytest.raises(StepError) as caught:
        build._same_modes(asked, dict(result, network={"layers": layers}))
    assert caught.value.failure.symptom == (
        f"node {node} ({wrong.op}) asks {name} {true}, TensorRT took it for {value} (1 in all)"
    )
    assert caught.value.failure.cause.startswith("the importer of tensorrt_rtx ")


def test_a_node_without_a_layer_of_its_kind_is_said_to_be_unseen() -> None:
    asked = [{"node": "a", "op": "MaxPool", "mode": {"layer": "POOLING", "properties": {"type": "MAX"}}}]
    proof = modes_proof.prove(asked, {"layers": []})
    assert proof.text == "0 nodes have the asked mode in the parsed network; 1 are not visible there"
    assert modes_proof.prove([{"node": "a", "op": "Add"}], {"layers": []}).text == (
        "no node whose mode could be compared"
    )


@pytest.mark.parametrize(
    ("node", "properties"),
    [
        ("y = AveragePool <kernel_shape = [2, 2]> (x)", {"type": "AVERAGE"}),
        ("y = ReduceMin <noop_with_empty_axes = 1> (x)", {"op": "MIN", "keep_dims": True}),
        ("y = ReduceMin (x, a)", {"op": "MIN", "keep_dims": True}),
        (
            'y = Resize <mode = "cubic", coordinate_transformation_mode = "tf_crop_and_resize"> (x, , s)',
            {"resize_mode": "CUBIC"},
        ),
    ],
)
def test_what_cannot_be_said_is_left_out(node: str, properties: dict[str, Any]) -> None:
    head = '<ir_version: 10, opset_import: ["": 18]>\ng (float[1, 1, n, 4] x, int64[k] a, float[4] s) => (y)'
    graph = ir.from_proto(onnx.parser.parse_model(f"{head} {{ {node} }}")).graph
    expected = modes.expected(graph[0])
    assert expected is not None
    assert expected["properties"] == properties


def test_other_ops_have_no_mode() -> None:
    text = '<ir_version: 10, opset_import: ["": 18]>\ng (float[n] x) => (y) { y = Relu(x) }'
    assert modes.expected(ir.from_proto(onnx.parser.parse_model(text)).graph[0]) is None


def test_the_lowered_graph_says_its_modes(tmp_path: Path) -> None:
    from engine.precision import lower, selectors
    from engine.quantize.insert import Quantised
    from engine.steps.lower import typed_nodes

    text = '<ir_version: 10, opset_import: ["": 18]>\ng (float[1, 1, 8, 4] x) => (float[1, 1, 7, 3] y)'
    model = onnx.parser.parse_model(text + " { [pool] y = MaxPool <kernel_shape = [2, 2]> (x) }")
    lowered = ir.from_proto(onnx.shape_inference.infer_shapes(model))
    report = lower.lower(lowered, selectors.resolve(lowered, "fp16", ()), io="fp32")
    (node,) = (item for item in typed_nodes(lowered, report, Quantised()) if item["node"] == "pool")
    assert node["mode"] == {"layer": "POOLING", "properties": {"type": "MAX"}}
