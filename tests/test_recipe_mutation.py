"""The short form of ``make fuzz``: mutated recipes are valid or refused in place, bytes never crash the reader."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import pytest

from engine import schema
from engine.document import MAX_BYTES, decode
from engine.errors import RecipeError
from engine.yaml_data import MAX_DEPTH, MAX_NODES
from tests import fuzz, mutations

ACCEPT = mutations.ROOT / "tests" / "recipes" / "accept"


def test_mutations() -> None:
    counts, wrong = fuzz.fuzz_mutations(300)
    assert not wrong, wrong[0]
    assert set(counts) == set(mutations.KINDS)


def test_bytes() -> None:
    seen, wrong = fuzz.fuzz_bytes(1000, sizes=(1000, 20_000))
    assert not wrong, wrong[0]
    assert len(seen.counts) == 4  # some inputs get through to each end


def test_mutations_of_a_variant_and_of_its_base() -> None:
    counts, wrong = fuzz.fuzz_variants(200)
    assert not wrong, wrong[0]
    assert len(counts) == 2


def test_the_trees_are_written_as_the_parser_reads_them() -> None:
    for data, _ in mutations.bases():
        assert decode(mutations.write(mutations.tree(data)).encode(), "x").data == data


def test_most_mutations_are_refused() -> None:
    refused = 0
    data, folder = mutations.bases()[0]
    for number in range(120):
        rng = random.Random(number)
        mutation = mutations.mutate(data, mutations.KINDS[number % len(mutations.KINDS)], rng)
        refused += mutations.check(mutation.text, folder)[0] is None
    assert 80 < refused < 120


def test_a_complaint_in_the_wrong_place_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = schema.problems

    def shifted(document: Any, name: str) -> Any:
        moved = []
        for problem in problems(document, name):
            assert problem.place is not None
            moved.append(replace(problem, place=replace(problem.place, line=problem.place.line + 3)))
        return moved

    monkeypatch.setattr(schema, "problems", shifted)
    _, wrong = fuzz.fuzz_mutations(60)
    assert any("points at" in fault for fault in wrong)


def test_an_ignored_key_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(hint: Any, data: Any) -> Any:
        return from_plain(hint, {key: value for key, value in data.items() if key != "about"})

    from_plain = mutations.from_plain
    monkeypatch.setattr(mutations, "from_plain", without)
    data = mutations.bases()[0][0] | {"about": "a model"}
    text = mutations.write(mutations.tree(data))
    mutation = mutations.Mutation("retype", text, frozenset(), frozenset(), frozenset())
    assert "not what is written" in mutations.fault(mutation, ACCEPT)


def test_a_crash_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "problems", lambda document, name: 1 / 0)
    _, wrong = fuzz.fuzz_mutations(6)
    assert any("ZeroDivisionError" in fault for fault in wrong)
    _, wrong = fuzz.fuzz_bytes(200, sizes=())
    assert any("ZeroDivisionError" in fault for fault in wrong)


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b" " * (MAX_BYTES + 1), "more than"),
        (b"a: [" + b"1," * MAX_NODES + b"]", "keys and values"),
        (b"[" * (MAX_DEPTH + 1), "nested deeper"),
        (b"a: " + b"1" * 5000, "a number of 5,000 characters"),
        (b"a: 0x" + b"f" * 5000, "a number of 5,002 characters"),
        (b"a: 1e999", "larger than any number"),
        (b"a: \x07", "character U+0007"),
        (b"%YAML 1.1\n---\na: no\n", "directives"),
        (b"a: ! 1", "tag !"),
    ],
)
def test_limits(raw: bytes, what: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(what)):
        decode(raw, "x")


def test_as_much_as_is_allowed() -> None:
    assert len(decode(b"a: [" + b"1," * (MAX_NODES - 3) + b"]", "x").data["a"]) == MAX_NODES - 3
    depth = MAX_DEPTH - 1
    assert decode(b"a: " + b"[" * depth + b"]" * depth, "x").data
    assert decode(b"a: " + b"1" * 100, "x").data == {"a": int("1" * 100)}


def test_messages_stay_short() -> None:
    text = "{" + ",".join(f"k{index}: 1" for index in range(5000)) + "}"
    found = schema.problems(decode(text.encode(), "x"), "recipe")
    assert len(found) == 101
    assert "more problems" in found[-1].what
    assert all(len(str(problem)) < 1000 for problem in found)
