"""``portwright rules`` and ``portwright explain``: the library for people, and what a version range means."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import compatibility, needed, toolchain
from engine.errors import RecipeError
from engine.rules import library, summary
from engine.rules.language import load_rule
from tests.conftest import ROOT, Cli
from tests.rules_tools import rule_file
from tests.test_worker import needs_rtx


def test_every_rule_is_listed_once(cli: Callable[..., Cli]) -> None:
    done = cli("rules")
    assert done.code == 0, done.text
    lines = done.out.splitlines()
    assert lines[0].split() == ["rule", "operators", "needed", "by", "tolerance", "what", "breaks"]
    assert [line.split()[0] for line in lines[1 : lines.index("")]] == list(library.names())
    assert lines[-1] == f"{len(library.names())} rules; `portwright explain RULE` says more"
    [celu] = [line for line in lines if line.startswith("celu-to-elementwise ")]
    assert celu.endswith('  TensorRT-RTX 1.7.1 refuses Celu in float16 ("The rank of operands should be'
                         ' the same adding inputs")')  # fmt: skip
    [listed] = [one for one in json.loads(cli("rules", "--json").out) if one["rule"] == "celu-to-elementwise"]
    assert list(listed["why"]) == ["breaks", "idea", "cost", "tolerance"]


def test_only_what_a_toolchain_needs(cli: Callable[..., Cli]) -> None:
    done = cli("rules", "--for", "tensorrt-rtx==1.6.1.120", "--json")
    names = {item["rule"] for item in json.loads(done.out)}
    assert {"celu-to-elementwise", "dft-to-matmul"} <= names, "a version that is not installed can be asked about"
    assert "drop-softmax-nan-guard" not in names
    assert " rules needed by TensorRT 10.0; " in cli("rules", "--for", "tensorrt==10.0").out
    assert cli("rules", "--for", "tensorflow").code == 2


@pytest.mark.parametrize(
    ("spec", "note"),
    [("tensorrt-rtx==0.1", "nothing is known of tensorrt-rtx 0.1; rules are written for 1.0 to 1.x"),
     ("tensorrt==99", "nothing is known of tensorrt 99; rules are written for 8.4 to 11.x")],
)  # fmt: skip
def test_a_version_that_nothing_is_known_of(cli: Callable[..., Cli], spec: str, note: str) -> None:
    done = cli("rules", "--for", spec)
    assert (done.code, done.err) == (0, f"note: {note}\n")
    product = "TensorRT-RTX 0.1" if "rtx" in spec else "TensorRT 99"
    assert f" whose 'needed_by' takes in {product}; `portwright explain RULE` says more" in done.out


def test_rules_that_say_nothing_are_counted(cli: Callable[..., Cli]) -> None:
    done = cli("rules", "--for", "tensorrt==10.3")
    silent = sum("tensorrt" not in rule.needed_by for rule in summary.read_all())
    assert silent > 0
    assert done.err == f"note: {silent} of {len(library.names())} rules say nothing about TensorRT: nobody tried\n"
    assert cli("rules", "--for", "tensorrt-rtx==1.6.1.120").err == ""


def test_known_versions_have_no_note() -> None:
    assert not any(compatibility.unknown("tensorrt_rtx", version) for version in ("1.0", "1.7.1.116", "1.9"))
    assert not any(compatibility.unknown("tensorrt", version) for version in ("8.4.1", "10.3", "11"))


def test_a_summary_says_what_the_loaded_rule_says() -> None:
    for found in summary.read_all():
        rule = load_rule(library.path_of(found.name))
        assert (found.klass, found.why, dict(found.needed_by)) == (rule.klass, rule.why, dict(rule.needed_by))
        held = [node.op for node in rule.match.nodes]
        assert list(found.ops) == list(dict.fromkeys(held)) or not held
        assert all(found.name in library.for_op(op) for op in found.ops)


def test_explain_says_it_all(cli: Callable[..., Cli]) -> None:
    done = cli("explain", "celu-to-elementwise")
    assert done.code == 0, done.text
    for said in (
        "\nWhat breaks\n  TensorRT-RTX 1.7.1 refuses Celu in float16",
        "\n\nVersions\n  tensorrt-rtx: all versions\n\nIdea\n  The formula of",
        "\n\nCost\n  7 elementwise nodes, ",
        "\n\nTolerance\n  4 roundings of the type, ",
        "opset       15 and newer\n",
        "proven on   instances of its pattern, and again at every place where it is applied\n",
        "looks for\n  (x) => (y) { y = Celu <alpha: float = @alpha> (x) }\n",
        '  alpha: attribute {"above": 0}\n',
    ):
        assert said in done.out, said
    dft = cli("explain", "dft-to-matmul").out
    assert "proven on   8 graphs of its own and ONNX's backend tests, and again" in dft
    assert "looks for any such node, for example\n  g (float[2,400,1] x) => (float[2,201,2] y) {" in dft
    assert "puts there what dft-to-matmul.py makes" in dft


def test_a_private_rule_needs_one_text_only() -> None:
    path = ROOT / "tests" / "recipes" / "accept" / "rules" / "celu-to-elementwise.yaml"
    found = summary.read(path)
    assert dict(found.headings()) == {
        "What breaks": found.why.breaks,
        "Versions": "tensorrt-rtx: all versions",
        "Cost": "at most 10 operators in place of 1; constants are cast once, when the rule is applied",
        "Tolerance": "4 roundings of the type",
    }


def test_explain_names_the_nearest_rule(cli: Callable[..., Cli]) -> None:
    done = cli("explain", "celu-to-elementwis")
    assert done.code == 2
    assert "no rewrite rule 'celu-to-elementwis'" in done.err
    assert "did you mean 'celu-to-elementwise'?" in done.err
    done = cli("explain", "nonsense")
    assert done.err.startswith("no rewrite rule 'nonsense'\n        rules: affine-grid-by-definition, ")


@pytest.mark.parametrize(
    ("limits", "text"),
    [({"max_abs": 0}, "exact"), ({"max_abs": 1e-6}, "1e-06 absolute"),
     ({"max_rel": 0.001, "max_eps": 2}, "0.001 relative + 2 roundings of the type")],
)  # fmt: skip
def test_tolerance_in_words(limits: dict[str, float], text: str) -> None:
    assert summary.tolerance(limits) == text


@pytest.mark.parametrize(
    ("written", "version", "wanted"),
    [("*", "1.7.1.116", True), ("never", "1.7.1.116", False),
     ("< 1.7", "1.7.1.116", False), ("< 1.7", "1.6.1.120", True),
     (">= 1.4, < 1.7", "1.5.0.114", True), (">= 1.4, < 1.7", "1.7.1", False), ("<= 1.7.1.116", "1.7.1.116", True)],
)  # fmt: skip
def test_version_ranges(written: str, version: str, wanted: bool) -> None:
    assert needed.needs({"tensorrt-rtx": written}, "tensorrt_rtx", version) is wanted
    assert not needed.needs({"tensorrt-rtx": written}, "tensorrt", version), "not named, not needed"


def test_a_range_that_is_none_is_refused_at_its_place(tmp_path: Path) -> None:
    text = library.path_of("celu-to-elementwise").read_text().replace('"*"', '"older than 1.7"')
    path = rule_file(tmp_path, text, "celu-to-elementwise")
    line = text.splitlines().index('needed_by: {tensorrt-rtx: "older than 1.7"}') + 1
    with pytest.raises(RecipeError) as caught:
        load_rule(path)
    [problem] = caught.value.problems
    assert problem.what.startswith("needed_by: 'older than 1.7' is no version range; write '*', 'never' or")
    assert problem.place is not None
    assert (problem.place.line, problem.place.column) == (line, 27)


@needs_rtx
def test_a_version_at_hand_and_one_that_is_not() -> None:
    assert toolchain.of_version("tensorrt-rtx").version == toolchain.resolve("tensorrt-rtx").version
    assert toolchain.of_version("tensorrt-rtx==1.2.3").version == "1.2.3"
    assert toolchain.product(toolchain.of_version("tensorrt-rtx==1.2.3.4")) == "TensorRT-RTX 1.2.3"
