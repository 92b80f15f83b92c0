"""Random instances of operators: the rewritten graph gives what the graph gave."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rules import library
from engine.rules.apply import apply_rule
from engine.rules.evaluate import Evaluator
from engine.rules.language import Rule, load_rule
from tests.rules_tools import check, model

SEEDS = st.integers(0, 2**32 - 1)
KINDS = {"int8": np.int8, "uint8": np.uint8, "int32": np.int32, "int64": np.int64}


@functools.lru_cache
def rule(name: str) -> Rule:
    return load_rule(library.path_of(name))


def compare(
    name: str, text: str, feeds: Mapping[str, Any], reference: bool = False, rtol: float = 0, atol: float = 0
) -> None:
    """``text`` before and after the rule ``name``, which must apply."""
    before, after = model(text), model(text)
    apply_rule(after, rule(name), prover=None)
    check(after)
    one, two = Evaluator(before, reference)(feeds), Evaluator(after, reference)(feeds)
    for output, wanted in one.items():
        assert two[output].dtype == wanted.dtype
        np.testing.assert_allclose(two[output], wanted, rtol=rtol, atol=atol, err_msg=f"{text} {feeds}")


def whole(seed: int, kind: Any, shape: tuple[int, ...]) -> Any:
    """Integers of all sizes: a random number of their bits is used."""
    rng = np.random.default_rng(seed)
    limits = np.iinfo(kind)
    full = rng.integers(limits.min, limits.max, size=shape, dtype=kind, endpoint=True)
    return full >> rng.integers(0, limits.bits, size=shape).astype(kind)


def head(opset: int) -> str:
    return f'<ir_version: 10, opset_import: ["" : {opset}]>\n'


@settings(max_examples=25)
@given(
    st.sampled_from(sorted(KINDS)), st.sampled_from(["LEFT", "RIGHT"]), st.none() | st.integers(-3, 70), SEEDS
)
def test_bitshift(dtype: str, direction: str, constant: int | None, seed: int) -> None:
    kind = KINDS[dtype]
    low = -3 if np.iinfo(kind).min else 0
    shift = f", {dtype}[3] k" if constant is None else ""
    held = "" if constant is None else f"<{dtype} k = {{{max(constant, low)}}}>"
    body = f'y = BitShift <direction = "{direction}"> (x, k)'
    text = f"{head(28)}net ({dtype}[2,3] x{shift}) => ({dtype}[2,3] y) {held} {{ {body} }}"
    feeds = {"x": whole(seed, kind, (2, 3))}
    if constant is None:
        feeds["k"] = np.random.default_rng(seed).integers(low, 70, size=3).astype(kind)
    compare("bitshift-to-arithmetic", text, feeds, reference=True)


@settings(max_examples=25)
@given(st.sampled_from(sorted(KINDS)), st.sampled_from(["And", "Or", "Xor"]), st.booleans(), SEEDS)
def test_bitwise(dtype: str, op: str, constant: bool, seed: int) -> None:
    kind = KINDS[dtype]
    mask = whole(seed + 1, kind, (3,))
    held = f"<{dtype} m = {{{mask[0]}}}>" if constant else ""
    given_mask = "" if constant else f", {dtype}[3] m"
    text = (
        f"{head(18)}net ({dtype}[2,3] x{given_mask}) => ({dtype}[2,3] y) {held} {{ y = Bitwise{op} (x, m) }}"
    )
    feeds = {"x": whole(seed, kind, (2, 3))} | ({} if constant else {"m": mask})
    compare("bitwise-to-arithmetic", text, feeds)


def net(inputs: str, outputs: str, body: str, held: str = "", opset: int = 18) -> str:
    """A graph in ONNX text; ``held`` are initializers."""
    constants = f"<{held}>" if held else ""
    return f"{head(opset)}net ({inputs}) => ({outputs}) {constants} {{ {body} }}"


def real(seed: int, *shape: int, scale: float = 1) -> Any:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


@settings(max_examples=20)
@given(st.sampled_from(["float", "int8", "uint8"]), st.integers(0, 1), SEEDS)
def test_mod(dtype: str, fmod: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    if dtype == "float":
        fmod, feeds = 0, {"x": real(seed, 2, 3, scale=50), "d": real(seed + 1, 3)}
    else:
        kind = KINDS[dtype]
        divisors = rng.choice([d for d in range(-9, 10) if d and (d > 0 or dtype == "int8")], size=3)
        feeds = {"x": whole(seed, kind, (2, 3)), "d": divisors.astype(kind)}
    body = f"y = Mod <fmod = {fmod}> (x, d)"
    text = net(f"{dtype}[2,3] x, {dtype}[3] d", f"{dtype}[2,3] y", body)
    compare("mod-to-remainder", text, feeds, reference=True)


@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(0, 1), st.integers(0, 1), st.sampled_from(["int32", "float"]), SEEDS)
def test_cumprod(size: int, exclusive: int, reverse: int, dtype: str, seed: int) -> None:
    x = real(seed, size, 2) if dtype == "float" else whole(seed, np.int32, (size, 2))
    body = f"y = CumProd <exclusive = {exclusive}, reverse = {reverse}> (x, axis)"
    text = net(f"{dtype}[{size},2] x", f"{dtype}[{size},2] y", body, "int64 axis = {0}", opset=26)
    compare("cumprod-to-products", text, {"x": x}, reference=True, rtol=1e-5)


@settings(max_examples=30)
@given(st.sampled_from(["add", "mul", "max", "min"]), st.integers(0, 2), st.booleans(), SEEDS)
def test_scatter_elements(reduction: str, axis: int, smaller: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = rng.integers(2, 5, size=3)
    part = shape.copy()
    part[axis] = rng.integers(1, 9)
    if smaller:
        part[axis - 1] -= 1
    feeds = {
        "x": real(seed, *shape),
        "i": rng.integers(-shape[axis], shape[axis], size=part),
        "u": real(seed + 1, *part),
    }
    sizes, some = (",".join(map(str, dims)) for dims in (shape, part))
    body = f'y = ScatterElements <axis = {axis}, reduction = "{reduction}"> (x, i, u)'
    text = net(f"float[{sizes}] x, int64[{some}] i, float[{some}] u", f"float[{sizes}] y", body)
    compare("scatter-reduction-to-compare", text, feeds, rtol=1e-5, atol=1e-5)


@settings(max_examples=30)
@given(st.sampled_from(["add", "mul", "max", "min"]), st.integers(1, 3), SEEDS)
def test_scatter_nd(reduction: str, depth: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, count = [int(size) for size in rng.integers(1, 5, size=3)], int(rng.integers(1, 9))
    rest = shape[depth:]
    feeds = {
        "x": real(seed, *shape),
        "i": np.stack([rng.integers(-size, size, size=(count, 1)) for size in shape[:depth]], axis=-1),
        "u": real(seed + 1, count, 1, *rest),
    }
    sizes, slices = (",".join(map(str, dims)) for dims in (shape, [count, 1, *rest]))
    body = f'y = ScatterND <reduction = "{reduction}"> (x, i, u)'
    text = net(f"float[{sizes}] x, int64[{count},1,{depth}] i, float[{slices}] u", f"float[{sizes}] y", body)
    compare("scatter-reduction-to-compare", text, feeds, rtol=1e-5, atol=1e-5)


@settings(max_examples=40)
@given(st.sampled_from(["MaxPool", "AveragePool", "LpPool", "indices"]), st.integers(0, 1), SEEDS)
def test_pool(op: str, ceil: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    kernel, strides, dilations = (rng.integers(1, 4, size=2) for _ in range(3))
    dilations[0] = 2  # or TensorRT takes it
    pads = [int(rng.integers(0, k)) for k in (*kernel, *kernel)]
    sizes = [int(d * (k - 1) + 1 + rng.integers(0, 6)) for k, d in zip(kernel, dilations, strict=True)]
    given_values = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    attributes = [f"{name} = [{', '.join(map(str, value))}]" for name, value in given_values.items()]
    attributes.append(f"ceil_mode = {ceil}")
    if op == "LpPool":
        attributes.append("p = 3")
    if op == "AveragePool":
        attributes.append(f"count_include_pad = {rng.integers(2)}")
    call = f"{op if op != 'indices' else 'MaxPool'} <{', '.join(attributes)}> (x)"
    more = ", int64[2,2,p,q] i" if op == "indices" else ""
    made = "y, i" if op == "indices" else "y"
    text = net(f"float[2,2,{sizes[0]},{sizes[1]}] x", f"float[2,2,p,q] y{more}", f"{made} = {call}", opset=22)
    compare("pool-to-slices", text, {"x": real(seed, 2, 2, *sizes)}, rtol=1e-5, atol=1e-6)


@settings(max_examples=20)
@given(SEEDS)
def test_col2im(seed: int) -> None:
    rng = np.random.default_rng(seed)
    block, strides, dilations = (rng.integers(1, 4, size=2) for _ in range(3))
    pads = rng.integers(0, 2, size=4)
    image = dilations * (block - 1) + 1 + rng.integers(2, 6, size=2)
    windows = (image + pads[:2] + pads[2:] - dilations * (block - 1) - 1) // strides + 1
    rows, columns = 3 * int(np.prod(block)), int(np.prod(windows))
    values = {"strides": strides, "dilations": dilations, "pads": pads}
    attributes = ", ".join(f"{name} = [{', '.join(map(str, value))}]" for name, value in values.items())
    held = f"int64[2] s = {{{image[0]}, {image[1]}}}, int64[2] b = {{{block[0]}, {block[1]}}}"
    body = f"y = Col2Im <{attributes}> (x, s, b)"
    text = net(f"float[2,{rows},{columns}] x", f"float[2,3,{image[0]},{image[1]}] y", body, held)
    compare("col2im-to-conv-transpose", text, {"x": real(seed, 2, rows, columns)}, rtol=1e-5, atol=1e-5)


@settings(max_examples=20)
@given(st.integers(0, 4), st.integers(1, 3), st.integers(1, 3), SEEDS)
def test_tfidf(skips: int, low: int, more: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts, pool, high = [0], list(rng.permutation(4)[:2]), low + more - 1
    grams = len(pool)
    for size in range(2, high + 1):
        counts.append(len(pool))
        pool += list(rng.integers(0, 4, size=2 * size))
        grams += 2
    places = rng.permutation(grams + 2)[:grams]
    lists = {"ngram_counts": counts, "ngram_indexes": places, "pool_int64s": pool}
    attributes = ", ".join(f"{name} = [{', '.join(map(str, value))}]" for name, value in lists.items())
    limits = f"min_gram_length = {low}, max_gram_length = {high}, max_skip_count = {skips}"
    body = f'y = TfIdfVectorizer <mode = "TF", {limits}, {attributes}> (x)'
    text = net("int64[2,9] x", f"float[2,{max(places) + 1}] y", body)
    compare("tfidf-to-compare", text, {"x": rng.integers(0, 4, size=(2, 9))})


@settings(max_examples=15)
@given(st.sampled_from(["int8", "uint8"]), SEEDS)
def test_clip(dtype: str, seed: int) -> None:
    low, high = whole(seed + 1, KINDS[dtype], (2,))
    held = f"{dtype} low = {{{low}}}, {dtype} high = {{{high}}}"
    text = net(f"{dtype}[4,5] x", f"{dtype}[4,5] y", "y = Clip (x, low, high)", held)
    compare("clip-to-min-max", text, {"x": whole(seed, KINDS[dtype], (4, 5))})


@settings(max_examples=15)
@given(st.sampled_from(["Max", "Min"]), st.integers(0, 1), st.floats(0, 1), SEEDS)
def test_bool_reduction(op: str, keep: int, share: float, seed: int) -> None:
    x = np.random.default_rng(seed).random((3, 4, 2)) < share
    shape = "3,1,2" if keep else "3,2"
    body = f"y = Reduce{op} <keepdims = {keep}> (x, axes)"
    text = net("bool[3,4,2] x", f"bool[{shape}] y", body, "int64[1] axes = {1}", opset=20)
    compare("bool-reduction-to-count", text, {"x": x}, reference=True)


@settings(max_examples=15)
@given(st.integers(1, 5), st.integers(1, 7), SEEDS)
def test_tensor_scatter(steps: int, start: int, seed: int) -> None:
    text = net(
        f"float[2,3,8,2] x, float[2,3,{steps},2] u, int64[2] i",
        "float[2,3,8,2] y",
        'y = TensorScatter <mode = "circular"> (x, u, i)',
        opset=24,
    )
    feeds = {"x": real(seed, 2, 3, 8, 2), "u": real(seed + 1, 2, 3, steps, 2), "i": np.array([start, 0])}
    compare("tensor-scatter-to-elements", text, feeds, reference=True)


@settings(max_examples=15)
@given(st.integers(0, 2), SEEDS)
def test_max_unpool(wider: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    indices = rng.permutation(2 * 2 * 24)[:24].reshape(2, 2, 2, 3)
    held = f"int64[4] s = {{2, 2, {4 + wider}, {6 + wider}}}"
    body = "y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (x, i, s)"
    text = net("float[2,2,2,3] x, int64[2,2,2,3] i", f"float[2,2,{4 + wider},{6 + wider}] y", body, held)
    compare("max-unpool-to-scatter", text, {"x": real(seed, 2, 2, 2, 3), "i": indices}, reference=True)


@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(0, 1), st.integers(1, 9), st.sampled_from(["int64", "float"]), SEEDS)
def test_unique(count: int, ordered: int, kinds: int, dtype: str, seed: int) -> None:
    body = f"values, i, y = Unique <sorted = {ordered}> (x)"
    text = net(f"{dtype}[2,{count}] x", f"int64[{2 * count}] y", body)
    x = np.random.default_rng(seed).integers(-kinds, kinds, size=(2, count))
    feeds = {"x": x.astype(np.float32 if dtype == "float" else np.int64)}
    compare("unique-to-compare", text, feeds)


@settings(max_examples=10)
@given(st.integers(1, 4), st.integers(1, 4), SEEDS)
def test_matmul_of_a_vector(inner: int, stack: int, seed: int) -> None:
    text = net(f"float[{inner}] a, float[{stack},{inner},3] b", f"float[{stack},3] y", "y = MatMul (a, b)")
    feeds = {"a": real(seed, inner), "b": real(seed + 1, stack, inner, 3)}
    compare("matmul-vector-to-matrix", text, feeds, rtol=1e-5, atol=1e-6)


@settings(max_examples=15)
@given(st.sampled_from(["float8e4m3fn", "int4", "float4e2m1"]), st.sampled_from(["float", "float16"]), SEEDS)
def test_cast_to_a_small_type(small: str, dtype: str, seed: int) -> None:
    to = {"float8e4m3fn": 17, "int4": 22, "float4e2m1": 23}[small]
    text = net(f"{dtype}[3,4] x", f"{small}[3,4] y", f"y = Cast <to = {to}> (x)", opset=23)
    x = real(seed, 3, 4, scale=300 if to == 17 else 9).astype(
        np.float16 if dtype == "float16" else np.float32
    )
    compare("cast-to-quantize", text, {"x": x}, reference=True)
