"""Random instances of quantised operators, transforms and sampling: rewritten, each equals the original."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rules import library
from engine.rules.apply import apply_rule
from engine.rules.language import load_rule
from engine.rules.prove import application_prover
from tests.rules_tools import check, model

few = settings(max_examples=8)
size = st.integers(1, 5)
small_type = st.sampled_from(["uint8", "int8"])


def same(rule: str, text: str, opset: int = 20) -> None:
    """The rule applies once, its proof on this graph holds, and the result is valid ONNX."""
    graph = model(text, opset)
    done = apply_rule(graph, load_rule(library.path_of(rule)), matches=1, prover=application_prover())
    assert done.accepted[0].proof is not None
    assert done.accepted[0].proof.numbers
    check(graph)


@few
@given(
    size, st.sampled_from([1, 3, 258, 259, 700]), size, small_type, small_type, st.booleans(), st.booleans()
)
def test_matmul_integer(m: int, k: int, n: int, one: str, two: str, zeros: bool, column: bool) -> None:
    more = f", {one} za, {two}{f'[{n}]' if column else ''} zb" if zeros else ""
    names = "a, b, za, zb" if zeros else "a, b"
    text = f"g ({one}[2,{m},{k}] a, {two}[{k},{n}] b{more}) => (int32[2,{m},{n}] y) {{ y = MatMulInteger ({names}) }}"
    same("matmulinteger-to-matmul", text)


@few
@given(size, st.sampled_from([1, 40]), st.sampled_from([1, 2]), small_type, small_type, st.integers(1, 2))
def test_conv_integer(m: int, channels: int, kernel: int, one: str, two: str, step: int) -> None:
    attributes = f"strides = [{step}, 1], pads = [1, 0, 0, 1]"
    text = (
        f"g ({one}[2,{channels},6,5] x, {two}[{m},{channels},{kernel},3] w, {one} za, {two} zb) => (int32[2,{m},a,b] y)"
        f" {{ y = ConvInteger <{attributes}> (x, w, za, zb) }}"
    )
    same("convinteger-to-conv", text)


@few
@given(size, st.sampled_from([3, 300]), size, small_type, small_type, st.booleans())
def test_qlinear_matmul(m: int, k: int, n: int, one: str, two: str, column: bool) -> None:
    each = f"[{n}]" if column else ""
    text = (
        f"g ({one}[{m},{k}] a, float sa, {one} za, {two}[{k},{n}] b, float{each} sb, {two}{each} zb,"
        f" float sy, {one} zy) => ({one}[{m},{n}] y) {{ y = QLinearMatMul (a, sa, za, b, sb, zb, sy, zy) }}"
    )
    same("qlinearmatmul-to-matmul", text)


@few
@given(size, st.sampled_from([1, 2]), small_type, small_type, st.booleans())
def test_qlinear_conv(m: int, groups: int, one: str, two: str, bias: bool) -> None:
    out = m * groups
    text = (
        f"g ({one}[1,4,5,5] x, float sx, {one} zx, {two}[{out},{4 // groups},2,3] w, float[{out}] sw, {two}[{out}] zw,"
        f" float sy, {one} zy{f', int32[{out}] b' if bias else ''}) => ({one}[1,{out},4,3] y)"
        f" {{ y = QLinearConv <group = {groups}> (x, sx, zx, w, sw, zw, sy, zy{', b' if bias else ''}) }}"
    )
    same("qlinearconv-to-conv", text)


@few
@given(size, st.sampled_from([None, "axis", "blocks"]), st.sampled_from(["uint8", "int8"]))
def test_quantize_and_dequantize(n: int, scales: str | None, kind: str) -> None:
    shape = {None: "", "axis": f"[{n}]", "blocks": f"[2,{n},2]"}[scales]
    attributes = {None: "", "axis": "<axis = 1>", "blocks": "<axis = 2, block_size = 3>"}[scales]
    given_ = f"float{shape} s, {kind}{shape} z"
    there = f"g (float[2,{n},5] x, {given_}) => ({kind}[2,{n},5] y) {{ y = QuantizeLinear {attributes} (x, s, z) }}"
    back = f"g ({kind}[2,{n},5] x, {given_}) => (float[2,{n},5] y) {{ y = DequantizeLinear {attributes} (x, s, z) }}"
    same("quantizelinear-to-elementwise", there, 21)
    same("dequantizelinear-to-elementwise", back, 21)


@few
@given(size, st.integers(1, 20), st.integers(1, 24), st.booleans(), st.booleans(), st.booleans())
def test_dft(n: int, points: int, length: int, parts: bool, inverse: bool, onesided: bool) -> None:
    real = not parts and not inverse
    half = onesided and (real or inverse)
    count, last = (length if inverse or not half else length // 2 + 1), (1 if half and inverse else 2)
    kind = f"float[{n},{points},{1 if real else 2}] x"
    attributes = f"inverse = {int(inverse)}, onesided = {int(half)}"
    text = f"<int64 length = {{{length}}}> {{ y = DFT <{attributes}> (x, length) }}"
    same("dft-to-matmul", f"g ({kind}) => (float[{n},{count},{last}] y) {text}")


@few
@given(st.integers(16, 40), st.sampled_from([4, 7, 16]), st.integers(1, 5), st.booleans())
def test_stft(points: int, frame: int, step: int, onesided: bool) -> None:
    bins, frames = (frame // 2 + 1 if onesided else frame), 1 + (points - frame) // step
    text = (
        f"g (float[2,{points},1] x, float[{frame}] w) => (float[2,{frames},{bins},2] y) <int64 step = {{{step}}}>"
        f" {{ y = STFT <onesided = {int(onesided)}> (x, step, w) }}"
    )
    same("stft-to-conv", text)


@few
@given(
    st.integers(2, 9),
    st.integers(2, 9),
    st.integers(1, 12),
    st.integers(1, 12),
    st.sampled_from(["linear", "cubic"]),
)
def test_resize(height: int, width: int, down: int, along: int, mode: str) -> None:
    text = (
        f"g (float[2,3,{height},{width}] x) => (float[2,3,{down},{along}] y) <int64[2] sizes = {{{down}, {along}}}>"
        f' {{ y = Resize <mode = "{mode}", antialias = 1, axes = [2, 3]> (x, , , sizes) }}'
    )
    same("resize-to-matmul", text)


@few
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.sampled_from(["zeros", "border"]), st.booleans())
def test_grid_sample_of_a_volume(depth: int, width: int, samples: int, padding: str, corners: bool) -> None:
    text = (
        f"g (float[2,3,{depth},2,{width}] x, float[2,{samples},1,2,3] p) => (float[2,3,{samples},1,2] y)"
        f' {{ y = GridSample <align_corners = {int(corners)}, padding_mode = "{padding}"> (x, p) }}'
    )
    same("gridsample-3d-to-gather", text)


@few
@given(st.integers(1, 6), st.integers(1, 3))
def test_det(n: int, batch: int) -> None:
    same("det-to-minors", f"g (float[{batch},{n},{n}] x) => (float[{batch}] y) {{ y = Det (x) }}")


@few
@given(
    st.integers(1, 9), st.integers(1, 3), st.integers(1, 3), st.sampled_from(["avg", "max"]), st.booleans()
)
def test_roi_align(width: int, bins: int, samples: int, mode: str, half: bool) -> None:
    attributes = (
        f'output_height = {bins}, output_width = 2, sampling_ratio = {samples}, mode = "{mode}",'
        f' coordinate_transformation_mode = "{"half_pixel" if half else "output_half_pixel"}", spatial_scale = 0.5'
    )
    text = (
        f"g (float[2,2,5,{width}] x, float[3,4] r, int64[3] b) => (float[3,2,{bins},2] y)"
        f" {{ y = RoiAlign <{attributes}> (x, r, b) }}"
    )
    same("roialign-to-gather", text)


@few
@given(
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(1, 7),
    st.integers(1, 3),
    st.sampled_from([1, 0.25, 0.3]),
)
def test_max_roi_pool(height: int, width: int, rows: int, columns: int, scale: float) -> None:
    text = (
        f"g (float[2,3,{height},{width}] x, float[9,5] r) => (float[9,3,{rows},{columns}] y)"
        f" {{ y = MaxRoiPool <pooled_shape = [{rows}, {columns}], spatial_scale = {float(scale)}> (x, r) }}"
    )
    same("max-roi-pool-to-gather", text)


@few
@given(size, size, st.integers(-2, 1), st.sampled_from(["-65504", "-1e9", "-3.4e38"]), st.booleans())
def test_mask_to_half_range(rows: int, columns: int, axis: int, low: str, keeps: bool) -> None:
    where = "mask, x, low" if keeps else "mask, low, x"
    text = (
        f"g (float[{rows},{columns}] x, bool[{rows},{columns}] mask) => (float[{rows},{columns}] p)"
        f" <float low = {{{low}}}> {{ filled = Where ({where})  p = Softmax <axis = {axis}> (filled) }}"
    )
    same("mask-keep-to-half-range" if keeps else "mask-fill-to-half-range", text)


@few
@given(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), st.booleans())
def test_deform_conv(groups: int, offsets: int, kernel: int, masked: bool) -> None:
    side, taps = 7 - kernel, kernel * 2 * offsets
    text = (
        f"g (float[2,4,6,5] x, float[4,{4 // groups},{kernel},2] w, float[2,{2 * taps},{side},4] o, float[4] b"
        f"{f', float[2,{taps},{side},4] m' if masked else ''}) => (float[2,4,{side},4] y)"
        f" {{ y = DeformConv <group = {groups}, offset_group = {offsets}> (x, w, o, b{', m' if masked else ''}) }}"
    )
    same("deformconv-to-gridsample", text, 22)


def test_a_result_without_a_type_gets_one_before_python_sees_it() -> None:
    graph = model(
        "g (uint8[2,3] a, int8[3,4] b) => (float[2,4] y) { q = MatMulInteger (a, b)  y = Cast <to = 1> (q) }"
    )
    graph.graph[0].outputs[0].type = None
    rule = load_rule(library.path_of("matmulinteger-to-matmul"))
    assert apply_rule(graph, rule, prover=application_prover()).accepted
    check(graph)
