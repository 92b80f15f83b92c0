"""The short form of the mutation test, and the two claims that it brought about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from engine import exact, sensitivity
from engine.claims import Claim
from engine.errors import StepError
from engine.graph import files
from engine.plain import to_plain
from engine.stress import constants, rounding
from engine.values import StepResult
from tests.mutants import bench, faults, healthy, models, run

SHORT = ("lstm", "detector")


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bench.Bench]:
    folder = tmp_path_factory.mktemp("mutants")
    return {name: bench.run(models.by_name(name), folder / name, exporter="torchscript") for name in SHORT}


@pytest.mark.slow
def test_faults_are_caught_and_survivors_explained(
    benches: dict[str, bench.Bench], capfd: pytest.CaptureFixture[str]
) -> None:
    outcomes: list[bench.Outcome] = []
    for made in benches.values():
        found, unexplained = run.plant(made, 15, seed=1)
        assert unexplained == []
        outcomes += found
    run.table(outcomes)
    counted = [item for item in outcomes if item.counts]
    assert len(counted) == 30
    assert sum(item.state == "caught" for item in counted) >= 29, capfd.readouterr().out
    assert len({item.fault.kind for item in counted}) >= 8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_healthy_exports_raise_no_alarm(benches: dict[str, bench.Bench]) -> None:
    found = [*healthy.exports(models.by_name("lstm"), benches["lstm"], (17, 18)),
             *healthy.exports(models.by_name("detector"), benches["detector"], (17, 18), ("torchscript",))]  # fmt: skip
    assert [(item.alarms, item.why) for item in found] == [((), "")] * 4
    assert [bench.complaints(made) for made in benches.values()] == [[], []]


def test_a_fault_that_nobody_would_notice_is_not_explained_away(benches: dict[str, bench.Bench]) -> None:
    """The explanation is found by running: for a plain fault there is none."""
    made = benches["detector"]
    kind = "weight row zeroed"
    _, path = bench.plant(made, 0, kind, 0)
    assert bench.explain(made, path)[0] == ""
    assert bench.explain(made, made.graph)[0] == bench.SAME


def test_every_kind_of_fault_changes_the_graph(benches: dict[str, bench.Bench]) -> None:
    made = benches["detector"]
    before = ir.to_proto(files.load(made.graph)).SerializeToString()
    for kind, places in faults.KINDS.items():
        for index in range(sum(1 for _ in places(bench.subject(made, 0)))):
            of = bench.subject(made, 0)
            list(places(of))[index].plant()
            assert ir.to_proto(of.model).SerializeToString() != before, (kind, index)


# --- the graph in FP64 ---------------------------------------------------------------------------------------

GRAPH = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[n, 16] x) => (float[n, 24] y)
<float[16, 24] weight = {0.0}, float bias = {0.7}>
{
  p = MatMul(x, weight)
  s = Tanh(p)
  k = Constant<value = float {1.3}>()
  t = Mul(s, k)
  u = Cast<to = 1>(t)
  zero = Constant<value_float = 0.0>()
  v = Add(u, zero)
  y = Add(v, bias)
}
"""
RNG = np.random.default_rng(5)
WEIGHT = RNG.normal(0, 0.3, (16, 24)).astype(np.float32)


def chain(folder: Path, weight: float = 1.0, factor: float = 1.0) -> Path:
    model = onnx.parser.parse_model(GRAPH.replace("{1.3}", f"{{{np.float32(1.3) * np.float32(factor):.9g}}}"))
    scaled = (WEIGHT * np.float32(weight)).astype(np.float32)
    kept = [item for item in model.graph.initializer if item.name != "weight"]
    del model.graph.initializer[:]
    model.graph.initializer.extend([*kept, onnx.numpy_helper.from_array(scaled, "weight")])
    path = folder / "chain.onnx"
    onnx.save(model, path)
    return path


def sample(path: Path, seed: int) -> sensitivity.Sample:
    x = np.random.default_rng(seed).normal(size=(40, 16)).astype(np.float32)
    right = np.tanh(x.astype(np.float64) @ WEIGHT) * np.float64(np.float32(1.3)) + np.float64(np.float32(0.7))
    single = np.tanh(x @ WEIGHT) * np.float32(1.3) + np.float32(0.7)
    return sensitivity.Sample({"x": x}, {"y": single}, {"y": right}, exact.Exact(path).run({"x": x}))


def judged(told: Sequence[sensitivity.Told]) -> Claim:
    result = StepResult("parity", "ok", facts={"exact": "run"}, measurements={"constants": to_plain(told)})
    return constants.claim(result, "estimated")


def test_a_graph_in_fp64(tmp_path: Path) -> None:
    one = sample(chain(tmp_path), 3)
    assert one.got["y"].dtype == np.float64
    assert np.abs(one.got["y"] - one.exact["y"]).max() < 1e-14
    assert np.abs(one.single["y"] - one.exact["y"]).max() > 1e-8


@pytest.mark.parametrize(
    ("changes", "status", "named"),
    [({}, "pass", ""), ({"weight": 1 + 1e-6}, "fail", "weight"), ({"factor": 1 - 1e-6}, "fail", "k/lifted")],
)
def test_a_constant_a_millionth_off_is_told(
    changes: dict[str, float], status: str, named: str, tmp_path: Path
) -> None:
    path = chain(tmp_path, **changes)
    told = sensitivity.tell(path, [sample(path, 1), sample(path, 2)])
    assert {"weight", "bias", "k/lifted"} <= {item.name for item in told}
    claim = judged(told)
    assert claim.status == status, (claim, told)
    assert claim.where.startswith(named)
    if named:
        (item,) = [item for item in told if item.name == named]
        assert item.off == pytest.approx(next(iter(changes.values())) - 1, abs=1e-7)
        assert claim.why == f"the outputs differ as if {named} were off by {item.off:.2g} of itself"
    assert list(tmp_path.glob(".*")) == []


OFF = sensitivity.Told("w", 1e-6, 1e-8, 0.2, 0.8)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "fail"),
        ({"off": 4e-7}, "pass"),
        ({"off": -1e-6}, "fail"),
        ({"sigma": 1.19e-7, "off": 9e-7}, "pass"),  # within eight standard errors
        ({"sigma": 2e-7, "off": 1.0}, "not run"),  # not told
        ({"moves": 0.003}, "pass"),  # far less than roundoff
        ({"share": 0.2}, "pass"),  # something else is off
    ],
)
def test_when_a_constant_is_held_against_the_graph(changes: dict[str, float], status: str) -> None:
    assert judged([replace(OFF, **changes)]).status == status


def in_fp64(*found: dict[str, object], why: str = "run") -> Claim:
    return rounding.claim(StepResult("parity", "ok", facts={"exact": why}, measurements={"exact": found}), "")


def test_an_error_in_fp64_is_measured_by_the_rounding_of_fp32(tmp_path: Path) -> None:
    one = sample(chain(tmp_path, weight=1 + 1e-5), 3)
    (item,) = sensitivity.errors([one, one])
    assert item["output"] == "y"
    assert item["error"] == pytest.approx(np.sqrt(2) * np.linalg.norm(one.got["y"] - one.exact["y"]))
    claim = in_fp64(item)
    assert claim.status == "fail"
    assert claim.value == pytest.approx(item["error"] / item["noise"])
    assert in_fp64(*sensitivity.errors([sample(chain(tmp_path), 3)])).status == "pass"


def test_an_output_that_is_not_finite_in_fp64_fails(tmp_path: Path) -> None:
    one = sample(chain(tmp_path), 3)
    broken = replace(one, got={"y": np.full_like(one.got["y"], np.nan)})
    (item,) = sensitivity.errors([one, broken])
    assert np.isfinite(item["error"])
    assert in_fp64(item).status == "fail"


@pytest.mark.parametrize(
    ("error", "noise", "status"),
    [
        (1e-6, 1e-6, "pass"),
        (1.6e-6, 1e-6, "fail"),
        (1.6e-6, 2e-6, "pass"),
        (1e-8, 0.0, "pass"),
        (1e-6, 0.0, "fail"),
    ],
)
def test_what_is_allowed_in_fp64(error: float, noise: float, status: str) -> None:
    claim = in_fp64({"output": "y", "error": error, "noise": noise, "size": 1.0})
    assert claim.status == status
    if (error, noise) == (1.6e-6, 1e-6):
        assert claim.why == (
            "y is off by 1.6 times PyTorch's rounding error, and in FP64 there is none to explain it"
        )


@pytest.mark.parametrize(
    "why", ["not run: there is no reference in FP64", "not run: the evaluator does not know X"]
)
def test_what_was_not_computed_is_not_run(why: str) -> None:
    result = StepResult("parity", "ok", facts={"exact": why})
    for claim in (constants.claim(result, ""), rounding.claim(result, "")):
        assert (claim.status, claim.why) == ("not run", why.removeprefix("not run: "))


def test_what_the_evaluator_does_not_take_is_a_step_error(tmp_path: Path) -> None:
    text = GRAPH.replace("<float[16, 24] weight = {0.0}, float bias = {0.7}>", "")
    text = text.replace("Tanh(p)", "Strange(p)").replace("x) =>", "x, float[16, 24] weight, float bias) =>")
    path = tmp_path / "strange.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    with pytest.raises(StepError) as caught:
        exact.Exact(path).run({"x": np.zeros((2, 16), np.float32)})
    assert "the ONNX reference evaluator cannot compute the graph: " in str(caught.value)
    assert "Strange" in str(caught.value)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gathering_elements(axis: int) -> None:
    data = RNG.normal(size=(70, 80))
    indices = RNG.integers(-70, 70, (70, 80))
    (got,) = exact.GatherElements._run(None, data, indices, axis)  # type: ignore[arg-type]
    assert np.array_equal(got, np.take_along_axis(data, indices, axis))
