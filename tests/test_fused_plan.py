"""The fused plan's text: a piece of a real TensorRT-RTX 1.7.1 log, and the forms of other versions."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from engine.fused_plan import (
    FusedLayer,
    FusedPlan,
    NodeTypes,
    TensorInfo,
    parse_plan,
    read_plan,
    summary,
    types_of_nodes,
)

MINILM = Path(__file__).parent / "fixtures" / "plan_minilm_fp16.log"
RELU = (
    "Name: Relu_0, LayerType: kgen, Inputs: [ { Name: x, Dimensions: [-1], Datatype: Float }], "
    "Outputs: [ { Name: y, Dimensions: [-1], Datatype: Float }], TacticName: t, "
    "Metadata: [ONNX Layer: Relu_0]"
)


def parse(text: str) -> FusedPlan:
    return parse_plan(textwrap.dedent(text).split("\n"))


def test_real_log() -> None:
    plan = read_plan(MINILM)
    assert plan.unknown_lines == 0
    assert summary(plan.layers) == {
        "layers": 5,
        "attention": 1,
        "kinds": {"gemm": 1, "kgen": 2, "runtime_fusion": 1, "shape_call": 1},
        "types": {"float16": 4, "none": 1},
    }
    qkv = plan.layers[2]
    assert qkv.nodes == ("node_MatMul_71", "node_MatMul_63", "node_MatMul_55")
    assert qkv.inputs == (TensorInfo("node_layer_norm_normalizationBiased.1_myl0", "float16", (-1, 384)),)
    assert [constant.shape for constant in qkv.constants] == [(384, 1152), (1,), (1,)]
    assert [constant.dtype for constant in qkv.constants] == ["float16", "float32", "float32"]


def test_real_fused_attention() -> None:
    [attention] = [layer for layer in read_plan(MINILM).layers if layer.is_attention]
    assert attention.tactic == "_gemm_mha_v2_0xdb95196ae3d88fef6c22c021cb55577b"
    assert attention.nodes[0] == "node_scaled_dot_product_attention"
    assert [tensor.dtype for tensor in attention.inputs] == ["float16", "float16", "bool", "bool", "float16"]
    softmax = types_of_nodes([attention])["node_Softmax_102"]
    assert softmax == NodeTypes(frozenset({"float16", "bool"}), frozenset({"float16"}), (attention.name,))


def test_log_without_a_plan() -> None:
    assert parse("INFO nothing\nName: x, LayerType: gemm\n") == FusedPlan(())


def test_nothing_after_the_plan_is_read() -> None:
    plan = parse(f"Layers:\n{RELU}\n\nI/O Tensors:\n Name: x, IOMode: Input\n{RELU}\nstray\n")
    assert (len(plan.layers), plan.unknown_lines) == (1, 0)


def test_other_records_end_the_plan() -> None:
    plan = parse(f"VERBOSE Layers:\n{RELU}\nINFO [MemUsageStats] peak\nVERBOSE more\nstray\n{RELU}\n")
    assert (len(plan.layers), plan.unknown_lines) == (1, 0)


def test_the_last_plan_counts() -> None:
    assert len(parse(f"Layers:\n{RELU}\n{RELU}\nBindings:\nLayers:\n{RELU}\n").layers) == 1


def test_unknown_lines_are_counted() -> None:
    plan = parse(f"Layers:\nsomething new\n{RELU}\n...more\n")
    assert (len(plan.layers), plan.unknown_lines) == (1, 2)


def test_missing_fields() -> None:
    plan = parse(
        "Layers:\nName: a, LayerType: gemm\nName: b, LayerType: kgen, Inputs: [ { Name: x, Dimensions: [2\n"
    )
    assert plan.layers[0] == FusedLayer("a", "gemm")
    assert plan.layers[1].name == "b"


@pytest.mark.parametrize("prefix", ["[V] ", "[01/20/2024-19:48:39] [V] [TRT] ", "[TRT] VERBOSE: "])
def test_prefixed_lines(prefix: str) -> None:
    plan = parse(f"{prefix}Layers:\n{prefix}{RELU}\n{prefix}Done.\n")
    assert [layer.nodes for layer in plan.layers] == [("Relu_0",)]


def test_tensorrt_10_layer() -> None:
    plan = parse(
        "Layers:\nName: /f/Conv + PWN(/f/Relu), LayerType: CaskConvolution, "
        "Inputs: [ { Name: x, Location: Device, Dimensions: [1,3,8,8], Format/Datatype: Half }], "
        "Outputs: [ { Name: /f/out, Location: Device, "
        "Dimensions: [1,4,8,8], Format/Datatype: Int8 }], ParameterType: Convolution, Kernel: [3,3], "
        'Weights: {"Type": "Half", "Count": 108}, Activation: RELU, TacticName: sm80_xmma_fprop, '
        "TacticValue: 0x1, StreamId: 0, Metadata: [ONNX Layer: /f/Conv]\x1e[ONNX Layer: /f/Relu | c (b)]\n"
    )  # fmt: skip
    assert plan == FusedPlan(
        (
            FusedLayer(
                name="/f/Conv + PWN(/f/Relu)",
                kind="CaskConvolution",
                inputs=(TensorInfo("x", "float16", (1, 3, 8, 8)),),
                outputs=(TensorInfo("/f/out", "int8", (1, 4, 8, 8)),),
                nodes=("/f/Conv", "/f/Relu"),
                tactic="sm80_xmma_fprop",
            ),
        )
    )


def test_second_profile() -> None:
    layer = RELU.replace("Relu_0,", "Relu_0 [profile 1]_myl1_0,", 1).replace("Name: x", "Name: x [profile 1]")
    plan = parse(f"Layers:\n{RELU}\n{layer}\n")
    assert [found.profile for found in plan.layers] == [0, 1]
    assert len(types_of_nodes(plan.layers)["Relu_0"].layers) == 2


def test_older_form() -> None:
    plan = parse("""
        [V] [TRT] Engine Layer Information:

        Layer(Reformat): Reformatting CopyNode for Input Tensor 0 to {ForeignNode[a + b.../c]}, \
Tactic: 0x3ea, q (Float[1,8]) -> Reformatted Input Tensor 0 to {ForeignNode[a + b.../c]} (Half[1,8])
        Layer(Myelin): {ForeignNode[a + b.../c]}, Tactic: 0x0, p[Half(-7,8)], q[Half(1,8)] -> o[Half(1,8)]
        Layer(CaskConvolution): Conv_0 + PWN(Relu_1), Tactic: 102, x[Int8(1,3,2,2)] -> y[Float:HWC8(1,9)]
        Layer(Constant): k + (Unnamed Layer* 3) [Shuffle], Tactic: 0, \
 -> (Unnamed Layer* 3) [Shuffle]_o[Int32(4)]
        [I] [TRT] done
    """)
    assert plan.unknown_lines == 0
    reformat, myelin, convolution, constant = plan.layers
    assert (reformat.kind, reformat.nodes) == ("Reformat", ())
    assert (reformat.inputs[0].dtype, reformat.outputs[0].dtype) == ("float32", "float16")
    assert myelin.nodes == ()
    assert myelin.inputs == (TensorInfo("p", "float16", (-7, 8)), TensorInfo("q", "float16", (1, 8)))
    assert (convolution.nodes, convolution.tactic) == (("Conv_0", "Relu_1"), "102")
    assert [tensor.dtype for tensor in convolution.inputs] == ["int8"]
    assert (constant.inputs, constant.nodes) == ((), ("k",))
    assert constant.outputs == (TensorInfo("(Unnamed Layer* 3) [Shuffle]_o", "int32", (4,)),)


@pytest.mark.parametrize(
    ("name", "tactic", "fused"),
    [
        ("_gemm_mha_v2_myl0_9", "", True),
        ("x", "_gemv_mha_v1_0x1", True),
        ("__mye8037_gemm_mha_v2", "", True),
        ("x", "fmha_v2_flash_attention_fp16_64_128_S_80_sm86_kernel", True),
        ("node_scaled_dot_product_attention_myl0_11", "__myelin_CASK_STUB", False),
        ("/encoder/mha/attn/MatMul_myl0_16", "sm80_xmma_gemm_f16f16", False),
        ("mha_out", "sm80_xmma_gemm", False),
    ],
)
def test_attention_is_judged_by_the_kernel(name: str, tactic: str, fused: bool) -> None:
    assert FusedLayer(name, "kgen", tactic=tactic).is_attention is fused


def test_types_of_a_node_in_two_layers() -> None:
    wide, narrow = TensorInfo("w", "float32", ()), TensorInfo("n", "float16", ())
    layers = [
        FusedLayer("one", "kgen", inputs=(wide,), outputs=(narrow,), nodes=("a", "b")),
        FusedLayer("two", "kgen", inputs=(narrow,), outputs=(wide,), constants=(wide,), nodes=("b",)),
    ]
    types = types_of_nodes(layers)
    assert types["a"] == NodeTypes(frozenset({"float32"}), frozenset({"float16"}), ("one",))
    assert types["b"] == NodeTypes(
        frozenset({"float32", "float16"}), frozenset({"float32", "float16"}), ("one", "two")
    )
    assert "c" not in types


def test_types_not_known_are_kept_as_written() -> None:
    plan = parse("Layers:\n" + RELU.replace("Datatype: Float", "Datatype: E8M0"))
    assert plan.layers[0].outputs[0].dtype == "E8M0"
