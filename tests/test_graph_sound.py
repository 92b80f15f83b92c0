"""One exact fault a file, and the whole message that it gets. The graphs are ONNX text."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine.errors import StepError
from engine.graph import sound, weights

HEAD = '<ir_version: 10, opset_import: ["": 18]>\n'
Edit = Callable[[onnx.ModelProto], object]


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text if text.startswith("<") else HEAD + text)


def refusal(model: onnx.ModelProto, folder: Path, **options: bool) -> StepError:
    (folder / "a.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(StepError) as caught:
        sound.require(folder / "a.onnx", taken=options.pop("taken", True), **options)
    return caught.value


def accepted(model: onnx.ModelProto, folder: Path, **options: bool) -> list[str]:
    (folder / "a.onnx").write_bytes(model.SerializeToString())
    return [issue.symptom for issue in sound.require(folder / "a.onnx", taken=True, **options).issues]


OLD = '<ir_version: 8, opset_import: ["": 17]>\n'
CASES = {
    "node name twice": (
        "g (float[n, 4] x) => (float[n, 4] y) { [a] t = Relu(x) [a] y = Neg(t) }",
        "two nodes are named 'a': Relu making 't' and Neg making 'y'",
    ),
    "value made twice": (
        "g (float[n, 4] x) => (float[n, 4] y) { [a] y = Relu(x) [b] y = Neg(x) }",
        "the value 'y' is made twice: by node 'a' (Relu) and by node 'b' (Neg)",
    ),
    "value made over an input": (
        "g (float[n, 4] x) => (float[n, 4] x) { [a] x = Relu(x) }",
        "the value 'x' is made twice: by an input and by node 'a' (Relu)",
    ),
    "value of a branch made over an outer one": (
        "g (bool c, float[4] x) => (float[4] y) { [a] t = Relu(x) [i] y = If (c) <"
        "then_branch = g1 () => (float[4] t) { [b] t = Neg(x) },"
        "else_branch = g2 () => (float[4] v) { [d] v = Neg(x) }> }",
        "the value 't' is made twice: by the graph around and by node 'b' (Neg)",
    ),
    "dangling input in a branch": (
        "g (bool c, float[4] x) => (float[4] y) { [a] t = Relu(x) [i] y = If (c) <"
        "then_branch = g1 () => (float[4] u) { [b] u = Neg(t) },"
        "else_branch = g2 () => (float[4] v) { [d] v = Neg(nowhere) }> }",
        "node 'd' (Neg) reads 'nowhere', which nothing makes",
    ),
    "unsorted": (
        "g (float[n, 4] x) => (float[n, 4] y) { [a] y = Relu(t) [b] t = Neg(x) }",
        "node 'a' (Relu) reads 't' before it is made",
    ),
    "dangling input": (
        "g (float[n, 4] x) => (float[n, 4] y) { y = Add(x, w) }",
        "the node that makes 'y' (Add) reads 'w', which nothing makes",
    ),
    "output that nothing makes": (
        "g (float[n, 4] x) => (float[n, 4] y, float[n, 4] z) { [a] y = Relu(x) }",
        "nothing makes the output 'z'",
    ),
    "no nodes": ("g (float[n, 4] x) => (float[n, 4] x) { }", "the graph has no nodes"),
    "no opset": (
        "<ir_version: 10, opset_import: []>\ng (float[n, 4] x) => (float[n, 4] y) { [a] y = Relu(x) }",
        "the file names no opset",
    ),
    "no opset of the domain": (
        '<ir_version: 10, opset_import: ["ai.onnx.ml": 3]>\ng (float[n] x) => (float[n] y) { [a] y = Relu(x) }',
        "node 'a' (Relu): the file imports no opset of the domain 'ai.onnx'",
    ),
    "two opsets": (
        '<ir_version: 10, opset_import: ["": 17, "ai.onnx": 18]>\ng (float[n] x) => (float[n] y) { y = Relu(x) }',
        "two opsets of the domain 'ai.onnx': 17 and 18",
    ),
    "unknown domain": (
        '<ir_version: 8, opset_import: ["": 17, "my": 1]>\ng (float[n] x) => (float[n] y) { [a] y = my.Foo(x) }',
        "node 'a' (Foo): nobody knows the domain 'my'",
    ),
    "unknown op": (
        "g (float[n] x) => (float[n] y) { [a] y = Foo(x) }",
        "node 'a' (Foo): 'ai.onnx' has no operator Foo",
    ),
    "op of a later opset": (
        OLD + "g (float[n, 4] x) => (float[n, 4] y) { [a] y = Gelu(x) }",
        "node 'a' (Gelu): Gelu came with opset 20; the file has 17",
    ),
    "op that is gone": (
        "g (float[n] x, float[1] s) => (float[n] y) { [a] y = Upsample(x, s) }",
        "node 'a' (Upsample): Upsample is gone since opset 10; the file has 18",
    ),
    "attribute of a later opset": (
        OLD + "g (float[1, 1, n, 4] x, int64[4] s) => (y) { [a] y = Resize <antialias = 1> (x, , , s) }",
        "node 'a' (Resize): attribute 'antialias' came with opset 18; the file has 17",
    ),
    "attribute of an earlier opset": (
        "g (float[n, 1] x) => (float[n] y) { [a] y = Squeeze <axes = [1]> (x) }",
        "node 'a' (Squeeze): attribute 'axes' is gone since opset 13; the file has 18",
    ),
    "attribute of no opset": (
        "g (float[n, 4] x, float[4] w) => (float[n, 4] y) { [a] y = LayerNormalization <epsilonn = 0.1> (x, w) }",
        "node 'a' (LayerNormalization): attribute 'epsilonn' is none of LayerNormalization's",
    ),
    "word of an earlier opset": (
        '<ir_version: 10, opset_import: ["": 20]>\n'
        "g (float[1, 1, n, 4] x, float[1, 2, 2, 2] g) => (float[1, 1, 2, 2] y)"
        ' { [a] y = GridSample <mode = "bilinear"> (x, g) }',
        "node 'a' (GridSample): mode 'bilinear' is none of linear, nearest, cubic (opset 20)",
    ),
    "input of a later opset": (
        OLD + "g (float[n, 4] x, int64[1] a) => (float[n, 1] y) { [r] y = ReduceMax(x, a) }",
        "node 'r' (ReduceMax): input 2 came with opset 18; the file has 17",
    ),
    "too many inputs": (
        "g (float[n] x) => (float[n] y) { [a] y = Relu(x, x) }",
        "node 'a' (Relu) has 2 inputs, Relu of opset 18 at most 1",
    ),
    "too few inputs": (
        "g (float[n] x) => (float[n] y) { [a] y = Add(x) }",
        "node 'a' (Add) has 1 inputs, Add of opset 18 at least 2",
    ),
    "too many outputs": (
        "g (float[n] x) => (float[n] y, float[n] z) { [a] y, z = Relu(x) }",
        "node 'a' (Relu) has 2 outputs, Relu of opset 18 at most 1",
    ),
    "function of another opset": (
        '<ir_version: 10, opset_import: ["": 18, "own": 1]>\n'
        "g (float[n, 1] x) => (float[n] y) { [a] y = own.F(x) }\n"
        '<domain: "own", opset_import: ["": 11]>\nF (a) => (b) { b = Squeeze <axes = [1]> (a) }',
        "function 'own.F' has opset 11 of domain 'ai.onnx', the file 18, and Squeeze is not the same in both",
    ),
    "function with a fault": (
        '<ir_version: 10, opset_import: ["": 18, "own": 1]>\n'
        "g (float[n, 1] x) => (float[n] y) { [a] y = own.F(x) }\n"
        '<domain: "own", opset_import: ["": 18]>\nF (a) => (b) { b = Squeeze <axes = [1]> (a) }',
        "function 'own.F': the node that makes 'b' (Squeeze): attribute 'axes' is gone since opset 13;"
        " the file has 18",
    ),
    "output of another type": (
        "g (float[n, 4] x) => (float16[n, 4] y) { [a] y = Relu(x) }",
        "output 'y' is declared float16[n, 4], node 'a' (Relu) gives float[n, 4]",
    ),
    "output of another size": (
        "g (float[n, 4] x) => (float[n, 5] y) { [a] y = Relu(x) }",
        "output 'y' is declared float[n, 5], node 'a' (Relu) gives float[n, 4]",
    ),
    "output of another rank": (
        "g (float[n, 4] x) => (float[n] y) { [a] y = Relu(x) }",
        "output 'y' is declared float[n], node 'a' (Relu) gives float[n, 4]",
    ),
    "a number for an axis": (
        "g (float[n, 4] x) => (float[3, 4] y) { [a] y = Relu(x) }",
        "output 'y' is declared float[3, 4], node 'a' (Relu) gives float[n, 4]",
    ),
    "value inside of another type": (
        "g (float[n, 4] x) => (float[n, 4] y) <float16[n, 4] t> { [a] t = Relu(x) [b] y = Neg(t) }",
        "value 't' is declared float16[n, 4], node 'a' (Relu) gives float[n, 4]",
    ),
    "shape that only data propagation knows": (
        "g (float[2, 6] x) => (float[4, 4] y) <int64[2] s = {3, 4}> { [a] y = Reshape(x, s) }",
        "output 'y' is declared float[4, 4], node 'a' (Reshape) gives float[3, 4]",
    ),
    "types that do not fit": (
        "g (float[n] x, int64[n] i) => (float[n] y) { [a] y = Add(x, i) }",
        "types and shapes do not fit together: (op_type:Add, node name: a): B has inconsistent type tensor(int64)",
    ),
    "sequence at the boundary": (
        "g (float[n, 4] x) => (seq(float[n, 4]) y) { [a] y = SequenceConstruct(x) }",
        "output 'y' is a sequence",
    ),
    "optional at the boundary": (
        "g (optional(float[4]) x) => (float[4] y) { [a] y = OptionalGetElement(x) }",
        "input 'x' is an optional",
    ),
    "strings at the boundary": (
        "g (string[n] x) => (string[n] y) { [a] y = Identity(x) }",
        "input 'x' is a tensor of strings",
    ),
    "map at the boundary": (
        '<ir_version: 10, opset_import: ["": 18, "ai.onnx.ml": 3]>\n'
        'g (map(int64, float) x) => (y) { [a] y = ai.onnx.ml.CastMap <cast_to = "TO_FLOAT"> (x) }',
        "input 'x' is a map",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_planted_fault_gets_its_message(case: str, tmp_path: Path) -> None:
    text, message = CASES[case]
    failure = refusal(parsed(text), tmp_path).failure
    assert failure.symptom == f"a.onnx is not valid ONNX: {message}"
    assert failure.cause
    assert failure.fix
    assert failure.where == "model.onnx"


def plain() -> onnx.ModelProto:
    model = parsed("g (float[n, 4] x) => (float[n, 4] y) { [a] y = MatMul(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    return model


def raw(size: int) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        model.graph.initializer[0].raw_data = bytes(size)

    return edit


def typed(model: onnx.ModelProto) -> None:
    del model.graph.initializer[:]
    model.graph.initializer.append(
        TensorProto(name="w", dims=[4, 4], data_type=TensorProto.FLOAT, float_data=[1.0] * 15)
    )


def constant(model: onnx.ModelProto) -> None:
    tensor = TensorProto(dims=[3], data_type=TensorProto.INT64, raw_data=bytes(16))
    model.graph.node.insert(0, helper.make_node("Constant", [], ["c"], value=tensor))


def unknown_type(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_type = 0


def negative(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[0] = -4


def sparse(model: onnx.ModelProto) -> None:
    values = numpy_helper.from_array(np.ones(1, np.float32), "s")
    indices = numpy_helper.from_array(np.zeros(1, np.int64), "i")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))


def also_input(model: onnx.ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 4]))


def ir_version(number: int) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        model.ir_version = number

    return edit


def opset(number: int) -> Edit:
    def edit(model: onnx.ModelProto) -> None:
        model.opset_import[0].version = number

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (raw(63), "tensor 'w' holds 63 bytes, its type and shape [4, 4] take 64"),
        (raw(65), "tensor 'w' holds 65 bytes, its type and shape [4, 4] take 64"),
        (typed, "tensor 'w' holds 15 numbers, its type and shape [4, 4] take 16"),
        (constant, "the tensor of a Constant node holds 16 bytes, its type and shape [3] take 24"),
        (unknown_type, "tensor 'w' has the type number 0, which nobody knows"),
        (negative, "tensor 'w' has the shape [-4, 4]"),
        (sparse, "the weight 's' is stored sparse"),
        (also_input, "'w' is an input and a weight at once"),
        (
            ir_version(99),
            f"IR version 99; versions 3 to {onnx.IR_VERSION} are known (onnx {onnx.__version__})",
        ),
        (ir_version(0), f"IR version 0; versions 3 to {onnx.IR_VERSION} are known (onnx {onnx.__version__})"),
        (
            opset(99),
            f"opset 99; opsets 1 to {onnx.defs.onnx_opset_version()} are known (onnx {onnx.__version__})",
        ),
    ],
)
def test_a_fault_that_text_cannot_say(edit: Edit, message: str, tmp_path: Path) -> None:
    model = plain()
    edit(model)
    assert refusal(model, tmp_path).failure.symptom == f"a.onnx is not valid ONNX: {message}"


def test_a_sound_file_has_nothing_to_say(tmp_path: Path) -> None:
    assert accepted(plain(), tmp_path) == []


def test_the_exporters_faults_go_to_the_exporter(tmp_path: Path) -> None:
    failure = refusal(parsed(CASES["no nodes"][0]), tmp_path, taken=False).failure
    assert (failure.where, failure.cause) == ("export.exporter", "the exporter wrote an invalid graph")
    assert failure.fix == "export the model again"


def test_old_files_may_list_their_weights_among_the_inputs(tmp_path: Path) -> None:
    model = plain()
    also_input(model)
    assert accepted(model, tmp_path, original=True) == []


def test_a_function_may_have_another_opset_where_its_ops_are_the_same(tmp_path: Path) -> None:
    text = (
        '<ir_version: 10, opset_import: ["": 18, "own": 1]>\ng (float[n] x) => (float[n] y) { [a] y = own.F(x) }\n'
        '<domain: "own", opset_import: ["": 17]>\nF (a) => (b) { b = Relu (a) }'
    )
    assert accepted(parsed(text), tmp_path) == []


def test_what_nothing_uses_is_listed(tmp_path: Path) -> None:
    text = "g (float[n, 4] x, float[n] z) => (float[n, 4] y) <float[2] w = {1, 2}> { [a] y = Relu(x) [b] t = Neg(x) }"
    assert accepted(parsed(text), tmp_path) == [
        "inputs that nothing uses (1)", "weights that nothing uses (1)", "nodes that nothing uses (1)"
    ]  # fmt: skip


def test_a_value_used_in_a_branch_only_is_used(tmp_path: Path) -> None:
    text = (
        "g (bool c, float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}> { [a] t = Relu(x) [i] y = If (c) <"
        "then_branch = g1 () => (float[4] u) { [b] u = Add(t, w) },"
        "else_branch = g2 () => (float[4] v) { [d] v = Neg(x) }> }"
    )
    assert accepted(parsed(text), tmp_path) == []


def test_types_inside_that_tensorrt_lacks_and_operators_of_the_runtime(tmp_path: Path) -> None:
    text = (
        '<ir_version: 10, opset_import: ["": 18, "com.microsoft": 1]>\n'
        "g (float[n, 4] x) => (float[n, 4] y) <int64 z = {0}> {"
        " [s] q = SequenceConstruct(x) [t] t = SequenceAt(q, z) [g] y = com.microsoft.FastGelu(t) }"
    )
    assert accepted(parsed(text), tmp_path) == [
        "operators of ONNX Runtime's own: FastGelu", "values that are no tensors of numbers (1)"
    ]  # fmt: skip


def odd(**arrays: np.ndarray) -> list[tuple[str, str, str]]:
    model = ir.from_proto(parsed("g (float[n] x) => (float[n] y) { y = Relu(x) }"))
    for name, array in arrays.items():
        model.graph.register_initializer(ir.Value(name=name, const_value=ir.tensor(array, name=name)))
    _, issues = weights.oddities(model, "check")
    return [(issue.symptom, issue.evidence, issue.disposition) for issue in issues]


def full(shape: tuple[int, ...], kind: type = np.float32, **at: float) -> np.ndarray:
    array = np.ones(shape, kind)
    for place, value in at.items():
        array.reshape(-1)[int(place[1:])] = value
    return array


def test_weights_without_oddities() -> None:
    tail = full((64, 64))
    tail.reshape(-1)[-1023:] = 0
    assert odd(w=full((64, 64)), short_tail=tail, vector=np.zeros(4096, np.float32)) == []
    assert odd(mask=np.array(-np.inf, np.float32), index=np.arange(9)) == []


def test_odd_values_of_weights() -> None:
    tail = full((64, 64))
    tail.reshape(-1)[-1024:] = 0
    assert odd(w=full((4, 4), _3=np.nan, _5=np.nan)) == [("weights with NaN (1)", "w (2)", "open")]
    assert odd(w=full((4, 4), np.float16, _3=-np.inf)) == [("weights with inf (1)", "w (1)", "open")]
    assert odd(w=full((4, 4), _0=1e-40, _1=-1e-41, _2=0)) == [
        ("weights with subnormal values (1)", "w (2)", "noted")
    ]
    assert odd(w=tail) == [("weights that look zero-padded (1)", "w (4,096 bytes)", "open")]
    assert odd(w=np.zeros((1 << 11, 1 << 10), np.float32)) == [
        ("weights that look zero-padded (1)", "w (8,388,608 bytes)", "open")
    ]


def test_int64_constants_beyond_int32() -> None:
    text = (
        "g (float[n] x, int64[n] i) => (float[m] y, int64[n] j) <int64[1] zero = {0}, int64[1] end ="
        " {9223372036854775807}, int64[1] big = {-2147483649}> { y = Slice(x, zero, end) j = Add(i, big) }"
    )
    _, issues = weights.oddities(ir.from_proto(parsed(text)), "check")
    assert [(issue.symptom, issue.evidence) for issue in issues] == [
        ("int64 constants beyond int32 (1)", "big = -2147483649")
    ]


def external(folder: Path) -> onnx.ModelProto:
    """Two weights of 64 bytes, one behind the other, in ``a.data``."""
    model = parsed("g (float[n, 4] x) => (float[n, 4] y) { t = MatMul(x, w) y = MatMul(t, v) }")
    for index, name in enumerate("wv"):
        tensor = TensorProto(
            name=name, dims=[4, 4], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL
        )
        entries = {"location": "a.data", "offset": str(64 * index), "length": "64"}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
        model.graph.initializer.append(tensor)
    (folder / "a.data").write_bytes(np.arange(32, dtype=np.float32).tobytes())
    return model


def entry(model: onnx.ModelProto, key: str, value: str, tensor: int = 1) -> None:
    next(item for item in model.graph.initializer[tensor].external_data if item.key == key).value = value


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("offset", "32", "external data file a.data: tensor 'w' has bytes [0, 64)"
         " and tensor 'v' [32, 96): they overlap"),
        ("offset", "65", "external data file a.data: 128 bytes, tensor 'v' needs bytes [65, 129)"),
        ("length", "60", "tensor 'v': offset 64 and length 60, its shape needs 64 bytes"),
        ("length", "68", "tensor 'v': offset 64 and length 68, its shape needs 64 bytes"),
        ("location", "b.data", "external data file b.data: not there, tensor 'v' needs bytes [64, 128)"),
        ("location", "../a.data", "tensor 'v': external location '../a.data' is outside the folder of a.onnx"),
        ("location", "/a.data", "tensor 'v': external location '/a.data' is outside the folder of a.onnx"),
    ],
)  # fmt: skip
def test_external_entries(key: str, value: str, message: str, tmp_path: Path) -> None:
    model = external(tmp_path)
    entry(model, key, value)
    failure = refusal(model, tmp_path).failure
    assert failure.symptom == message
    assert failure.fix == "put the whole file beside a.onnx"


def test_one_weight_under_two_names_does_not_overlap(tmp_path: Path) -> None:
    model = external(tmp_path)
    entry(model, "offset", "0")
    assert accepted(model, tmp_path) == []


def test_a_link_out_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    model = external(folder)
    (folder / "a.data").rename(tmp_path / "secret")
    (folder / "a.data").symlink_to(tmp_path / "secret")
    symptom = refusal(model, folder).failure.symptom
    assert re.fullmatch(
        r"tensor 'w': external location 'a.data' is outside the folder of a.onnx: it is a link to .*/secret",
        symptom,
    )


def test_weights_that_are_not_aligned(tmp_path: Path) -> None:
    model = external(tmp_path)
    (tmp_path / "a.data").write_bytes(bytes(130))
    entry(model, "offset", "66")
    assert accepted(model, tmp_path) == ["misaligned external weights (1)"]
