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

from engine import sensitivity
from engine.compare import compare
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
    counted = [item for item in outcomes if item.state != "load"]
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
    assert bench.explain(made, made.graph)[0] == "numerically equivalent"


def test_every_kind_of_fault_changes_the_graph(benches: dict[str, bench.Bench]) -> None:
    made = benches["detector"]
    before = ir.to_proto(files.load(made.graph)).SerializeToString()
    for kind, places in faults.KINDS.items():
        for index in range(sum(1 for _ in places(bench.subject(made, 0)))):
            of = bench.subject(made, 0)
            list(places(of))[index].plant()
            assert ir.to_proto(of.model).SerializeToString() != before, (kind, index)


# --- constants -----------------------------------------------------------------------------------------------

GRAPH = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[n, 16] x) => (float[n, 24] y)
<float[16, 24] weight = {0.0}, float bias = {0.7}>
{
  p = MatMul(x, weight)
  s = Tanh(p)
  k = Constant<value = float {1.3}>()
  t = Mul(s, k)
  y = Add(t, bias)
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


def sample(seed: int) -> sensitivity.Sample:
    x = np.random.default_rng(seed).normal(size=(40, 16)).astype(np.float32)
    exact = np.tanh(x.astype(np.float64) @ WEIGHT) * np.float64(np.float32(1.3)) + np.float64(np.float32(0.7))
    single = np.tanh(x @ WEIGHT) * np.float32(1.3) + np.float32(0.7)
    return sensitivity.Sample({"x": x}, {"y": single}, {"y": exact})


def judged(told: Sequence[sensitivity.Told]) -> object:
    result = StepResult(
        "parity", "ok", facts={"constants": "run"}, measurements={"constants": to_plain(told)}
    )
    return constants.claim(result, "estimated")


@pytest.mark.parametrize(
    ("changes", "status", "named"),
    [
        ({}, "pass", ""),
        ({"weight": 1 + 1e-6}, "fail", "weight"),
        ({"factor": 1 - 1.2e-6}, "fail", "k/lifted"),
    ],
)
def test_a_constant_a_millionth_off_is_told_from_rounding(
    changes: dict[str, float], status: str, named: str, tmp_path: Path
) -> None:
    told = sensitivity.tell(chain(tmp_path, **changes), [sample(1), sample(2)])
    assert {item.name for item in told} == {"weight", "bias", "k/lifted"}
    claim = judged(told)
    assert claim.status == status, (claim, told)
    assert claim.where.startswith(named)
    if named:
        (item,) = [item for item in told if item.name == named]
        assert item.off == pytest.approx(changes.get("weight", changes.get("factor", 1)) - 1, abs=3e-7)
        assert claim.why == f"the outputs differ as if {named} were off by {item.off:.2g} of itself"
    assert list(tmp_path.glob(".*")) == []


OFF = sensitivity.Told("w", 1e-6, 1e-8, 0.2, 0.8)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "fail"),
        ({"off": 6e-7}, "pass"),
        ({"off": -1e-6}, "fail"),
        ({"sigma": 1.19e-7, "off": 9e-7}, "pass"),  # within eight standard errors
        ({"sigma": 2e-7, "off": 1.0}, "not run"),  # not told: a bias of the runtime may look like anything
        ({"moves": 0.05, "share": 0.3}, "pass"),  # less than roundoff
        ({"moves": 0.05}, "fail"),  # but it is most of the error
        ({"share": 0.01}, "fail"),
    ],
)
def test_when_a_constant_is_held_against_the_graph(changes: dict[str, float], status: str) -> None:
    assert judged([replace(OFF, **changes)]).status == status


def test_constants_that_were_not_looked_at_are_not_run() -> None:
    why = "not run: there is no reference in FP64"
    claim = constants.claim(StepResult("parity", "ok", facts={"constants": why}), "")
    assert (claim.status, claim.why) == ("not run", "there is no reference in FP64")


# --- rounding ------------------------------------------------------------------------------------------------


def rounded(error: float, *, within: bool = True, exact: bool = True) -> object:
    double = np.linspace(1, 2, 50)
    single = (double + 1e-7 * np.sign(np.sin(np.arange(50)))).astype(np.float64)
    got = double + error * np.sign(np.cos(np.arange(50)))
    found = compare({"y": single}, {"y": got}, "little", {"y": double} if exact else None)
    case = {"name": "little", "kind": "little", "sizes": {}, "within": within, "state": "made"}
    stress = StepResult("stress", "ok", facts={"cases": [case], "noise": "not run: too large"})
    return rounding.claim(stress, StepResult("parity", "ok", measurements={"stress": to_plain(found)}), "")


def test_an_error_beyond_rounding() -> None:
    assert rounded(2e-7).status == "pass"
    claim = rounded(4e-7)
    assert claim.status == "fail"
    assert claim.value == pytest.approx(4.0, rel=0.1)
    assert (
        claim.why
        == "y is 4 times as far from FP64 as PyTorch is in FP32: more than another order of operations"
    )
    assert rounded(4e-7, within=False).status == "not run"
    nothing = rounded(4e-7, exact=False)
    assert (nothing.status, nothing.why) == ("not run", "there is no reference in FP64 (not run: too large)")
