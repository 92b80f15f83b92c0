"""The recipes that the documentation shows are recipes."""

from __future__ import annotations

import re

import pytest

from engine import document, extends, schema
from tests.conftest import ROOT

BASE = ROOT / "tests" / "recipes" / "accept" / "small.yaml"
BLOCKS = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "recipes.md").read_text(), re.S)


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 5


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n", 1)[0])
def test_blocks_are_parts_of_recipes(block: str) -> None:
    shown = document.parse(block)
    base = document.parse(BASE.read_text() + "build: {workspace_mib: 512}\n")
    assert schema.problems(extends.merge(base, shown), "recipe") == []
