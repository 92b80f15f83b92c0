"""Random instances of the rules that the other two files do not draw: other sizes, attributes and values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rules import library
from engine.rules.apply import apply_rule
from engine.rules.language import load_rule
from engine.rules.prove import application_prover
from tests.rules_tools import check, model, random_feeds, run
from tests.test_rules_library import FIXTURES, symbols
from tests.test_rules_random_numbers import same

few = settings(max_examples=6)
size = st.integers(1, 6)

OF_SIZES = (
    "affine-grid-by-definition", "attention-by-definition", "bitcast-to-arithmetic", "cast-identity",
    "causal-conv-by-definition", "celu-to-elementwise", "center-crop-pad-by-definition", "compress-to-gather",
    "cross-entropy-by-definition", "drop-softmax-nan-guard", "dynamicquantizelinear-to-elementwise",
    "embedding-bag-loop-to-gather", "embedding-bag-sequence-to-gather", "layernorm-statistics-by-definition",
    "mask-gather-by-arange", "masked-assignment-to-where", "quantised-round-trip", "rounded-round-trip",
    "sdpa-key-transpose", "swiglu-by-definition",
)  # fmt: skip


@pytest.mark.parametrize("name", OF_SIZES)
@settings(max_examples=4)
@given(step=st.integers(0, 4), seed=st.integers(0, 2**31), scale=st.sampled_from([0.1, 1.0, 7.0]))
def test_an_instance_of_other_sizes_and_values(name: str, step: int, seed: int, scale: float) -> None:
    """The fixture's two sizes of each symbol span a line, so that what they have to do with each other holds."""
    text = (FIXTURES / name / "fires.txt").read_text()
    sizes = {symbol: given[0] + step * (given[1] - given[0]) for symbol, given in symbols(text).items()}
    before, after = model(text), model(text)
    ranges = {symbol: (value,) for symbol, value in sizes.items()}
    apply_rule(
        after, load_rule(library.path_of(name)), matches=1, prover=application_prover(ranges), sizes=ranges
    )
    check(after)
    feeds = random_feeds(before, sizes, seed)
    feeds = {key: (value * scale).astype(value.dtype) if value.dtype.kind == "f" else value
             for key, value in feeds.items()}  # fmt: skip
    first, second = run(before, feeds), run(after, feeds)
    for output, wanted in first.items():
        np.testing.assert_allclose(
            second[output], wanted, rtol=2e-3, atol=1e-4 * max(1.0, scale), err_msg=name
        )


@few
@given(size, size, st.integers(1, 3), st.booleans())
def test_attention(queries: int, keys: int, heads: int, causal: bool) -> None:
    text = (
        f"g (float[2,{heads},{queries},8] q, float[2,{heads},{keys},8] k, float[2,{heads},{keys},4] v)"
        f" => (float[2,{heads},{queries},4] y, float[2,{heads},{queries},{keys}] s)"
        f" {{ y, , , s = Attention <is_causal = {int(causal)}> (q, k, v) }}"
    )
    same("attention-by-definition", text, 23)


@few
@given(size, size, st.sampled_from([0.5, 1.0, 3.0]))
def test_celu(rows: int, columns: int, alpha: float) -> None:
    text = f"g (float16[{rows},{columns}] x) => (float16[{rows},{columns}] y) {{ y = Celu <alpha = {alpha}> (x) }}"
    same("celu-to-elementwise", text, 28)


@few
@given(size, st.lists(st.booleans(), min_size=1, max_size=7).filter(any), st.sampled_from([-1, 1]))
def test_compress(rows: int, keep: list[bool], axis: int) -> None:
    bits = ", ".join(str(int(bit)) for bit in keep)
    text = (
        f"g (float[{rows},{len(keep)}] x) => (float[{rows},{sum(keep)}] y) <bool[{len(keep)}] keep = {{{bits}}}>"
        f" {{ y = Compress <axis = {axis}> (x, keep) }}"
    )
    same("compress-to-gather", text)


@few
@given(size, st.integers(2, 6), st.sampled_from(["mean", "sum", "none"]))
def test_cross_entropy(rows: int, classes: int, reduction: str) -> None:
    shape = f"[{rows}]" if reduction == "none" else ""
    text = (
        f"g (float[{rows},{classes}] scores, int64[{rows}] labels) => (float{shape} loss)"
        f' {{ loss = SoftmaxCrossEntropyLoss <reduction = "{reduction}"> (scores, labels) }}'
    )
    same("cross-entropy-by-definition", text)


@few
@given(size, size, st.integers(1, 9), st.integers(1, 9))
def test_center_crop_pad(rows: int, columns: int, high: int, wide: int) -> None:
    text = (
        f"g (float[{rows},{columns}] x) => (float[{high},{wide}] y) <int64[2] to = {{{high}, {wide}}}>"
        " { y = CenterCropPad (x, to) }"
    )
    same("center-crop-pad-by-definition", text)


@few
@given(size, size, st.integers(-2, -1))
def test_layer_norm_statistics(rows: int, columns: int, axis: int) -> None:
    shape = f"[{rows},{columns}]" if axis == -2 else f"[{columns}]"
    kept = "[1,1]" if axis == -2 else f"[{rows},1]"
    text = (
        f"g (float[{rows},{columns}] x, float{shape} w) => (float[{rows},{columns}] y, float{kept} m)"
        f" {{ y, m = LayerNormalization <axis = {axis}> (x, w) }}"
    )
    same("layernorm-statistics-by-definition", text)
