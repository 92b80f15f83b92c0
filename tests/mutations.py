"""Mutations of recipes: one change each, with the lines that a complaint about it may point at.

A recipe becomes a tree of nodes that is written one key a line, so that the line of every node is known
without asking the parser under test.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import document, meaning, schema
from engine.errors import Problem, RecipeError
from engine.plain import from_plain, to_plain
from engine.recipe import LoadedRecipe, Recipe

# Scalars as they stand in a file: other types, YAML 1.1 surprises, units, limits.
TOKENS = ("null", "~", "true", "False", "no", "on", "0", "-1", "1", "7", "1.0", "1e-3", ".5", "1e400", ".nan",
          "-.inf", "0x1F", "0o17", "007", "12:30", "1_000", "2001-01-01", "10 min", "5%", "''", "' '", "text",
          "'16'", "fp16", "batch", "x", "normal", "'>= 0'", "'== 3'", "[]", "{}", "[1]", "[1, 2]", "[x, x]",
          "{a: 1}", "{min: 1}", "[[]]", "99999999999999999999", "'a\\0b'", '"a\\0b.py:load"', '"\\n"', '"é\\u2028"',
          "<<", "=", "'%s'", "'{}'", "model.py", "'model.py:load\n  '", "/", "..", "'path:'",
          # Numbers at the edges of what files, floats, tensors and C integers hold.
          "1e308", "-1e308", "-0.0", "1e-400", "1e-320", "3.5e38", "65505", "2147483647", "2147483648",
          "9007199254740993", "9223372036854775807", "1" * 100, "1" * 400, "0x" + "f" * 90, "1e1000000000",
          f"'>= {'9' * 5000}'", "'== 00000000000000001'", f"'{'a' * 300}.py:load'", f"'path:{'a' * 300}'")  # fmt: skip
ROOT = Path(__file__).resolve().parent.parent
KINDS = ("drop", "misspell", "retype", "duplicate", "move", "nest")


@dataclass(eq=False)
class Node:
    """A scalar with its ``text``, a mapping with ``pairs`` or a list with ``items``; ``lines`` once it is written."""

    text: str | None = None
    pairs: list[tuple[str, Node]] | None = None
    items: list[Node] | None = None
    lines: set[int] = field(default_factory=set)

    def children(self) -> Iterator[Node]:
        if self.pairs is not None:
            yield from (child for _, child in self.pairs)
        yield from self.items or ()

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children():
            yield from child.walk()


def tree(data: Any) -> Node:
    if isinstance(data, dict):
        return Node(pairs=[(key, tree(value)) for key, value in data.items()])
    if isinstance(data, list):
        return Node(items=[tree(value) for value in data])
    return Node(text=json.dumps(data, ensure_ascii=False))


def write(root: Node) -> str:
    """The tree as YAML text; fills in every node's ``lines`` (its key's line and those it stands on itself)."""
    out: list[str] = []
    root.lines = {1}
    _write(root, 0, out)
    return "\n".join(out) + "\n"


def _write(node: Node, depth: int, out: list[str]) -> None:
    pad = "  " * depth
    for name, child in node.pairs or ():
        _write_child(child, f"{pad}{name}:", depth, out)
    for child in node.items or ():
        _write_child(child, f"{pad}-", depth, out)


def _write_child(child: Node, head: str, depth: int, out: list[str]) -> None:
    first = len(out) + 1
    if child.pairs or child.items:
        out.append(head)
        _write(child, depth + 1, out)
        child.lines = {first, first + 1}
    else:
        text = child.text if child.text is not None else "{}" if child.pairs is not None else "[]"
        out += f"{head} {text}".split("\n")
        child.lines = {first}


@dataclass(frozen=True)
class Mutation:
    """``lines``: where a complaint belongs; ``near``: where its consequences may be; ``words``: what was touched."""

    kind: str
    text: str
    lines: frozenset[int]
    near: frozenset[int]
    words: frozenset[str]


def mutate(data: Any, kind: str, rng: random.Random) -> Mutation:
    """One random mutation of ``kind``."""
    root = tree(data)
    holders = [node for node in root.walk() if node.pairs]
    places = [(holder, index) for holder in holders for index in range(len(holder.pairs or ()))]
    holder, index = rng.choice(places)
    marked, parents, words = _MUTATORS[kind](root, holder, index, rng)
    text = write(root)
    lines = frozenset(line for node in marked for line in node.lines)
    near = frozenset(line for node in parents for line in node.lines)
    return Mutation(kind, text, lines, near, frozenset(words))


def retypes(data: Any) -> Iterator[Mutation]:
    """Every token of TOKENS in the place of every node."""
    for number in range(1, len(list(tree(data).walk()))):
        for token in TOKENS:
            root = tree(data)
            target = list(root.walk())[number]
            (holder,) = (node for node in root.walk() if target in node.children())
            above = [node for node in root.walk() if target in node.walk()]
            names = {
                name
                for node in above
                for name, child in node.pairs or ()
                if child is target or child in above
            }
            words = frozenset({*_words(target), *names, token.strip("'\"")})
            target.pairs, target.items, target.text = None, None, token
            text = write(root)
            yield Mutation("retype", text, frozenset(target.lines), frozenset(holder.lines), words)


Marked = tuple[list[Node], list[Node], set[str]]


def _drop(root: Node, holder: Node, index: int, rng: random.Random) -> Marked:
    assert holder.pairs is not None
    name, child = holder.pairs.pop(index)
    return [holder], [], {name, *_words(child)}


def _misspell(root: Node, holder: Node, index: int, rng: random.Random) -> Marked:
    assert holder.pairs is not None
    name, child = holder.pairs[index]
    spot = rng.randrange(len(name))
    wrong = rng.choice([name[:spot] + name[spot + 1 :], name[:spot] + "q" + name[spot:], name + "s",
                        name.upper(), name.replace("_", "-"), "zebra"])  # fmt: skip
    if not wrong or wrong == name or wrong in ("on", "=", "y"):
        wrong = f"{name}x"
    holder.pairs[index] = (wrong, child)
    return [child], [holder], {name, wrong}


def _retype(root: Node, holder: Node, index: int, rng: random.Random) -> Marked:
    assert holder.pairs is not None
    name, child = holder.pairs[index]
    target = rng.choice([child, *(node for node in child.walk() if node.text is not None)])
    old = _words(target)
    target.pairs, target.items, target.text = None, None, rng.choice(TOKENS)
    return [target], [holder, child], {name, *old, target.text.strip("'\"")}


def _duplicate(root: Node, holder: Node, index: int, rng: random.Random) -> Marked:
    assert holder.pairs is not None
    name, child = holder.pairs[index]
    copy = rng.choice([Node(text=rng.choice(TOKENS)), child, tree(1)])
    copy = Node(copy.text, copy.pairs and list(copy.pairs), copy.items and list(copy.items))
    for key in ("pairs", "items"):
        if getattr(copy, key) is not None:  # a subtree of its own: a node is written in one place only
            copy = tree(_data(copy))
            break
    holder.pairs.insert(rng.randrange(index + 1, len(holder.pairs) + 1), (name, copy))
    return list(copy.walk()), [holder], {name}


def _move(root: Node, holder: Node, index: int, rng: random.Random) -> Marked:
    assert holder.pairs is not None
    name, child = holder.pairs.pop(index)
    inside = set(map(id, child.walk()))
    targets = [node for node in root.walk() if node.pairs is not None and id(node) not in inside]
    target = rng.choice(targets)
    assert target.pairs is not None
    twins = [node for key, node in target.pairs if key == name]
    target.pairs.insert(rng.randrange(len(target.pairs) + 1), (name, child))
    return [*child.walk(), *twins, holder], [target], {name, *_words(child)}


def _nest(root: Node, holder: Node, index: int, rng: random.Random) -> Marked:
    assert holder.pairs is not None
    name, child = holder.pairs[index]
    wrapped = rng.choice([Node(pairs=[(name, child)]), Node(items=[child]), Node(pairs=[("value", child)])])
    if child.pairs and rng.random() < 0.3:
        wrapped = child.pairs[0][1]  # the other way round: a level is left out
    holder.pairs[index] = (name, wrapped)
    return list(wrapped.walk()), [holder], {name, *_words(child)}


_MUTATORS: dict[str, Callable[[Node, Node, int, random.Random], Marked]] = {
    "drop": _drop, "misspell": _misspell, "retype": _retype, "duplicate": _duplicate, "move": _move, "nest": _nest,
}  # fmt: skip


def _words(node: Node) -> set[str]:
    found = {name for part in node.walk() for name, _ in part.pairs or ()}
    return found | {part.text.strip('"') for part in node.walk() if part.text is not None}


def _data(node: Node) -> Any:
    if node.pairs is not None:
        return {name: _data(child) for name, child in node.pairs}
    return (
        [_data(child) for child in node.items] if node.items is not None else json.loads(node.text or "null")
    )


def check(text: str, folder: Path) -> tuple[Recipe | None, Any, list[Problem], bool]:
    """Recipe or None, the data, the problems, and whether they are problems of form (else of meaning)."""
    try:
        found = document.parse(text, "recipe.yaml")
    except RecipeError as error:
        return None, None, list(error.problems), True
    if not isinstance(found.data, dict):
        return None, found.data, [found.problem((), "a recipe is a mapping")], True
    problems = schema.problems(found, "recipe")
    if problems:
        return None, found.data, problems, True
    recipe = from_plain(Recipe, found.data)
    problems = meaning.problems(LoadedRecipe(recipe, found, folder))
    return (None if problems else recipe), found.data, problems, False


def fault(mutation: Mutation, folder: Path) -> str:
    """What is wrong with how the mutation was received; empty when it is valid or refused at the right place."""
    recipe, data, problems, form = check(mutation.text, folder)
    if recipe is not None:
        if not _same(to_plain(recipe), data):
            return "accepted, but what was understood is not what is written"
        return "accepted with a key that stands twice" if mutation.kind == "duplicate" else ""
    if any(problem.place is None for problem in problems):
        return f"no place: {problems[0].what}"
    places = {problem.place.line for problem in problems if problem.place}
    if form:
        if not places & mutation.lines:
            return f"points at {sorted(places)}, not at {sorted(mutation.lines)}: {problems[0].what}"
        if not places <= mutation.lines | mutation.near:
            return f"points at {sorted(places)} as well: {[str(problem) for problem in problems]}"
        return ""
    # A reference may break elsewhere: then the message must name what was touched.
    for problem in problems:
        here = problem.place is not None and problem.place.line in mutation.lines | mutation.near
        if not here and not any(_names(problem.what, word) for word in mutation.words):
            return f"names neither the place nor the thing: {problem}"
    return ""


def _names(what: str, word: str) -> bool:
    return bool(word) and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", what) is not None


def _same(recipe: Any, data: Any) -> bool:
    """What was understood is all that is written: nothing left out, nothing changed but whole numbers to floats."""
    if isinstance(recipe, dict):
        recipe = {key: item for key, item in recipe.items() if item is not None}
        return isinstance(data, dict) and recipe.keys() == data.keys() and all(
            _same(recipe[key], data[key]) for key in data)  # fmt: skip
    if isinstance(recipe, list):
        return isinstance(data, list) and len(recipe) == len(data) and all(map(_same, recipe, data))
    if isinstance(recipe, float):
        return type(data) in (int, float) and recipe == float(data)
    return type(recipe) is type(data) and bool(recipe == data)


def bases() -> list[tuple[Any, Path]]:
    """Data and folder of every valid recipe of the tests and of ``recipes/``."""
    accepted = sorted((ROOT / "tests" / "recipes" / "accept").glob("*.yaml"))
    files = [*accepted, *sorted(ROOT.glob("recipes/*/recipe.yaml"))]
    # Without its base a variant lacks what the base brings; tests/variants.py has those.
    files = [file for file in files if "\nextends:" not in f"\n{file.read_text()}"]
    return [(document.read(file).data, file.parent) for file in files]
