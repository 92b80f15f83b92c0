"""``portwright check --format github|sarif``: what other programs read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import __version__, annotations, intake
from engine.errors import Place, Problem, RecipeError
from tests.conftest import ROOT, Cli


def closed(required: str = "", **properties: Any) -> dict[str, Any]:
    """Schema of an object with these properties and no others."""
    names = {name.replace("schema_", "$schema"): part for name, part in properties.items()}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required.split(),
        "properties": names,
    }


def listed(items: Any, **limits: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **limits}


# The part of SARIF 2.1.0 (OASIS, sections 3.13 to 3.30) that a log of ours may use.
STRING, FROM_1 = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 1}
TEXT, LEVEL = closed("text", text=STRING), {"enum": ["none", "note", "warning", "error"]}
RULE = closed("id", id=STRING, name={"type": "string", "pattern": "^[A-Z][A-Za-z]+$"}, shortDescription=TEXT,
              fullDescription=TEXT, help=TEXT, defaultConfiguration=closed(level=LEVEL))  # fmt: skip
DRIVER = closed("name", name=STRING, version=STRING, rules=listed(RULE, uniqueItems=True))
REGION = closed("startLine", startLine=FROM_1, startColumn=FROM_1, endColumn=FROM_1)
ARTIFACT = closed("uri", uri={"type": "string", "pattern": "^[!-~]+$"})
LOCATION = closed(
    "physicalLocation", physicalLocation=closed("artifactLocation", artifactLocation=ARTIFACT, region=REGION)
)
RESULT = closed("message", ruleId=STRING, ruleIndex={"type": "integer", "minimum": 0}, level=LEVEL, message=TEXT,
                locations=listed(LOCATION, minItems=1))  # fmt: skip
RUN = closed("tool results", tool=closed("driver", driver=DRIVER), results=listed(RESULT),
             columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]})  # fmt: skip
SARIF = closed("version runs", schema_={"type": "string", "pattern": "^https://.*sarif.*2\\.1\\.0\\.json$"},
               version={"const": "2.1.0"}, runs=listed(RUN))  # fmt: skip
ODD = Problem("100% wrong:\r\na, b", Place("a b/c,d:e%é.yaml", 3, 7), "x", 4, "mend it")


def validate(log: Any) -> None:
    jsonschema.Draft202012Validator(SARIF).validate(log)
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    for result in log["runs"][0]["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]


def test_github_command_is_escaped() -> None:
    (line,) = annotations.github([ODD])
    assert line == (
        "::error file=a b/c%2Cd%3Ae%25é.yaml,line=3,col=7,endColumn=11,title=portwright::"
        "100%25 wrong:%0D%0Aa, b%0Amend it"
    )


def test_github_command_without_a_place() -> None:
    assert annotations.github([Problem("no such recipe")]) == ["::error title=portwright::no such recipe"]


def unescaped(text: str) -> str:
    for code, letter in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(code, letter)
    return text


@given(st.text(), st.text(min_size=1), st.text())
def test_github_commands_are_one_line_and_say_all(what: str, file: str, hint: str) -> None:
    (line,) = annotations.github([Problem(what, Place(file, 1, 1), "", 1, hint)])
    assert "\n" not in line
    assert "\r" not in line
    found = re.fullmatch(r"::error file=([^,:]*),line=1,col=1,endColumn=2,title=portwright::(.*)", line, re.S)
    assert found is not None
    assert unescaped(found[2]) == "\n".join(filter(None, (what, hint)))


def test_sarif_log() -> None:
    log = annotations.sarif([ODD, Problem("no such recipe")])
    validate(log)
    first, second = log["runs"][0]["results"]
    location = first["locations"][0]["physicalLocation"]
    assert unquote(location["artifactLocation"]["uri"]) == "a b/c,d:e%é.yaml"
    assert not urlparse(location["artifactLocation"]["uri"]).scheme
    assert location["region"] == {"startLine": 3, "startColumn": 7, "endColumn": 11}
    assert "locations" not in second
    assert log["runs"][0]["tool"]["driver"]["version"] == __version__


def test_every_kind_of_problem_is_a_rule_of_its_own() -> None:
    kinds = set()
    for path in sorted((ROOT / "tests" / "recipes" / "reject").glob("*.yaml")):
        with pytest.raises(RecipeError) as caught:
            intake.check(path)
        kinds |= {problem.kind for problem in caught.value.problems}
    assert kinds == set(annotations.KINDS)
    log = annotations.sarif([Problem("x", kind=kind) for kind in annotations.KINDS])
    validate(log)
    assert [result["ruleId"] for result in log["runs"][0]["results"]] == [
        f"recipe/{kind}" for kind in annotations.KINDS
    ]


@pytest.mark.parametrize(
    ("edit", "rule"),
    [(("opt: 4", "opt: 40"), "axes"), (("base: fp16", "base: fp15"), "choice"), (("max: 16", "max: x"), "type"),
     (("name: toy", "nmae: toy"), "unknown-key"), (("1.0e-5", "0"), "range"), (("[y]", "[y"), "yaml"),
     (("[y]", "[y, y]"), "outputs")],
)  # fmt: skip
def test_the_rule_of_a_problem(
    edit: tuple[str, str], rule: str, toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    log = json.loads(cli("check", toy(edit), "--format", "sarif").out)
    validate(log)
    assert f"recipe/{rule}" in {result["ruleId"] for result in log["runs"][0]["results"]}


def test_sarif_of_an_absolute_path_is_a_file_uri() -> None:
    log = annotations.sarif([Problem("x", Place("/a b/c.yaml", 1, 1))])
    uri = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "file:///a%20b/c.yaml"


@pytest.mark.parametrize(
    "damage",
    [
        lambda log: log.update(version="2.0.0"),
        lambda log: log.update(extra=1),
        lambda log: log["runs"][0].pop("tool"),
        lambda log: log["runs"][0]["results"][0].pop("message"),
        lambda log: log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"].update(
            startLine=0
        ),
        lambda log: log["runs"][0]["results"][0].update(level="fatal"),
    ],
)
def test_the_structure_can_be_broken(damage: Callable[[Any], Any]) -> None:
    log = annotations.sarif([ODD])
    damage(log)
    with pytest.raises(jsonschema.ValidationError):
        validate(log)


def test_command(cli: Callable[..., Cli], toy: Callable[..., Path]) -> None:
    good = toy()
    assert cli("check", good, "--format", "github").out == f"{good}/recipe.yaml: ok\n"
    log = json.loads(cli("check", good, "--format", "sarif").out)
    validate(log)
    assert log["runs"][0]["results"] == []
    toy(("base: fp16", "base: fp15"), ("opt: 4", "opt: 40"), ("dtype: float32", "dtype: float"))
    done = cli("check", "toy", "nowhere", "--format", "github")
    assert (done.code, done.err) == (2, "")
    first, second, third = done.out.splitlines()
    assert first.startswith(
        "::error file=toy/recipe.yaml,line=7,col=14,endColumn=19,title=portwright::inputs.x.dtype: "
    )
    assert "'fp15' is not one of" in second
    assert "no such recipe" in third
    done = cli("check", "toy", "nowhere", "--format", "sarif")
    assert (done.code, done.err) == (2, "")
    log = json.loads(done.out)
    validate(log)
    assert len(log["runs"][0]["results"]) == 3
