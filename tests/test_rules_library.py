"""Every shipped rule: its own proof, a graph it fires on, graphs it must refuse and for which reason.

A rule without fixtures in tests/rules/<rule>/ fails here, and so does a folder without a rule.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from engine.errors import StepError
from engine.graph import provenance
from engine.rules import library, summary
from engine.rules.apply import apply_rule
from engine.rules.language import load_library, load_rule
from engine.rules.prove import application_prover, prove_rule
from tests.rules_tools import check, model, random_feeds, run

FIXTURES = Path(__file__).parent / "rules"
RULES = library.names()
REFUSALS = sorted(path.relative_to(FIXTURES).as_posix() for path in FIXTURES.glob("*/refuses-*.txt"))


def headers(text: str) -> dict[str, str]:
    return dict(re.findall(r"^# (\w+): (.*)$", text, flags=re.M))


def symbols(text: str) -> dict[str, tuple[int, ...]]:
    pairs = [pair.split("=") for pair in headers(text).get("symbols", "").split(",") if pair]
    return {name.strip(): tuple(map(int, sizes.split())) for name, sizes in pairs}


def test_library_loads() -> None:
    assert set(load_library()) == set(RULES)
    assert RULES


def test_every_fixture_folder_belongs_to_a_rule() -> None:
    assert sorted(path.name for path in FIXTURES.iterdir()) == sorted(RULES)


@pytest.mark.parametrize("name", RULES)
def test_is_documented_under_the_fixed_headings(name: str) -> None:
    """The tolerance is ``proof.equal`` in words, so that neither is changed without the other."""
    rule = summary.read(library.path_of(name))
    assert [heading for heading, _ in rule.headings()] == ["What breaks", "Versions", "Idea", "Cost", "Tolerance"]
    assert rule.data["why"].keys() == {"breaks", "idea", "cost", "tolerance"}
    assert re.match(re.escape(rule.tolerance) + r"\b", rule.why.tolerance, re.I), rule.why.tolerance


@pytest.mark.parametrize("name", RULES)
def test_own_proof_holds(name: str) -> None:
    proof = prove_rule(load_rule(library.path_of(name)))
    assert proof.why == ""
    assert proof.equal
    assert proof.numbers > 0


@pytest.mark.parametrize("name", RULES)
def test_fires_and_keeps_outputs(name: str) -> None:
    text = (FIXTURES / name / "fires.txt").read_text()
    sizes = symbols(text)
    before, after = model(text), model(text)
    for node in after.graph:
        node.metadata_props[provenance.MODULE] = f"module.of.{node.name}"
    rule = load_rule(library.path_of(name))
    done = apply_rule(after, rule, matches=1, prover=application_prover(sizes), sizes=sizes)

    check(after)
    assert f"{done.nodes_before} -> {done.nodes_after}" == headers(text)["nodes"]
    assert done.nodes_after == sum(1 for graph in after.graphs() for _ in graph)
    accepted = done.accepted[0]
    assert accepted.proof is not None
    assert accepted.proof.numbers > 0
    new = [node for node in after.graph if node.metadata_props.get(provenance.RULE) == name]
    assert [node.name for node in new] == list(accepted.added)
    assert {node.metadata_props[provenance.MODULE] for node in new} == {accepted.module}
    for index in range(2):
        feeds = random_feeds(before, {symbol: given[index] for symbol, given in sizes.items()})
        first, second = run(before, feeds), run(after, feeds)
        for output in first:
            np.testing.assert_allclose(second[output], first[output], rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("name", RULES)
def test_has_a_refusing_fixture(name: str) -> None:
    assert list((FIXTURES / name).glob("refuses-*.txt")), "add tests/rules/<rule>/refuses-<why>.txt"


@pytest.mark.parametrize("fixture", REFUSALS)
def test_refuses_for_the_stated_reason(fixture: str) -> None:
    text = (FIXTURES / fixture).read_text()
    untouched, tried = model(text), model(text)
    rule = load_rule(library.path_of(fixture.split("/")[0]))
    sizes = symbols(text)
    with pytest.raises(StepError) as caught:
        apply_rule(tried, rule, prover=application_prover(sizes), where="rewrites[3]", sizes=sizes)
    failure = caught.value.failure
    assert headers(text)["reason"] in f"{failure.symptom}: {failure.cause}"
    assert failure.where == "rewrites[3]"
    assert failure.fix
    assert [node.name for node in tried.graph] == [node.name for node in untouched.graph]
