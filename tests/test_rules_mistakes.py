"""Mistakes planted in the rules of the library, one operator for another: the rule's own proof must catch every one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import RecipeError
from engine.rules import library
from engine.rules.language import load_rule
from engine.rules.prove import prove_rule

# An operator and what somebody could have written by mistake.
SWAPS = {
    "Add": "Sub",
    "Sub": "Add",
    "Mul": "Div",
    "Div": "Mul",
    "Max": "Min",
    "Min": "Max",
    "Floor": "Ceil",
    "Ceil": "Floor",
    "Round": "Floor",
    "Greater": "GreaterOrEqual",
    "Less": "LessOrEqual",
    "And": "Or",
    "Or": "And",
    "ReduceMax": "ReduceMin",
    "ReduceMin": "ReduceMax",
    "ReduceSum": "ReduceMean",
    "Sin": "Cos",
    "Cos": "Sin",
}
WANTED = 30
# Wrong operators that change no number there, or only what the rule says that it leaves open.
_WRAPS = "the last Cast, to the narrow type, takes the number modulo the same power of two"
_HALF = "half the modulus more or less is the same remainder"
SAME = {
    ("bitcast-to-arithmetic", "Add 1 -> Sub"): "256 more or less is the same remainder of 256",
    ("bitcast-to-arithmetic", "Div 1 -> Mul"): _WRAPS,
    ("bitcast-to-arithmetic", "Sub 1 -> Add"): _WRAPS,
    ("bitcast-to-arithmetic", "Mul 1 -> Div"): _WRAPS,
    ("bitshift-to-arithmetic", "Sub 1 -> Add"): _WRAPS,
    ("bitshift-to-arithmetic", "Add 1 -> Sub"): _HALF,
    ("bitwise-to-arithmetic", "Sub 6 -> Add"): "the lowest number of a type more or less is the same number",
    ("cast-to-quantize", "Add 1 -> Sub"): _HALF,
    ("det-to-minors", "Mul 2 -> Div"): "the factor is 1 or -1",
    ("mod-to-remainder", "Less 1 -> LessOrEqual"): "a remainder of 0 is left alone before that",
    ("mod-to-remainder", "Less 2 -> LessOrEqual"): "a divisor of 0 gives NaN either way",
}


def own_files(rule: Path) -> list[Path]:
    """The rule's YAML and the Python beside it."""
    return [path for path in (rule, rule.with_suffix(".py")) if path.exists()]


def mistakes(folder: Path) -> Iterator[tuple[str, str, str, str]]:
    """Rule, label, file name and wrong text, for every operator that a rule's replacement names."""
    for name in library.names(folder):
        for path in own_files(library.path_of(name, folder)):
            text = path.read_text(encoding="utf-8")
            begin = re.search(r"^replace:", text, re.M) if path.suffix == ".yaml" else None
            if path.suffix == ".yaml" and begin is None:
                continue
            start = begin.start() if begin else 0
            end = text.index("\nproof:", start) if begin else len(text)
            pattern = r"(?<== )(\w+)(?= ?[<(])" if begin else r"(?<=\")(\w+)(?=\")"
            seen: dict[str, int] = {}
            for hit in re.finditer(pattern, text[start:end]):
                op = hit[1]
                if op not in SWAPS:
                    continue
                seen[op] = seen.get(op, 0) + 1
                at = start + hit.start()
                label = f"{op} {seen[op]} -> {SWAPS[op]}"
                yield name, label, path.name, text[:at] + SWAPS[op] + text[at + len(op) :]


ALL = list(mistakes(library.path_of(library.names()[0]).parent))


def test_there_are_enough() -> None:
    assert len([one for one in ALL if one[:2] not in SAME]) >= WANTED


def test_what_is_excused_exists() -> None:
    assert set(SAME) <= {(name, label) for name, label, _, _ in ALL}


@pytest.mark.parametrize(("name", "label", "file", "text"), ALL, ids=[f"{one[0]}: {one[1]}" for one in ALL])
def test_a_mistake_is_caught_by_the_proof(
    name: str, label: str, file: str, text: str, tmp_path: Path
) -> None:
    for path in own_files(library.path_of(name)):
        shutil.copy(path, tmp_path)
    (tmp_path / file).write_text(text, encoding="utf-8")
    try:
        proof = prove_rule(load_rule(tmp_path / f"{name}.yaml"))
    except RecipeError:
        return  # it is not even a rule any more
    assert proof.equal == ((name, label) in SAME), proof.why or "the proof does not see it"
