"""The diagnosis: a minimal set, named in few words, written into the recipe, and no claim without a rehearsal."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper, parser

from engine import diagnosing, recipe_patch, runtime
from engine.comparison import Comparison
from engine.diagnosis import cover, quantised, search
from engine.diagnosis.find import find
from engine.diagnosis.margin import worst
from engine.diagnosis.trials import Sample, Trials
from engine.errors import RecipeError
from engine.graph import files
from engine.precision.prepare import prepare
from engine.recipe import Limits, Override
from tests.culprits.plants import SYNTHETIC, write
from tests.culprits.run import portwright

# --- the search


@given(st.integers(1, 60), st.data())
def test_a_minimal_set_of_any_monotone_test_is_found_in_few_tests(count: int, data: st.DataObject) -> None:
    clauses = data.draw(
        st.lists(st.sets(st.integers(0, count - 1), min_size=1, max_size=3), min_size=1, max_size=4)
    )
    asked: set[frozenset[int]] = set()

    def passes(chosen: frozenset[int]) -> bool:
        asked.add(chosen)
        return all(chosen & clause for clause in clauses)  # one of each clause must be there

    order = data.draw(st.permutations(range(count)))
    found = search.minimal(order, passes, 99)
    assert passes(found)
    assert all(not passes(found - {item}) for item in found)
    k = len(found)
    assert len(asked) <= k * (2 * math.ceil(math.log2(count + 1)) + 2) + 1


def test_a_well_ranked_cause_costs_few_tests() -> None:
    asked: list[frozenset[int]] = []

    def passes(chosen: frozenset[int]) -> bool:
        asked.append(chosen)
        return {0, 2} <= chosen

    assert search.minimal(range(1000), passes, 9) == {0, 2}
    assert len(asked) <= 10


def test_more_members_than_wanted_is_said() -> None:
    with pytest.raises(search.TooMany):
        search.minimal(range(20), lambda chosen: len(chosen) >= 10, 4)
    with pytest.raises(search.TooMany):
        search.minimal(range(20), lambda chosen: 19 in chosen, 4, longest=10)


# --- margins


def test_the_worst_limit_decides_and_what_is_not_finite_is_infinite() -> None:
    limits = Limits(max_abs=0.1, cosine=0.99)
    near = Comparison("y", "opt", elements=1, max_abs=0.05, cosine=0.98)
    margin = worst(limits, [near])
    assert (margin.what, round(margin.ratio, 6), margin.good) == ("cosine", 2.0, False)
    broken = Comparison("y", "opt", elements=1, max_abs=math.nan, cosine=1.0)
    assert worst(limits, [near, broken]).ratio == math.inf
    assert not worst(limits, []).good
    assert not worst(limits, [Comparison("y", "opt", "missing")]).good


# --- names for a set


def _model(modules: dict[str, str]) -> onnx.ModelProto:
    """A chain of Tanh nodes called as the keys, in the modules of the values."""
    lines, last = [], "x"
    for name in modules:
        lines.append(f"v{name} = Tanh({last})")
        last = f"v{name}"
    body = "\n".join([*lines, f"y = Identity({last})"])
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 18]>\ng (float[n] x) => (float[n] y) {{\n{body}\n}}'
    )
    for node, (name, module) in zip(model.graph.node, modules.items(), strict=False):
        node.name = name
        node.metadata_props.add(key="portwright.module", value=module)
    return onnx.shape_inference.infer_shapes(model)


def _covered(
    tmp_path: Path, modules: dict[str, str], wanted: list[str], held: frozenset[str] = frozenset()
) -> list[str]:
    from engine.precision import selectors

    path = tmp_path / "m.onnx"
    onnx.save(_model(modules), path)
    model = files.load(path)
    prepare(model)
    lines = cover.cover(model, wanted, frozenset(), held, "fp32", "x")
    taken = {name for found in selectors.resolve(model, "fp16", lines).taken for name in found}
    assert taken >= set(wanted)
    return [selectors.describe(line) for line in lines]


def test_six_norms_of_an_encoder_become_one_pattern(tmp_path: Path) -> None:
    layers = {f"{kind}{i}": f"encoder.layer.{i}.{kind}" for i in range(6) for kind in ("dense", "norm")}
    wanted = [f"norm{i}" for i in range(6)]
    assert _covered(tmp_path, layers, wanted) == ["module: encoder.layer.*.norm"]
    assert _covered(tmp_path, layers, wanted[:1]) == ["module: encoder.layer.0.norm"]


def test_a_name_takes_nothing_else(tmp_path: Path) -> None:
    modules = {"a": "block.one", "b": "block.one", "c": "block.two"}
    assert _covered(tmp_path, modules, ["a"]) == ["node: a"]
    assert _covered(tmp_path, modules, ["a", "b"]) == ["module: block.one"]
    assert _covered(tmp_path, modules, ["a", "b", "c"]) == ["module: block"]


def test_a_kind_that_an_override_holds_is_not_named(tmp_path: Path) -> None:
    layers = {f"{kind[0]}{i}": f"layer.{i}.{kind}" for i in range(8) for kind in ("dense", "norm")}
    wanted = [f"n{i}" for i in range(7)]
    assert _covered(tmp_path, layers, wanted) == ["module: layer.*.norm"]  # one more than asked, in one line
    assert len(_covered(tmp_path, layers, wanted, held=frozenset(["n7"]))) == 7


# --- the recipe's text

_LINE = {"module": "a.b", "type": "fp32", "because": "rehearsed"}
_BARE = "portwright: 1\nname: x\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (_BARE, _BARE + "precision:\n  overrides:\n    - {L}\n"),
        (_BARE[:-1], _BARE + "precision:\n  overrides:\n    - {L}\n"),
        (
            "precision:\n  base: fp16  # narrow\n\n# then\nbuild: {target: sm89}\n",
            "precision:\n  base: fp16  # narrow\n  overrides:\n    - {L}\n\n# then\nbuild: {target: sm89}\n",
        ),
        (
            "precision:\n  overrides:\n  - {op: A, type: fp32, because: z}  # one\nbuild: {}\n",
            "precision:\n  overrides:\n  - {op: A, type: fp32, because: z}  # one\n  - {L}\nbuild: {}\n",
        ),
        (
            "precision: {base: fp16, io: keep}  # one\nbuild: {}\n",
            "precision:  # one\n  base: fp16\n  io: keep\n  overrides:\n    - {L}\nbuild: {}\n",
        ),
        ("precision: {overrides: []}\n", "precision:\n  overrides:\n    - {L}\n"),
        (
            "precision: {overrides: [{op: A, type: fp32, because: z}]}\n",
            "precision: {overrides: [{op: A, type: fp32, because: z}, {L}]}\n",
        ),
        ("precision:\n  overrides: []\n", "precision:\n  overrides: [{L}]\n"),
        (
            "precision:\r\n  overrides:\r\n    - op: A\r\n      because: z\r\n",
            "precision:\r\n  overrides:\r\n    - op: A\r\n      because: z\r\n    - {L}\r\n",
        ),
    ],
)
def test_lines_are_put_in_and_nothing_else_changes(before: str, after: str) -> None:
    written = after.replace("{L}", "{module: a.b, type: fp32, because: rehearsed}")
    assert recipe_patch.with_overrides(before, [_LINE]) == written


def test_what_cannot_be_added_to_is_left_and_the_lines_are_told() -> None:
    with pytest.raises(RecipeError) as caught:
        recipe_patch.with_overrides("{precision: {base: fp16}}\n", [_LINE], "r.yaml")
    assert "left as it is" in str(caught.value)
    assert "module: a.b" in str(caught.value)


# --- from a graph to nodes


def _graph(tmp_path: Path, body: str, constants: dict[str, float]) -> Path:
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 18]>\ng (float[n,16] x) => (float[n,16] y) {{\n{body}\n}}'
    )
    for name, value in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
    path = tmp_path / "g.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def _samples(path: Path, scale: float = 1.0) -> list[Sample]:
    found = []
    for rows in (1, 5):
        feeds = {"x": (np.random.default_rng(rows).normal(size=(rows, 16)) * scale).astype(np.float32)}
        found.append(Sample(f"n{rows}", feeds, runtime.run(runtime.session(path), feeds)))
    return found


_OFFSET = "a = Tanh(x)\nb = Add(a, off)\nc = Sub(b, off)\nd = Tanh(c)\ny = Tanh(d)"


def test_an_offset_is_found_and_its_files_are_gone(tmp_path: Path) -> None:
    path = _graph(tmp_path, _OFFSET, {"off": 3000.0})
    found = find(Trials(path, "fp16", "fp16", "keep", (), Limits(max_abs=0.01)), _samples(path))
    assert (found.verdict, found.nodes) == ("found", ("Add_b", "Sub_c"))
    assert found.before.ratio > 1 >= (found.after.ratio if found.after else 9)
    assert "b" in found.tensors
    assert [item.name for item in tmp_path.iterdir()] == ["g.onnx"]


def test_what_reads_a_tensor_counts_though_it_is_wide_itself(tmp_path: Path) -> None:
    """Sin takes no bfloat16 at this opset: the sum before it is to blame, and nothing else ranks above it."""
    count = 8
    lines = ["t0 = Tanh(x)", *(f"t{i} = Tanh(t{i - 1})" for i in range(1, count))]
    body = "\n".join([*lines, f"b = Add(t{count - 1}, off)", "c = Sin(b)", "y = Tanh(c)"])
    path = _graph(tmp_path, body, {"off": 61.0})
    found = find(Trials(path, "bf16", "bf16", "keep", (), Limits(max_abs=0.03)), _samples(path))
    assert (found.verdict, found.nodes) == ("found", ("Add_b",))
    assert found.ranked[0][0] == "b"


def test_a_graph_within_its_limits_is_fine(tmp_path: Path) -> None:
    path = _graph(tmp_path, _OFFSET, {"off": 1.0})
    assert find(Trials(path, "fp16", "fp16", "keep", (), Limits(max_abs=0.01)), _samples(path)).verdict == "fine"


def test_an_override_that_insists_is_named_as_the_cause(tmp_path: Path) -> None:
    path = _graph(tmp_path, _OFFSET, {"off": 3000.0})
    insists = (Override("fp16", "wanted", op="Add"),)
    found = find(Trials(path, "fp16", "fp16", "keep", insists, Limits(max_abs=0.01)), _samples(path))
    assert found.verdict == "overrides"


def test_a_graph_that_is_wrong_in_fp32_is_not_a_matter_of_precision(tmp_path: Path) -> None:
    path = _graph(tmp_path, _OFFSET, {"off": 3000.0})
    wrong = [Sample(s.shape, s.inputs, {"y": s.expected["y"] + np.float32(0.5)}) for s in _samples(path)]
    assert find(Trials(path, "fp16", "fp16", "keep", (), Limits(max_abs=0.01)), wrong).verdict == "not precision"


def test_an_error_of_every_node_gets_no_list_of_nodes(tmp_path: Path) -> None:
    count = 24
    names = ["x", *(f"t{i}" for i in range(count))]
    body = "\n".join(f"t{i} = Tanh({names[i]})" for i in range(count)) + f"\ny = Add(t{count - 1}, t0)"
    path = _graph(tmp_path, body, {})
    samples = _samples(path)
    trials = Trials(path, "fp16", "fp16", "keep", (), Limits(max_abs=1e-5))
    assert find(trials, samples).verdict == "spread"


# --- by the command line


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, object]]:
    plant = next(item for item in SYNTHETIC if item.name == "dense-offset")
    recipe = write(plant, tmp_path_factory.mktemp("plant"))
    text = recipe.read_text()
    ran = portwright("diagnose", str(recipe), "--json", "--apply")
    assert ran.returncode == 0, ran.stderr
    return recipe, text, json.loads(ran.stdout)


def test_the_change_is_a_diff_of_one_override(diagnosed: tuple[Path, str, dict[str, object]]) -> None:
    recipe, before, found = diagnosed
    added = [line for line in recipe.read_text().splitlines() if line not in before.splitlines()]
    opened = ["precision:  # nothing is kept wide yet", "  base: fp16", "  overrides:"]
    assert added[:3] == opened
    (line,) = added[3:]
    assert line.startswith('    - {module: parts.4, type: fp32, because: "rehearsed: max_abs ')
    assert found["wrote"] is True
    assert str(found["patch"]).startswith("--- a/recipe.yaml\n+++ b/recipe.yaml\n")


def test_the_written_recipe_is_fine_afterwards(diagnosed: tuple[Path, str, dict[str, object]]) -> None:
    recipe, _, _ = diagnosed
    ran = portwright("diagnose", str(recipe))
    assert ran.returncode == 0
    assert "nothing to mend" in ran.stdout
    again = portwright("diagnose", str(recipe), "--json")  # from the run that is there now
    assert json.loads(again.stdout)["facts"]["verdict"] == "fine"


def test_a_recipe_that_is_not_there_is_the_users_fault(tmp_path: Path) -> None:
    ran = portwright("diagnose", str(tmp_path / "none.yaml"))
    assert ran.returncode == 2
    assert "none.yaml" in ran.stderr


def test_an_interrupted_run_is_no_diagnosis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = write(SYNTHETIC[0], tmp_path)
    stopped = SimpleNamespace(record=SimpleNamespace(interrupted=True))
    monkeypatch.setattr(diagnosing.route, "run", lambda *rest, **named: stopped)
    with pytest.raises(KeyboardInterrupt):
        diagnosing.diagnose(recipe, None, lambda event: None, write=False)
    assert "overrides" not in recipe.read_text()


def test_overrides_that_insist_are_told_with_their_lines() -> None:
    margin = {"ratio": 3.0, "what": "max_abs", "value": 0.3, "where": "y at max"}
    facts = {"verdict": "overrides", "base": "fp16", "wider": "fp32", "also": [], "before": margin, "after": margin,
             "rehearsals": 5}  # fmt: skip
    told = list(diagnosing.words(diagnosing.Diagnosis(facts, "r.yaml", narrow=("r.yaml:9:7",))))
    assert told[-1] == "  r.yaml:9:7"


# --- quantised graphs

_PRODUCTS = "a = MatMul(x, w)\nb = Tanh(a)\nc = Pad(b, pads, size)\nd = MatMul(c, v)\ne = Sub(d, off)\ny = MatMul(e, w)"


def _quantised(tmp_path: Path, size: float) -> tuple[Path, dict[str, float]]:
    """Three products; the second one reads a feature of ``size`` whose share is taken out again behind it."""
    rng = np.random.default_rng(5)
    v = rng.normal(size=(17, 16)) / 4
    v[16] = 0.1
    path = _graph(tmp_path, _PRODUCTS, {"off": size * 0.1, "size": size})
    model = onnx.load(path)
    for name, array in {"w": rng.normal(size=(16, 16)) / 4, "v": v}.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    model.graph.initializer.append(numpy_helper.from_array(np.array([0, 0, 0, 1]), "pads"))
    model.opset_import[0].version = 21
    del model.graph.value_info[:]
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path, {"x": 4.0, "c": size, "e": 4.0}


def test_the_product_that_int8_breaks_is_found(tmp_path: Path) -> None:
    path, ranges = _quantised(tmp_path, 300.0)
    trials = Trials(path, "int8", "fp16", "keep", (), Limits(max_abs=0.15), ranges)
    found = quantised.find(trials, _samples(path)[1:])
    assert (found.verdict, found.nodes, found.wider) == ("found", ("MatMul_d",), "fp16")
    assert found.ranked[0][0] == "MatMul_d"
    assert found.before.ratio > 1 >= (found.after.ratio if found.after else 9)
    assert [item.name for item in tmp_path.iterdir()] == ["g.onnx"]


def test_an_override_that_insists_on_int8_is_the_cause(tmp_path: Path) -> None:
    path, ranges = _quantised(tmp_path, 300.0)
    insists = (Override("int8", "wanted", node="MatMul_d"),)
    trials = Trials(path, "fp16", "fp16", "keep", insists, Limits(max_abs=0.15), ranges)
    assert quantised.find(trials, _samples(path)[1:]).verdict == "overrides"


def test_a_float_fault_below_quantisation_is_found_as_well(tmp_path: Path) -> None:
    path, ranges = _quantised(tmp_path, 30000.0)  # FP16 holds the feature in steps of 16, and its share in steps of 2
    trials = Trials(path, "int8", "fp16", "keep", (), Limits(max_abs=0.15), ranges)
    found = quantised.find(trials, _samples(path)[1:])
    assert found.verdict == "found"
    wide = found.nodes if found.wider == "fp32" else found.also
    assert "MatMul_d" in wide
