"""Hints for the mistakes that people make most in YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import document, hints, schema
from engine.errors import RecipeError

SMALL = (Path(__file__).parent / "recipes" / "accept" / "small.yaml").read_text()


@pytest.mark.parametrize(
    ("key", "wanted", "value", "hint"),
    [
        ("min", ["integer"], "no", "did you mean a number? In this language 'no' is text"),
        ("min", ["integer"], "On", "did you mean a number? In this language 'On' is text"),
        ("min", ["integer"], "one", ""),
        ("min", ["integer"], 8.0, "write 8"),
        ("min", ["integer"], 8.5, ""),
        ("time_limit_s", ["integer"], "10 min", "write 600: 'time_limit_s' counts seconds"),
        ("time_limit_s", ["integer"], "1.5h", "write 5400: 'time_limit_s' counts seconds"),
        ("time_limit_s", ["integer"], "90 s", "write 90: 'time_limit_s' counts seconds"),
        (
            "time_limit_s",
            ["integer"],
            "5 parsecs",
            "write a number without a unit; 'time_limit_s' counts seconds",
        ),
        ("time_limit_s", ["integer"], "1 ms", "write a number without a unit; 'time_limit_s' counts seconds"),
        ("time_limit_s", ["integer"], "12:30", "'12:30' is text, not a time; write one number, in seconds"),
        ("min", ["integer"], "1:30", "'1:30' is text, not a time; write one number"),
        ("memory_limit_mib", ["integer"], "8 GiB", "write 8192: 'memory_limit_mib' counts MiB"),
        (
            "memory_limit_mib",
            ["integer"],
            "2GB",
            "write a number without a unit; 'memory_limit_mib' counts MiB",
        ),
        ("max_abs", ["number"], "1e-3", "the quotes make it text; write 1e-3 without them"),
        ("max_abs", ["number"], "5%", "write 0.05: a share, not per cent"),
        ("max_abs", ["number"], "3 mm", "write a number without a unit"),
        ("max_abs", ["number"], ".inf", "a number here is finite"),
        ("max_abs", ["number"], "nan", "a number here is finite"),
        ("max", ["integer"], "30_521", "write 30521: a number has no separators"),
        ("max", ["integer"], "30,521", "write 30521: a number has no separators"),
        ("flag", ["boolean"], "yes", "did you mean true or false? In this language 'yes' is text"),
        ("about", ["string"], 12, "put it in quotes if it is text"),
        ("about", ["string"], False, "put it in quotes if it is text"),
        ("outputs", ["array"], "y", "write [y]"),
        ("shape", ["array"], "batch, 8", "write [batch, 8]"),
        ("shape", ["array"], "x" * 100, "a list is written [a, b]"),
        ("shape", ["integer", "string"], 8.5, ""),
        ("shape", ["integer", "string"], 8.0, "write 8"),
        ("outputs", ["array"], {}, ""),
        ("values", ["string", "object"], [1], ""),
    ],
)
def test_wrong_type(key: str, wanted: list[str], value: object, hint: str) -> None:
    assert hints.for_type(key, wanted, value) == hint


@pytest.mark.parametrize(
    ("value", "allowed", "hint"),
    [
        ("no", ["none", "onnxsim"], "did you mean 'none'?"),
        (False, ["none", "onnxsim"], "did you mean 'none'?"),
        (None, ["none", "onnxsim"], "did you mean 'none'?"),
        ("no", ["fp32", "fp16"], ""),
        (16, ["fp32", "fp16", "bf16"], "did you mean 'fp16'?"),
        ("dynamoo", ["dynamo", "torchscript"], "did you mean 'dynamo'?"),
        ({}, ["a"], ""),
        ("x" * 10_000, ["a"], ""),
    ],
)
def test_no_such_choice(value: object, allowed: list[str], hint: str) -> None:
    assert hints.for_choice(value, allowed) == hint


def message(text: str) -> str:
    try:
        found = document.parse(text, "r.yaml")
    except RecipeError as error:
        return str(error)
    return "\n".join(map(str, schema.problems(found, "recipe")))


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("a: {module: **.LayerNorm, b: 1}", "text that begins with * must be quoted: '**.LayerNorm'"),
        ("a: *", "text that begins with * must be quoted: '*'"),
        ("a: {attention: >= 6}", "text that begins with > must be quoted: '>= 6'"),
        ("a: >= 6", "text that begins with > must be quoted: '>= 6'"),
        ("a: @x", "text that begins with @ must be quoted: '@x'"),
        (
            "a: {because: b: c}",
            "text that holds ': ' must be quoted; a key must be indented like its neighbours",
        ),
        ("a: b: c", "text that holds ': ' must be quoted; a key must be indented like its neighbours"),
        ("a:\n\tb: 1", "indent with spaces, not tabs"),
        ("a: *x", 'write the value out where it is used; for the text itself, quote it: "*x"'),
    ],
)
def test_no_yaml(line: str, hint: str) -> None:
    assert message(line).splitlines()[-1].strip() == hint


def test_what_is_not_closed_is_shown_where_it_opens() -> None:
    assert message("a: [1,\nb: 2\nc: 3\n").startswith("r.yaml:1:4: not valid YAML")
    assert message("a: 'x\nb: 2\n").startswith("r.yaml:1:4: not valid YAML")


@pytest.mark.parametrize("number", ["1e-3", "1.0e-3", "0.001", "1E-3", ".001"])
def test_numbers_that_yaml_1_1_reads_as_text(number: str) -> None:
    assert message(SMALL.replace("2.0e-2", number)) == ""
    assert document.parse(f"a: {number}").data == {"a": 0.001}


def test_text_that_yaml_1_1_reads_as_something_else() -> None:
    assert document.parse("a: 12:30\nb: no\nc: on\nd: 2001-01-01\n").data == {
        "a": "12:30",
        "b": "no",
        "c": "on",
        "d": "2001-01-01",
    }


def test_a_line_is_shown_around_the_fault() -> None:
    text = SMALL + "about: {" + ", ".join(f"key{index}: 1" for index in range(1000)) + ", *}\n"
    shown = message(text).splitlines()[1:3]
    assert all(len(line) < 230 for line in shown)
    assert shown[0][shown[1].index("^")] in "*}"


def test_control_characters_are_not_printed() -> None:
    text = SMALL.replace("name: small", 'name: "a\\e[31m\\n"')
    assert "\x1b" not in message(text)
    assert "'a\\x1b[31m\\n'" in message(text)
