"""Hard inputs: which are made, that they stay inside what is declared, and that they catch what ordinary ones miss."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import divergence, intake, route, samples
from engine.claims import Claim
from engine.compare import compare, flips
from engine.comparison import Comparison
from engine.errors import Exit, StepError
from engine.plain import to_plain
from engine.plan import PlannedInput
from engine.plan_inputs import PlannedImage, PlannedMask
from engine.recipe import Axis
from engine.steps.stress import _refused as refused
from engine.stress import cases, content, judge, kinds
from engine.stress_names import KINDS
from engine.values import StepResult
from tests.conftest import ROOT, Cli, record_of
from tests.rules_tools import model as parsed
from tests.test_route import edit, silent, tampered

__all__ = ["tampered"]  # a fixture

RNG = np.random.default_rng(0)
EVERYTHING = frozenset(op for kind in kinds.KINDS for op in kind.ops)


def test_every_kind_is_named_once() -> None:
    made = [kind.name for kind in kinds.KINDS]
    assert len(made) == len(set(made))
    assert {*made, "little", "corner", "compared", "fp64"} == set(KINDS)


def test_the_documentation_lists_every_kind() -> None:
    text = (ROOT / "docs" / "recipes.md").read_text()
    rows = dict(re.findall(r"^\| ([a-z0-9-]+) \| (.*) \|$", text, re.M))
    assert {kind: rows.get(kind) for kind in KINDS} == dict(KINDS)


FORMS = {
    "uniform": PlannedInput("float32", ("b", 6), "uniform", (-0.5, 2.0)),
    "shifted": PlannedInput("float32", ("b", 6), "uniform", (3.0, 4.0)),
    "normal": PlannedInput("float32", ("b", 6), "normal", (0.0, 1.0)),
    "image": PlannedInput(
        "float32", ("b", 3, 4, 4), "image", (),
        image=PlannedImage("chw", 0, 255, 255.0, (0.5, 0.4, 0.3), (0.2, 0.2, 0.2)),
    ),
    "tokens": PlannedInput("int64", ("b", 6), "integers", (3.0, 40.0)),
    "signed": PlannedInput("int32", ("b", 6), "integers", (-7.0, 7.0)),
    "single": PlannedInput("int64", (), "integers", (2.0, 5.0)),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.name)
@given(batch=st.integers(1, 5))
def test_values_stay_inside_what_is_declared(kind: kinds.Kind, form: str, batch: int) -> None:
    item = FORMS[form]
    takes = kinds.takes("x", item, {"x": item}, index=False)
    if takes not in kind.takes and not (takes == "integer" and "index" in kind.takes):
        return
    size = tuple(batch if isinstance(axis, str) else axis for axis in item.shape)
    own = np.asarray(samples._KINDS[item.kind](RNG, item, size)).astype(item.dtype)
    made = np.asarray(kind.make(item, size, RNG, own))
    assert made.shape == size
    if not kind.within(item):
        return
    assert np.isfinite(made).all()
    low, high = item.numbers if item.kind == "integers" else kinds.bounds(item, size) or (0, 0)
    assert (made >= np.asarray(low) - 1e-6).all()
    assert (made <= np.asarray(high) + 1e-6).all()


MASKS = {
    "right": PlannedInput("int64", ("b", "s"), "mask", (), mask=PlannedMask("right", 2, None, 0, 1.0, 0.0)),
    "left": PlannedInput("float32", ("b", "s"), "mask", (), mask=PlannedMask("left", 1, None, 1, 0.0, -1e4)),
    "lengths": PlannedInput("int64", ("b", "s"), "lengths", (2.0, 64.0)),
    "bool": PlannedInput("bool", ("b", "s"), "integers", (0.0, 1.0)),
}


@pytest.mark.parametrize("form", MASKS)
def test_masks(form: str) -> None:
    item, size = MASKS[form], (4, 7)
    assert kinds.takes("m", item, {"m": item}, index=False) == "mask"
    by_name = {kind.name: kind for kind in kinds.KINDS}
    keep, drop = (item.mask.keep, item.mask.drop) if item.mask else (1.0, 0.0)
    made = {name: np.asarray(by_name[name].make(item, size, RNG, np.zeros(size)))
            for name in by_name if name.startswith("mask")}  # fmt: skip
    kept = {name: values == keep for name, values in made.items()}
    assert all(set(np.unique(values)) <= {keep, drop} for values in made.values())
    assert kept["mask-none"].all()
    assert not kept["mask-rows"][0].any()
    assert kept["mask-rows"][1:].all()
    assert (kept["mask-one"].sum(-1) == 1).all()
    least = 2 if form in ("right", "lengths") else 1
    for name, first in (("mask-right", 0), ("mask-left", -1)):
        assert kept[name][:, first].all()
        assert kept[name].sum(-1).min() == least
        assert len(set(kept[name].sum(-1))) > 2
    inside = {name for name in made if by_name[name].within(item)}
    assert (
        inside
        == {
            "right": {"mask-right", "mask-none"},
            "left": {"mask-left", "mask-none", "mask-rows"},
            "lengths": {"mask-right", "mask-none"},
            "bool": {"mask-right", "mask-left", "mask-one", "mask-none", "mask-rows"},
        }[form]
    )


GRAPH = """
<ir_version: 8, opset_import: ["" : 18]>
g (int64[b, s] ids, float[b, 4] x, int64[b] n) => (float[b, s, 8] y, float[b, 4] z)
<float[9, 8] table = {0.0}>
{
  wide = Cast<to = 7>(ids)
  flat = Unsqueeze(wide, axis)
  axis = Constant<value_ints = [0]>()
  back = Squeeze(flat, axis)
  y = Gather(table, back)
  m = Cast<to = 1>(n)
  e = Erf(x)
  z = Div(e, e)
}
"""


def test_content_tells_ops_and_indices() -> None:
    text = GRAPH.replace("<float[9, 8] table = {0.0}>", "").replace(
        "float[b, 4] x,", "float[9, 8] table, float[b, 4] x,"
    )
    found = content.read(ir.from_proto(onnx.parser.parse_model(text)))
    assert found.indices == {"ids"}
    assert {"Gather", "Erf", "Div"} <= found.ops
    assert found.any_of("Sqrt", "Div") == ("Div",)


def plan_with(**inputs: PlannedInput) -> Any:
    _, plan = intake.make_plan(Path(__file__).parent / "recipes" / "accept" / "small.yaml")
    return replace(plan, inputs=inputs, axes={"b": Axis(1, 4, 9)}, shapes={"opt": {"b": 4}})


def test_what_the_graph_contains_decides() -> None:
    plan = plan_with(x=FORMS["normal"])
    bare = {case.kind for case in cases.cases(plan, content.Content(frozenset(), frozenset()))}
    full = {case.kind for case in cases.cases(plan, content.Content(EVERYTHING, frozenset()))}
    assert {"zeros", "zero-rows", "constant-rows"} <= bare
    assert not {"tiny", "wide", "halves", "ramp", "spike", "negative"} & bare
    assert {"tiny", "wide", "halves", "ramp", "spike", "negative"} <= full


def test_alike_values_are_not_judged_where_an_op_picks() -> None:
    plan = plan_with(x=FORMS["normal"])
    found = cases.cases(plan, content.Content(frozenset({"TopK"}), frozenset()))
    within = {case.kind: case.within for case in found}
    assert within["zeros"] is False
    assert within["ramp"] is True


def test_masks_are_tried_at_their_longest_too() -> None:
    mask = PlannedInput("int64", (4, "b"), "mask", (), mask=PlannedMask("right", 1, None, 0, 1.0, 0.0))
    plan = plan_with(m=mask)
    found = {case.name: case for case in cases.cases(plan, content.Content(frozenset(), frozenset()))}
    assert found["mask-one.m.long"].sizes == {"b": 9}
    assert found["mask-one.m"].sizes["b"] < 9
    made = cases.inputs(plan, found["mask-one.m.long"])["m"]
    assert made.shape == (4, 9)
    assert (made.sum(-1) == 1).all()


def test_many_float_inputs_are_changed_together() -> None:
    plan = plan_with(**{f"x{index}": FORMS["normal"] for index in range(5)})
    zeros = [
        case for case in cases.cases(plan, content.Content(frozenset(), frozenset())) if case.kind == "zeros"
    ]
    assert [case.name for case in zeros] == ["zeros"]
    assert all(not value.any() for value in cases.inputs(plan, zeros[0]).values())


def test_inputs_that_follow_a_changed_one_follow_the_change() -> None:
    mask = PlannedInput("int64", ("b", 6), "mask", (), mask=PlannedMask("right", 1, None, 0, 1.0, 0.0))
    ids = PlannedInput("int64", ("b", 6), "integers", (5.0, 9.0), masked_by="mask", pad=1.0)
    plan = plan_with(ids=ids, mask=mask)
    for case in cases.cases(plan, content.Content(frozenset(), frozenset({"ids"}))):
        made = cases.inputs(plan, case)
        assert ((made["ids"] == 1) == (made["mask"] == 0)).all(), case.name


# --- judging -------------------------------------------------------------------------------------------------

CASE = {
    "name": "wide.x",
    "kind": "wide",
    "sizes": {},
    "why": "",
    "within": True,
    "state": "made",
    "because": "",
}


def judged(item: Comparison, usual: float = 1.0, **case: Any) -> tuple[Claim, list[Any]]:
    plan = plan_with(x=FORMS["normal"])
    item = replace(item, output=plan.outputs[0])
    ordinary = Comparison(plan.outputs[0], "min", "", 4, 1e-9, 1e-9, 1e-9, 1.0, 1.0, usual)
    stress = StepResult("stress", "ok", facts={"cases": [CASE | case]})
    parity = StepResult(
        "parity", "ok", measurements={"comparisons": to_plain([ordinary]), "stress": to_plain([item])}
    )
    excesses = judge.judge(plan, stress, parity)
    return judge.claim(excesses, "compared"), list(judge.beyond(excesses))


OFF = Comparison("y", "wide.x", "", 4, 1e-6, 1e-7, 1e-6, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("changes", "usual", "status"),
    [
        ({}, 1.0, "pass"),
        ({"max_abs": 1e-3}, 1.0, "fail"),
        ({"max_abs": 1e-3, "scale": 1e4}, 1.0, "pass"),  # grown with the output
        ({"max_abs": 1e-3, "noise": 2e-4}, 1.0, "pass"),  # PyTorch itself rounds as much
        ({"max_abs": 1e-3, "noise": 2e-5}, 1.0, "fail"),
        ({"max_abs": 1e-3, "noise": 0.0}, 1.0, "fail"),
        ({"problem": "3 of 4 values not finite", "max_abs": None}, 1.0, "fail"),
        ({"shape": "another case"}, 1.0, "fail"),  # the case itself was not compared
    ],
)
def test_what_is_allowed(changes: dict[str, Any], usual: float, status: str) -> None:
    claim, _ = judged(replace(OFF, **changes), usual)
    assert claim.status == status, claim


def test_outside_what_is_declared_a_difference_is_an_open_issue() -> None:
    claim, issues = judged(replace(OFF, max_abs=1.0), within=False)
    assert claim.status == "not run"
    assert [issue.disposition for issue in issues] == ["open"]
    assert "wide.x" in issues[0].symptom


# --- the whole route -----------------------------------------------------------------------------------------

NORMALISED = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first = nn.Linear(8, 8, bias=False)

        def forward(self, x):
            x = self.first(x)
            return x / (x.norm(dim=-1, keepdim=True) + 1e-3)

    def load():
        return Net().eval()
"""


def without_epsilon(out: Path) -> None:
    """What an optimiser does that takes a small addend for zero; ordinary inputs do not show it at 1e-2."""

    def change(model: onnx.ModelProto) -> None:
        small = {
            tensor.name for tensor in model.graph.initializer
            if 5e-4 < float(np.max(onnx.numpy_helper.to_array(tensor))) < 2e-3
        }  # fmt: skip
        (node,) = [node for node in model.graph.node if node.op_type == "Add" and small & set(node.input)]
        (kept,) = [name for name in node.input if name not in small]
        node.op_type = "Identity"
        del node.input[:]
        node.input.append(kept)

    edit(out / "onnx" / "export.onnx", change)


Tampered = Callable[[str, Callable[[Path], None]], None]


def broken(folder: Path, tampered: Tampered) -> route.Outcome:
    tampered("torch", without_epsilon)
    return route.run(folder, None, "parity", (), silent)


LOOSE = ("onnx: {max_abs: 1.0e-5}", "onnx: {max_abs: 1.0e-2}")


def test_a_lost_epsilon_shows_on_hard_inputs_alone_and_the_node_is_named(
    toy: Callable[..., Path], tampered: Tampered, cli: Callable[..., Cli]
) -> None:
    folder = toy(LOOSE, model=NORMALISED)
    outcome = broken(folder, tampered)
    assert outcome.exit_code == Exit.NOT_ACCEPTED
    failed = [claim for claim in outcome.verdict.claims if claim.status == "fail"]
    assert [claim.name for claim in failed] == [judge.NAME]
    assert "zero" in failed[0].where
    parity = next(item for item in record_of(folder)["results"] if item["step"] == "parity")
    found = parity["facts"]["located"]
    assert found["stage"] == "export"
    assert found["divergence"]["op"] == "Identity"
    assert found["divergence"]["expected"].startswith("0.001")
    assert "model.py:12" in found["divergence"]["source"]
    (issue,) = [item for item in parity["issues"] if judge.NAME in item["symptom"]]
    assert f"it begins at `{found['divergence']['node']}` (Identity)" in issue["cause"]
    assert "model.py:12" in issue["cause"]
    text = (folder / "PORT_REPORT.md").read_text()
    assert "### Where the graph goes wrong" in text
    assert "`Identity`" in text or "(Identity)" in text
    replayed = cli("replay", folder, "zeros.x")
    assert replayed.code == 1
    assert "not finite" in replayed.out
    assert cli("replay", folder, "opt").code == 0
    unknown = cli("replay", folder, "optt")
    assert unknown.code == 2
    assert "zeros.x" in unknown.err


TWO_FACED = """
    import torch
    from torch import nn

    class Norm(nn.Module):
        def forward(self, x):
            least = 0.0 if torch.compiler.is_exporting() else 1e-3
            return x / (x.norm(dim=-1, keepdim=True) + least)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first = nn.Linear(8, 8, bias=False)
            self.norm = Norm()
            self.last = nn.Linear(8, 4)

        def forward(self, x):
            return self.last(self.norm(self.first(x)))

    def load():
        return Net().eval()
"""


def test_a_program_that_is_traced_wrong_is_told_apart_and_the_module_named(toy: Callable[..., Path]) -> None:
    folder = toy(LOOSE, model=TWO_FACED)
    outcome = route.run(folder, None, "parity", (), silent)
    assert outcome.exit_code == Exit.NOT_ACCEPTED
    parity = next(item for item in record_of(folder)["results"] if item["step"] == "parity")
    found = parity["facts"]["located"]
    assert "the program that torch.export traced is wrong already" in found["compared_with"]
    assert found["divergence"]["module"] == "norm"


def test_left_out_with_a_reason_it_passes_and_the_report_says_so(
    toy: Callable[..., Path], tampered: Tampered
) -> None:
    reasons = "\n".join(
        f"    - {{case: {kind}, because: rows are never zero}}"
        for kind in ("zeros", "zero-rows", "tiny", "fp64")
    )
    folder = toy(LOOSE, ("precision:", f"stress:\n  leave_out:\n{reasons}\nprecision:"), model=NORMALISED)
    outcome = broken(folder, tampered)
    assert outcome.exit_code == Exit.ACCEPTED, outcome.verdict
    text = (folder / "PORT_REPORT.md").read_text()
    assert "**left out**: rows are never zero" in text
    assert "left out: rows are never zero" in text


def test_leaving_out_what_is_not_made_is_an_error(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    folder = toy(("precision:", "stress: {leave_out: [{case: mask-rows, because: x}]}\nprecision:"))
    done = cli("run", folder, "--until", "stress")
    assert done.code == 2, done.text
    assert "recipe.yaml:9:23" in done.err
    assert "no case 'mask-rows' is made for this graph" in done.err


def test_a_case_of_ones_own(toy: Callable[..., Path]) -> None:
    added = (
        "stress: {add: [{name: big, axes: {batch: 2}, values: {x: {uniform: [90, 100]}}, because: why not}]}"
    )
    folder = toy(("precision:", f"{added}\nprecision:"))
    outcome = route.run(folder, None, "parity", (), silent)
    assert outcome.exit_code == Exit.ACCEPTED, outcome.message
    inputs = samples.read(folder / "port" / "stress" / "big.npz", "input")
    assert inputs["x"].shape == (2, 8)
    assert inputs["x"].min() >= 90


def test_declared_values_that_the_model_refuses_are_an_open_issue() -> None:
    error = StepError("forward raised IndexError", klass="shape", cause="model.py:9")
    (issue,) = refused("high.ids", True, error)
    assert issue.disposition == "open"
    assert "the model refuses values that the recipe declares" in issue.symptom
    assert "high.ids" in issue.fix
    assert refused("large.x", False, error) == []


# --- step functions ------------------------------------------------------------------------------------------

STEPPED = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def forward(self, x):
            return torch.floor((x * 3.2) * 10)

    def load():
        return Net().eval()
"""


def two_steps_off(out: Path) -> None:
    """Two steps out wherever the floor is taken of a whole number but zero; ordinary values never are."""

    def change(model: onnx.ModelProto) -> None:
        (floor,) = [node for node in model.graph.node if node.op_type == "Floor"]
        given, made = floor.input[0], floor.output[0]
        floor.output[0] = "floor"
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(2), "two"))
        model.graph.node.extend([
            onnx.helper.make_node("Equal", [given, "floor"], ["whole"]),
            onnx.helper.make_node("Cast", ["whole"], ["one"], to=onnx.TensorProto.FLOAT),
            onnx.helper.make_node("Sign", [given], ["sign"]),
            onnx.helper.make_node("Mul", ["one", "sign"], ["outward"]),
            onnx.helper.make_node("Mul", ["outward", "two"], ["more"]),
            onnx.helper.make_node("Add", ["floor", "more"], [made]),
        ])  # fmt: skip

    edit(out / "onnx" / "export.onnx", change)


def test_where_pytorch_itself_flips_a_graph_must_not_be_whole_steps_off(
    toy: Callable[..., Path], tampered: Tampered
) -> None:
    folder = toy(model=STEPPED)
    outcome = route.run(folder, None, "parity", (), silent)
    assert outcome.exit_code == Exit.ACCEPTED, outcome.verdict
    parity = next(item for item in record_of(folder)["results"] if item["step"] == "parity")
    (issue,) = [item for item in parity["issues"] if "a step apart" in item["symptom"]]
    assert issue["disposition"] == "noted"
    assert "numbers of halves.x" in issue["symptom"]
    assert "(Floor)" in issue["cause"]
    assert issue["symptom"] in (folder / "PORT_REPORT.md").read_text()
    tampered("torch", two_steps_off)
    outcome = route.run(folder, None, "parity", (), silent)
    failed = [claim for claim in outcome.verdict.claims if claim.status == "fail"]
    assert [(claim.name, claim.where.split()[-1]) for claim in failed] == [(judge.NAME, "halves.x")]


def test_a_flip_is_no_rounding_and_either_side_of_it_is_right() -> None:
    single, double = np.array([0.25, 3.0, 1.0], np.float32), np.array([0.25 + 1e-8, 2.0, 1.0])
    for got, off in (
        ([0.25, 3.0, 1.0], 0.0),
        ([0.25, 2.0, 1.0], 0.0),
        ([0.25, 4.0, 1.0], 1.0),
        ([0.25, 3.0, 2.0], 1.0),
    ):
        (found,) = compare({"y": single}, {"y": np.array(got, np.float32)}, exact={"y": double}, steps=True)
        assert (found.flips, found.max_abs) == (1, pytest.approx(off, abs=1e-6))
        assert found.noise == pytest.approx(1e-8)
    (plain,) = compare({"y": single}, {"y": single}, exact={"y": double})
    assert (plain.flips, plain.noise) == (0, 1.0)


@pytest.mark.parametrize(
    ("single", "double", "flipped"),
    [
        ([20.0, 0.099999994, 0.3], [20.0, 1e-9, 0.3], [False, False, False]),  # no good part of the largest
        ([0.05, 0.099999994, 0.03], [0.05, 1e-9, 0.03], [False, True, False]),  # a remainder
        ([1.0, 2.0, 3.0], [1.0, 1.0, 3.0], [False, True, False]),
        ([2.0, 3.0], [1.0, 2.0], [True, True]),  # whole numbers need no others beside them
        ([200000.0, 7.0], [200001.0, 7.0], [True, False]),
        ([0.1, 0.2, 0.3], [0.11, 0.21, 0.33], [False, False, False]),  # all of them badly conditioned
        ([np.nan, 2.0], [1.0, np.inf], [False, False]),
    ],
)
def test_what_counts_as_a_flip(single: list[float], double: list[float], flipped: list[bool]) -> None:
    assert flips(np.array(single, np.float32), np.array(double)).tolist() == flipped


def test_step_functions_of_floats_are_found() -> None:
    def found(body: str) -> tuple[str, ...]:
        return content.steps(parsed(f"g (float[4] x, int64[4] n) => (float[4] y) {{ {body} }}"))

    assert found("y = Ceil (x)") == ("Ceil",)
    assert found("i = Cast <to = 7> (x) y = Cast <to = 1> (i)") == ("Cast",)
    assert found("b = Greater (x, x) z = Neg (x) y = Where (b, x, z)") == ("Greater",)
    assert found("b = Greater (n, n) z = Neg (x) y = Where (b, x, z)") == ()
    assert found("h = Cast <to = 10> (x) y = Cast <to = 1> (h)") == ()


# --- the first tensor that differs ---------------------------------------------------------------------------

CHAIN = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[2, 4] x) => (float[2, 4] y)
{
  a = Mul(x, x)
  b = Exp(x)
  c = Add(a, b)
  d = Tanh(c)
  y = Sub(d, a)
}
"""


@pytest.mark.parametrize("where", ["a", "b", "c", "d", "y"])
def test_the_first_tensor_that_differs(where: str, tmp_path: Path) -> None:
    path = tmp_path / "chain.onnx"
    onnx.save(onnx.parser.parse_model(CHAIN), path)
    feeds = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)}
    right = divergence.tap(path, feeds, "abcd")
    assert set(right) == set("abcdy")
    text = CHAIN.replace(f"{where} =", f"{where}_ =").replace("}\n", f"  {where} = Mul({where}_, k)\n}}\n")
    text = text.replace("{\n  a", "{\n  k = Constant<value_float = 1.001>()\n  a")
    wrong_path = tmp_path / "wrong.onnx"
    lines = text.split("\n")
    lines.insert(lines.index(next(line for line in lines if f"{where}_ =" in line)) + 1, lines.pop(-3))
    onnx.save(onnx.parser.parse_model("\n".join(lines)), wrong_path)
    found = divergence.first(wrong_path, right, divergence.tap(wrong_path, feeds, "abcd"))
    assert found is not None
    assert found.value == where
    assert found.op == "Mul"
    assert divergence.first(path, right, right) is None
