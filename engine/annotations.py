"""Problems for other programs: GitHub workflow commands and SARIF 2.1.0.

Formats: https://docs.github.com/actions/reference/workflow-commands-for-github-actions and
https://docs.oasis-open.org/sarif/sarif/v2.1.0/.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from engine import __version__
from engine.errors import Problem

# Stable ids: whoever silences or counts a kind of problem names it by these.
KINDS = {
    "yaml": "The text is no YAML of the recipe language.",
    "unknown-key": "A key that the language does not have at this place.",
    "missing-key": "A key that must be there is missing.",
    "type": "A value of the wrong type.",
    "choice": "A value that is none of those allowed.",
    "form": "Text that does not have the right form.",
    "range": "A number that is too small or too large.",
    "length": "Too few or too many entries.",
    "name": "A name that is not allowed.",
    "axes": "Axes whose profile cannot hold, or that nothing uses.",
    "inputs": "Inputs, sizes or sample values that cannot hold.",
    "outputs": "Outputs that stand twice or are inputs.",
    "model": "A model source that cannot be used as written.",
    "stress": "Cases of hard inputs that are added or left out and cannot be.",
    "hardware": "What the toolchain or the target GPU does not take.",
    "rewrites": "Rewrite rules that are not there or not usable.",
    "precision": "Types that contradict each other or change nothing.",
    "limits": "Limits that can never fail or never pass, and waivers of none.",
    "recipe": "A recipe that cannot be read or merged.",
}


def github(problems: Iterable[Problem]) -> list[str]:
    """One ``::error`` command a problem."""
    return [_command(problem) for problem in problems]


def _command(problem: Problem) -> str:
    place = problem.place
    message = "\n".join(filter(None, (problem.what, problem.hint)))
    if place is None:
        return f"::error title=portwright::{_data(message)}"
    properties = {"file": PurePath(place.file).as_posix(), "line": place.line, "col": place.column,
                  "endColumn": place.column + max(1, problem.width), "title": "portwright"}  # fmt: skip
    listed = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    return f"::error {listed}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def sarif(problems: Iterable[Problem]) -> dict[str, Any]:
    """A SARIF log with one run; columns count code points, as everywhere in Portwright."""
    rules = [{"id": f"recipe/{kind}", "name": "Recipe" + "".join(map(str.capitalize, kind.split("-"))),
              "shortDescription": {"text": text}, "fullDescription": {"text": text},
              "help": {"text": "Every key is described in docs/recipe-reference.md."},
              "defaultConfiguration": {"level": "error"}}
             for kind, text in KINDS.items()]  # fmt: skip
    driver = {"name": "portwright", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints",
           "results": [_result(problem) for problem in problems]}  # fmt: skip
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _result(problem: Problem) -> dict[str, Any]:
    message = "\n".join(filter(None, (problem.what, problem.hint)))
    result: dict[str, Any] = {"ruleId": f"recipe/{problem.kind}", "ruleIndex": list(KINDS).index(problem.kind),
                              "level": "error", "message": {"text": message}}  # fmt: skip
    place = problem.place
    if place is not None:
        region = {"startLine": place.line, "startColumn": place.column,
                  "endColumn": place.column + max(1, problem.width)}  # fmt: skip
        location = {"artifactLocation": {"uri": _uri(place.file)}, "region": region}
        result["locations"] = [{"physicalLocation": location}]
    return result


def _uri(file: str) -> str:
    """A relative path stays relative, for whoever reads the log to resolve against the checkout."""
    path = PurePath(file)
    return ("file://" if path.is_absolute() else "") + quote(os.fsencode(path.as_posix()))
