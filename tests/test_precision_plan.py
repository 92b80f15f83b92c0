"""The rehearsal by the fused plan: no rounding inside a layer, and rounding wherever the plan does not prove that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.fused_plan import FusedLayer
from engine.graph import files
from engine.precision.inside import Inside, inside
from engine.precision.prepare import prepare
from engine.precision.rehearsal import run_shadow
from engine.precision.shadow import build_shadow
from engine.samples import Array
from tests.test_precision_shadow import lowered, parse, probed

CHAIN = """
g (float16[n] x, float16 h) => (float16[n] y)
{ [a] s = Mul (x, x)  [b] t = Neg (s)  [c] u = Mul (t, h)  [d] y = Abs (u) }
"""


def layer(*nodes: str, name: str = "kernel", kind: str = "kgen", profile: int = 0) -> FusedLayer:
    return FusedLayer(name, kind, nodes=nodes, profile=profile)


def values(body: str, *layers: FusedLayer) -> Inside:
    model = parse(body)
    prepare(model)
    return inside(model, layers)


def test_a_value_is_inside_when_its_maker_and_all_its_readers_are_in_one_layer() -> None:
    assert values(CHAIN, layer("a", "b", "c", "d")) == Inside(frozenset("stu"), 1, 0)  # y is handed out
    assert values(CHAIN, layer("a", "b"), layer("c", "d")) == Inside(frozenset("su"), 2, 0)


def test_one_reader_elsewhere_makes_a_border() -> None:
    body = """
    g (float16[n] x) => (float16[n] y, float16[n] z) { [a] s = Exp (x)  [b] y = Neg (s)  [c] z = Abs (s) }
    """
    assert "s" in values(body, layer("a", "b", "c")).values
    assert values(body, layer("a", "b"), layer("c")) == Inside(frozenset(), 3, 0)


@pytest.mark.parametrize(
    "layers",
    [
        (
            layer("a", "b"),
            layer("b", "c", "d"),
        ),  # b is split: s may be read, and t be made, in the second as well
        (layer("a", "b"), layer("a", "c", "d")),  # a is split
    ],
)
def test_a_node_that_is_split_between_layers_is_not_inside(layers: tuple[FusedLayer, ...]) -> None:
    assert "s" not in values(CHAIN, *layers).values


def test_what_the_plan_does_not_name_is_counted_and_rounded() -> None:
    assert values(CHAIN, layer("a", "b")) == Inside(frozenset("s"), 0, 3)
    assert values(CHAIN, layer("b", "c", "d")) == Inside(frozenset("tu"), 1, 1)
    assert values(CHAIN) == Inside(frozenset(), 0, 4)


@pytest.mark.parametrize("region", [{"name": "{ForeignNode[a...d]}"}, {"kind": "Myelin"}])
def test_a_region_of_many_kernels_proves_nothing(region: dict[str, str]) -> None:
    assert values(CHAIN, layer("a", "b", "c", "d", **region)) == Inside(frozenset(), 0, 4)  # type: ignore[arg-type]
    # not even for a node that another layer names too
    assert not values(CHAIN, layer("a", "b"), layer("b", **region)).values  # type: ignore[arg-type]


def test_each_profile_has_its_own_layers() -> None:
    whole = layer("a", "b", "c", "d")
    assert "s" in values(CHAIN, whole, replace(whole, profile=1)).values
    assert "t" not in values(CHAIN, whole, layer("a", "b", profile=1), layer("c", "d", profile=1)).values


def test_readers_of_the_size_alone_and_wide_values_do_not_count() -> None:
    body = """
    g (float16[n] x) => (int64[1] k, float[n] y) { [a] s = Exp (x)  [k] k = Shape (s)  [c] y = Cast <to = 1> (s) }
    """
    assert values(body, layer("a", "c")) == Inside(frozenset("s"), 0, 0)


def test_a_reader_in_a_subgraph_is_seen() -> None:
    body = """
    g (bool c, float16[2] x) => (float16[2] y) {
      [a] s = Exp (x)
      [if] y = If (c) < then_branch = yes () => (float16[2] p) { [p] p = Neg (s) },
                        else_branch = no () => (float16[2] q) { [q] q = Abs (s) } >
    }
    """
    assert "s" not in values(body, layer("a", "p"), layer("q")).values


def shadowed(folder: Path, model: ir.Model, unrounded: frozenset[str], **feeds: object) -> dict[str, Array]:
    files.save(build_shadow(model, unrounded), folder / "fused.onnx")
    return run_shadow(folder / "fused.onnx", {name: np.asarray(value) for name, value in feeds.items()})


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ((layer("a", "b", "c", "d"),), 45000 // 32 * 32),
        ((layer("a", "b"), layer("c", "d")), np.inf),  # t, which only turns the sign of s, is the border
        ((layer("a"), layer("b", "c", "d")), np.inf),
    ],
)
def test_what_moves_an_unrounded_value_out_of_its_layer_is_rounded(
    tmp_path: Path, layers: tuple[FusedLayer, ...], expected: float
) -> None:
    model = lowered(
        tmp_path,
        # x*x leaves FP16 for 300; half of it does not
        "g (float[n] x) => (float[n] y) <float h = {0.5}> "
        "{ [a] s = Mul (x, x)  [b] t = Neg (s)  [c] u = Mul (t, h)  [d] y = Abs (u) }",
        io="lower",
    )
    found = inside(model, layers)
    np.testing.assert_array_equal(shadowed(tmp_path, model, found.values, x=[300.0])["y"], [expected])


HALF: Mapping[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Neg": np.negative, "Abs": np.abs,
    "Transpose": np.transpose,
}  # fmt: skip
Steps = list[tuple[str, tuple[int, ...]]]


@st.composite
def programs(draw: st.DrawFn) -> Steps:
    """Elementwise ops and transpositions, each with the numbers of the values it reads; 0 and 1 are the inputs."""
    steps = []
    for index in range(draw(st.integers(2, 8))):
        op = draw(st.sampled_from(sorted(HALF)))
        arity = 1 if op in ("Neg", "Abs", "Transpose") else 2
        steps.append((op, tuple(draw(st.integers(max(0, index - 2), index + 1)) for _ in range(arity))))
    return steps


def graph(steps: Steps, outputs: list[int]) -> str:
    lines = [
        f"[n{index}] v{index} = {op} ({', '.join(f'v{number}' for number in reads)})"
        for index, (op, reads) in enumerate(steps, start=2)
    ]
    made = ", ".join(f"float[3, 3] v{index}" for index in outputs)
    return f"g (float[3, 3] v0, float[3, 3] v1) => ({made}) {{ {' '.join(lines)} }}"


def drawn(scale: float, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: (rng.normal(size=(3, 3)) * scale).astype(np.float32) for name in ("v0", "v1")}


SCALES = st.sampled_from([0.003, 1.0, 30.0, 200.0, 3000.0])
slow = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@slow
@given(steps=programs(), scale=SCALES, seed=st.integers(0, 2**16))
def test_no_overflow_between_ops_in_numpy_float16_is_missed(
    tmp_path: Path, steps: Steps, scale: float, seed: int
) -> None:
    """numpy computes every op in float16; where it has an infinity or a NaN the probe says so, and only there."""
    model = lowered(tmp_path, graph(steps, [len(steps) + 1]))
    feeds = drawn(scale, seed)
    known = [feeds[name].astype(np.float16) for name in ("v0", "v1")]
    broken = set()
    for index, (op, reads) in enumerate(steps, start=2):
        with np.errstate(all="ignore"):
            known.append(np.asarray(HALF[op](*[known[number] for number in reads])))
        assert known[-1].dtype == np.float16
        if not np.isfinite(known[-1]).all():
            broken.add(f"n{index}")
    found = probed(tmp_path, model, **feeds)
    assert {name for name in found.affected if name.startswith("n")} == broken
    assert bool(found.culprits) >= bool(broken)


@slow
@given(steps=programs(), scale=SCALES, seed=st.integers(0, 2**16), data=st.data())
def test_by_the_plan_exactly_what_is_inside_is_not_rounded(
    tmp_path: Path, steps: Steps, scale: float, seed: int, data: st.DataObject
) -> None:
    """Against numpy: float32 inside of layers that are drawn at random, float16 at their borders; bit for bit."""
    outputs = [len(steps), len(steps) + 1]
    model = lowered(tmp_path, graph(steps, outputs), io="lower")
    homes = [data.draw(st.integers(0, 2)) for _ in steps]
    layers = [
        layer(*(f"n{index}" for index, home in enumerate(homes, start=2) if home == number))
        for number in range(3)
    ]
    found = inside(model, layers)
    readers = {
        number: {homes[index] for index, (_, reads) in enumerate(steps) if number in reads}
        for number in range(2, len(steps) + 2)
    }
    kept = {
        number for number, read in readers.items() if read == {homes[number - 2]} and number not in outputs
    }
    assert found.values == {f"v{number}" for number in kept}
    feeds = drawn(scale, seed)
    known = [feeds[name].astype(np.float16).astype(np.float32) for name in ("v0", "v1")]
    for index, (op, reads) in enumerate(steps, start=2):
        with np.errstate(all="ignore"):
            value = np.asarray(HALF[op](*[known[number] for number in reads]))
            known.append(value if index in kept else value.astype(np.float16).astype(np.float32))
    got = shadowed(tmp_path, model, found.values, **feeds)
    for number in outputs:
        if number >= 2:
            np.testing.assert_array_equal(got[f"v{number}"], known[number])
