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

RULE = "recipe"


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
    rule = {"id": RULE, "name": "RecipeProblem",
            "shortDescription": {"text": "The recipe is wrong."},
            "fullDescription": {"text": "The recipe breaks its schema or says something that cannot hold."},
            "help": {"text": "Every key is described in docs/recipe-reference.md."},
            "defaultConfiguration": {"level": "error"}}  # fmt: skip
    driver = {"name": "portwright", "version": __version__, "rules": [rule]}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints",
           "results": [_result(problem) for problem in problems]}  # fmt: skip
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}


def _result(problem: Problem) -> dict[str, Any]:
    message = "\n".join(filter(None, (problem.what, problem.hint)))
    result: dict[str, Any] = {"ruleId": RULE, "ruleIndex": 0, "level": "error", "message": {"text": message}}
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
