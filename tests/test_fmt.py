"""``portwright fmt``: canonical order, nothing lost, the same meaning, and a second time changes nothing."""

from __future__ import annotations

import random
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import document, formatting, ordering, schema
from engine.errors import RecipeError
from tests import mutations
from tests.conftest import ROOT, Cli

SCHEMA = schema.load("recipe")
BASES = [data for data, _ in mutations.bases()]
UNTIDY = """\
# header

portwright: 1
# the limits
accept:
  # the engine
  engine: {cosine: 0.9, max_abs: 1e-2}  # eol
  onnx:
    cosine: .9
    # abs
    max_abs: 1e-5
  # tail of accept
precision:
  overrides:
    # first
    - type: fp32
      # the module
      module: "**.x"
      because: |
        a # no comment

        b

    # - {op: gone}
    -   because: x
        op: Softmax
        type: fp32
  base: fp16

name: a   # the name
inputs:
  z: {shape: [1, 007], dtype: float32}
  a: {dtype: float32, shape: [2]}
"""
TIDY = """\
# header

portwright: 1

name: a   # the name
inputs:
  z: {dtype: float32, shape: [1, 007]}
  a: {dtype: float32, shape: [2]}
precision:
  base: fp16
  overrides:
    # first
    # the module
    - module: "**.x"
      type: fp32
      because: |
        a # no comment

        b

    # - {op: gone}
    - op: Softmax
      type: fp32
      because: x
# the limits
accept:
  onnx:
    # abs
    max_abs: 1e-5
    cosine: .9
  # the engine
  engine: {max_abs: 1e-2, cosine: 0.9}  # eol
  # tail of accept
"""


def test_whole_text() -> None:
    assert formatting.canonical(UNTIDY) == TIDY


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("recipes/*/recipe.yaml")), ids=lambda path: path.parent.name
)
def test_shipped_recipes_are_canonical(path: Path) -> None:
    text = path.read_text()
    assert formatting.canonical(text) == text


class Writer:
    """Writes data as untidy YAML: any order, block or flow, odd indents, quotes, comments and blank lines."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.lines, self.notes = rng, [], 0

    def note(self) -> str:
        self.notes += 1
        return f"# note {self.notes}: {{a: 'b', - c"

    def aside(self, pad: str) -> None:
        while self.rng.random() < 0.25:
            deeper = "    " if self.rng.random() < 0.1 else ""
            self.lines.append("" if self.rng.random() < 0.4 else pad + deeper + self.note())

    def scalar(self, value: Any) -> str:
        if isinstance(value, str) and value.replace("_", "").isalnum() and self.rng.random() < 0.6:
            return value
        if isinstance(value, str):
            return (
                "'" + value.replace("'", "''") + "'"
                if self.rng.random() < 0.5
                else mutations.tree(value).text or ""
            )
        return mutations.tree(value).text or ""

    def flow(self, value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key}: {self.flow(item)}" for key, item in self.shuffled(value)) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(self.flow, value)) + "]"
        return self.scalar(value)

    def shuffled(self, value: dict[str, Any]) -> list[tuple[str, Any]]:
        pairs = list(value.items())
        self.rng.shuffle(pairs)
        return pairs

    def block(self, value: Any, pad: str, head: str) -> None:
        """``head`` is what stands before the first line: the indent, or that of a list item with its dash."""
        step = " " * self.rng.choice([1, 2, 2, 2, 4])
        pairs = self.shuffled(value) if isinstance(value, dict) else [("", item) for item in value]
        for place, (key, item) in enumerate(pairs):
            if place or head == pad:
                self.aside(pad)
            start = (head if place == 0 else pad) + (f"{key}:" if isinstance(value, dict) else "-")
            nested = isinstance(item, dict | list) and item and self.rng.random() < 0.6
            end = f"  {self.note()}" if self.rng.random() < 0.15 else ""
            if (
                isinstance(item, str)
                and isinstance(value, dict)
                and self.rng.random() < 0.15
                and item.strip() == item != ""
            ):
                self.lines += [f"{start} |-{end}", *(f"{pad}{step}{line}" for line in item.split("\n"))]
            elif not nested:
                self.lines.append(f"{start} {self.flow(item)}{end}")
            elif isinstance(value, dict):
                self.lines.append(start + end)
                self.block(item, pad + step, pad + step)
            else:
                self.block(item, pad + "  ", start + " ")


def untidy(data: Any, rng: random.Random) -> str:
    writer = Writer(rng)
    writer.block(data, "", "")
    return "\n".join(writer.lines) + rng.choice(["", "\n", "\n\n# end\n"])


def orders(data: Any, node: dict[str, Any]) -> Iterator[tuple[list[str], list[str]]]:
    """The keys of every mapping, and those that the schema knows of them in its order."""
    node = {**SCHEMA["$defs"][node["$ref"].rsplit("/", 1)[-1]], **node} if "$ref" in node else node
    if isinstance(data, dict):
        known = [*node.get("properties", {}), *node.get("else", {}).get("properties", {})]
        if known:
            yield list(data), [key for key in known if key in data]
        for key, item in data.items():
            yield from orders(
                item, node.get("properties", {}).get(key) or node.get("additionalProperties") or {}
            )
    elif isinstance(data, list):
        for item in data:
            yield from orders(item, node.get("items", {}))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_nothing_is_lost_and_twice_is_once(seed: int) -> None:
    rng = random.Random(seed)
    text = untidy(rng.choice(BASES), rng)
    before = document.parse(text)
    once = formatting.canonical(text)
    after = document.parse(once)
    assert formatting._equal(before.data, after.data)
    assert ordering.comments(once) == ordering.comments(text)
    assert formatting.canonical(once) == once
    for keys, wanted in orders(after.data, SCHEMA):
        assert keys == wanted
    for named in ("axes", "inputs"):
        assert list(before.data.get(named, {})) == list(after.data.get(named, {}))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(mutations.KINDS))
def test_wrong_recipes_keep_their_meaning_too(seed: int, kind: str) -> None:
    rng = random.Random(seed)
    text = mutations.mutate(rng.choice(BASES), kind, rng).text
    try:
        before = document.parse(text)
        once = formatting.canonical(text)
    except RecipeError:
        return  # no YAML, or no mapping: refused
    assert formatting._equal(before.data, document.parse(once).data)
    assert formatting.canonical(once) == once


def test_the_guard_sees_a_lost_comment_and_a_changed_value() -> None:
    assert formatting.same("a: 1 # x\nb: 2\n", "b: 2\na: 1 # x\n")
    assert not formatting.same("a: 1 # x\n", "a: 1\n")
    assert not formatting.same("a: 1\n", "a: 1.0\n")
    assert not formatting.same("a: 'x # y'\n", "a: 'x'\n")
    assert not formatting.same("a: 1\n", "a: [\n")


def test_a_change_of_meaning_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "ordered", lambda text, schema: text.replace("1", "2"))
    with pytest.raises(RecipeError, match="left as it is"):
        formatting.canonical("portwright: 1\n")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{name: a, portwright: 1}\n", "{portwright: 1, name: a}\n"),
        ("name: a\r\nportwright: 1\r\n", "portwright: 1\r\nname: a\r\n"),
        ("name: a\nportwright: 1", "portwright: 1\nname: a\n"),
        ("zebra: 1\nname: a\n", "name: a\nzebra: 1\n"),
        ("accept: {engine: {}, # why\n  onnx: {}}\n", "accept: {engine: {}, # why\n  onnx: {}}\n"),
        ("# top\nname: a\n# one\nportwright: 1\n", "# top\n# one\nportwright: 1\nname: a\n"),
        ("about: >-\n  x\n\n\n# n\nname: a\n", "# n\nname: a\nabout: >-\n  x\n"),
        ("name:\nportwright: 1\n", "portwright: 1\nname:\n"),
        (
            "rewrites:\n  - because: |-\n      x\n    rule: celu\n      # deeper\n  - rule: dft\n",
            "rewrites:\n  - rule: celu\n      # deeper\n    because: |-\n      x\n  - rule: dft\n",
        ),
    ],
)
def test_small_texts(text: str, wanted: str) -> None:
    assert formatting.canonical(text) == wanted


def test_command(cli: Callable[..., Cli], tmp_path: Path) -> None:
    file, broken = tmp_path / "recipe.yaml", tmp_path / "broken.yaml"
    file.write_text(UNTIDY)
    file.chmod(0o640)
    done = cli("fmt", "--check", tmp_path)
    assert (done.code, done.out) == (1, f"{file}: would be changed\n")
    assert file.read_text() == UNTIDY
    broken.write_text("a: [1\n")
    done = cli("fmt", file, broken, tmp_path / "none.yaml")
    assert done.code == 2
    assert "broken.yaml:1:4: not valid YAML" in done.err
    assert "none.yaml: no such recipe" in done.err
    assert broken.read_text() == "a: [1\n"
    assert file.read_text() == formatting.canonical(UNTIDY)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.yaml", "recipe.yaml"]
    done = cli("fmt", "--check", file)
    assert (done.code, done.out) == (0, "")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text("name: a\nportwright: 1\n")
    (tmp_path / "recipe.yaml").symlink_to("real.yaml")
    formatting.write(tmp_path / "recipe.yaml", "portwright: 1\n")
    assert (tmp_path / "recipe.yaml").is_symlink()
    assert (tmp_path / "real.yaml").read_text() == "portwright: 1\n"
