"""A few cases of the gauntlet; ``make gauntlet`` runs them all."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.gauntlet import run

CASES = yaml.safe_load((run.HERE / "cases.yaml").read_text())
SHORT = [
    ("29_batch_baked_by_len", "torchscript"),
    ("41_external_data_damaged", "padded"),
    ("42_ort_silent_cpu_fallback", "provider"),
    ("48_tiny_constant_optimised_away", "dynamo"),
]


def source() -> Path:
    if not run.DEFAULT.is_dir():
        pytest.skip(f"there are no cases in {run.DEFAULT}")
    return run.DEFAULT


def test_every_case_is_judged() -> None:
    jobs = list(run.wanted(source(), []))
    assert {case for _, case, _, _ in jobs} == set(CASES)
    assert len(jobs) >= len(CASES)


@pytest.mark.parametrize(("case", "way"), SHORT)
def test_cases_end_as_they_must(case: str, way: str) -> None:
    row = run.judged(source() / case, case, way, CASES[case])
    assert not row.fault, row.got.words


def test_a_wrong_graph_that_is_accepted_is_noticed(tmp_path: Path) -> None:
    """The check that is independent of the engine: a graph that differs from the case's model."""
    import onnx
    import onnx.parser

    case = source() / "40_random_noise_inside"
    (tmp_path / "model.py").write_text((case / "model.py").read_text().replace("0.1 *", "1.0 *"))
    (tmp_path / "port" / "onnx").mkdir(parents=True)
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[b, 7] x) => (float[b, 7] y) { y = Identity(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "port" / "onnx" / "export.onnx")
    assert "off by" in run._differs(case, "dynamo", tmp_path)
