"""``portwright diff`` of two lock files, in the words of recipe diffs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.diff import locks, words
from engine.diff.change import Difference
from engine.lock import file as lock_file
from engine.lock.model import Lock, LockedClaim, LockedOverride, LockedRule, LockedWaiver
from engine.plain import from_plain, to_plain
from tests.conftest import ROOT, Cli
from tests.lock_tools import LOCK, A, B
from tests.test_diff import git

REHEARSED, MEASURED = "accept.engine (rehearsed).max_abs", "accept.engine (measured).max_abs"


def part(name: str, **change: Any) -> Lock:
    return replace(LOCK, **{name: replace(getattr(LOCK, name), **change)})


def claim(name: str, **change: Any) -> Lock:
    return replace(LOCK, claims=LOCK.claims | {name: replace(LOCK.claims[name], **change)})


def without(name: str) -> Lock:
    return replace(LOCK, claims={key: item for key, item in LOCK.claims.items() if key != name})


def limits(limit: str) -> Lock:
    changed = {name: replace(LOCK.claims[name], limit=limit) for name in (REHEARSED, MEASURED)}
    return replace(LOCK, claims=LOCK.claims | changed)


PRECISION = LOCK.precision
assert PRECISION is not None
LAYER = LockedOverride(("LayerNorm_3", "LayerNorm_4"), "module: norm", "fp32")
WAIVER = LOCK.waivers[0]
RULES = LOCK.rules

# What changed, the lines that say it, and those that say it the other way round.
CASES: list[tuple[Lock, list[str], list[str]]] = [
    (part("export", opset=17), ["export.opset: 18 -> 17"], ["export.opset: 17 -> 18"]),
    (replace(LOCK, ops=LOCK.ops | {"rewrite": {"Add": 3, "Gemm": 6, "MatMul": 30}}),
     ["op counts after rewrite: Gemm 0 -> 6, MatMul 36 -> 30"],
     ["op counts after rewrite: Gemm 6 -> 0, MatMul 30 -> 36"]),
    (replace(LOCK, ops={"export": LOCK.ops["export"]}), ["op counts after rewrite: there are none now"],
     ["op counts after rewrite: there were none"]),
    (part("precision", overrides=(*PRECISION.overrides, LAYER), counts={"fp16": 18, "fp32": 4}),
     ["precision: nodes fp16 20 -> 18, fp32 2 -> 4", "LayerNorm_3, LayerNorm_4: fp16 -> fp32",
      "precision: module: norm takes 0 -> 2 nodes"],
     ["precision: nodes fp16 18 -> 20, fp32 4 -> 2", "LayerNorm_3, LayerNorm_4: fp32 -> fp16",
      "precision: module: norm takes 2 -> 0 nodes"]),
    (part("precision", names=B, others={}),
     ["Exp_1: was fp32, not named now",
      "precision: the nodes have other names; types compare only where both locks name a node"],
     ["Exp_1: now fp32, not named before",
      "precision: the nodes have other names; types compare only where both locks name a node"]),
    (part("precision", base="bf16", casts=4),
     ["precision.base: fp16 -> bf16", "precision.casts: 2 -> 4"],
     ["precision.base: bf16 -> fp16", "precision.casts: 4 -> 2"]),
    (replace(LOCK, precision=None), ["precision: fp16 dropped"], ["precision: fp16 added"]),
    (claim(REHEARSED, value=0.004), ["accept.engine.max_abs: rehearsed 0.0012 -> 0.004 (limit <= 0.01)"],
     ["accept.engine.max_abs: rehearsed 0.004 -> 0.0012 (limit <= 0.01)"]),
    (claim("accept.onnx.cosine", value=0.9999), ["accept.onnx.cosine: 0.99999977 -> 0.9999 (limit >= 0.99)"],
     ["accept.onnx.cosine: 0.9999 -> 0.99999977 (limit >= 0.99)"]),
    (claim(REHEARSED, outcome="fail", value=0.04),
     ["accept.engine.max_abs: rehearsed pass 0.0012 -> fail 0.04 (limit <= 0.01)  WORSE"],
     ["accept.engine.max_abs: rehearsed fail 0.04 -> pass 0.0012 (limit <= 0.01)  better"]),
    (claim(REHEARSED, outcome="waived", value=0.04),
     ["accept.engine.max_abs: rehearsed pass 0.0012 -> waived 0.04 (limit <= 0.01)  WORSE"],
     ["accept.engine.max_abs: rehearsed waived 0.04 -> pass 0.0012 (limit <= 0.01)  better"]),
    (claim("accept.fusion.attention", outcome="not run", value=None, why="stopped after parity"),
     ["accept.fusion.attention: pass 6 -> not run, stopped after parity (limit >= 6)  WORSE"],
     ["accept.fusion.attention: not run, stopped after parity -> pass 6 (limit >= 6)  better"]),
    (claim(MEASURED, outcome="pass", value=0.001, why=None),
     ["accept.engine.max_abs: measured not run, no GPU -> pass 0.001 (limit <= 0.01)  better"],
     ["accept.engine.max_abs: measured pass 0.001 -> not run, no GPU (limit <= 0.01)  WORSE"]),
    (claim(MEASURED, outcome="fail", why="y: missing"),
     ["accept.engine.max_abs: measured not run, no GPU -> fail, y: missing (limit <= 0.01)  WORSE"],
     ["accept.engine.max_abs: measured fail, y: missing -> not run, no GPU (limit <= 0.01)  WORSE"]),
    (claim(MEASURED, why="no driver"), ["accept.engine.max_abs: measured not run: no GPU -> no driver"],
     ["accept.engine.max_abs: measured not run: no driver -> no GPU"]),
    (limits("<= 0.02"), ["accept.engine.max_abs: limit <= 0.01 -> <= 0.02  LOOSER"],
     ["accept.engine.max_abs: limit <= 0.02 -> <= 0.01  tighter"]),
    (claim("accept.onnx.cosine", limit=">= 0.999"), ["accept.onnx.cosine: limit >= 0.99 -> >= 0.999  tighter"],
     ["accept.onnx.cosine: limit >= 0.999 -> >= 0.99  LOOSER"]),
    (claim("accept.fusion.attention", limit="== 6"), ["accept.fusion.attention: limit >= 6 -> == 6  tighter"],
     ["accept.fusion.attention: limit == 6 -> >= 6  LOOSER"]),
    (claim("build", limit="two engines"), ["build: limit an engine -> two engines  UNKNOWN DIRECTION"],
     ["build: limit two engines -> an engine  UNKNOWN DIRECTION"]),
    (without(REHEARSED), ["accept.engine.max_abs: rehearsed no longer asked; it was pass 0.0012  LOOSER"],
     ["accept.engine.max_abs: rehearsed pass 0.0012 (limit <= 0.01), not asked before  tighter"]),
    (without("build"), ["build: no longer asked; it was pass  WORSE"],
     ["build: pass (limit an engine), not asked before"]),
    (replace(LOCK, claims=LOCK.claims | {"require.lower": LockedClaim("run", "fail", None, "stopped")}),
     ["require.lower: fail, stopped (limit run), not asked before  WORSE"],
     ["require.lower: no longer asked; it was fail, stopped  better"]),
    (replace(LOCK, verdict="not accepted"), ["verdict: accepted -> not accepted  WORSE"],
     ["verdict: not accepted -> accepted  better"]),
    (replace(LOCK, verdict="accepted with waivers"), ["verdict: accepted -> accepted with waivers  WORSE"],
     ["verdict: accepted with waivers -> accepted  better"]),
    (replace(LOCK, waivers=()), ["waivers: accept.engine.max_abs no longer waived  tighter"],
     ["waivers: accept.engine.max_abs waived until 2027-01-31 by jane@example.com  LOOSER"]),
    (replace(LOCK, waivers=(replace(WAIVER, expires="2028-01-31", state="used"),)),
     ["waivers: accept.engine.max_abs: expires: 2027-01-31 -> 2028-01-31  LOOSER",
      "waivers: accept.engine.max_abs: state: unused -> used"],
     ["waivers: accept.engine.max_abs: expires: 2028-01-31 -> 2027-01-31  tighter",
      "waivers: accept.engine.max_abs: state: used -> unused"]),
    (part("engine", bytes=50_541_363), ["engine: bytes 47.9 MiB -> 48.2 MiB"], ["engine: bytes 48.2 MiB -> 47.9 MiB"]),
    (part("engine", bytes=50_226_794), ["engine: 50,226,790 bytes -> 50,226,794 bytes"],
     ["engine: 50,226,794 bytes -> 50,226,790 bytes"]),
    (part("engine", fused={"attention": 5, "layers": 40}, target=None),
     ["engine.fused.attention: 6 -> 5", "engine.target: sm89 dropped"],
     ["engine.fused.attention: 5 -> 6", "engine.target: sm89 added"]),
    (replace(LOCK, engine=None), ["engine: 7 facts dropped"], ["engine: 7 facts added"]),
    (part("graph", sha256=B), [f"graph.sha256: {A[:12]} -> {B[:12]}"], [f"graph.sha256: {B[:12]} -> {A[:12]}"]),
    (part("recipe", digest=B), [f"recipe: it means something else (digest {A[:12]} -> {B[:12]})"],
     [f"recipe: it means something else (digest {B[:12]} -> {A[:12]})"]),
    (part("model", files={"model.py": B}),
     [f"model.model.py: {A[:12]} -> {B[:12]}", f"model.weights.pt: {A[:12]} dropped"],
     [f"model.model.py: {B[:12]} -> {A[:12]}", f"model.weights.pt: {A[:12]} added"]),
    (replace(LOCK, rules=(LockedRule(5, 1, RULES[0].rule), RULES[1])),
     ["rewrites: sdpa-key-transpose matched 6 -> 5 times", "rewrites: sdpa-key-transpose refused 0 -> 1 times"],
     ["rewrites: sdpa-key-transpose matched 5 -> 6 times", "rewrites: sdpa-key-transpose refused 1 -> 0 times"]),
    (replace(LOCK, rules=RULES[:1]), ["rewrites: mask-gather-by-arange dropped"],
     ["rewrites: mask-gather-by-arange added"]),
    (replace(LOCK, rules=RULES[::-1]),
     [f"rewrites: order is now {RULES[1].rule}, {RULES[0].rule}; it was {RULES[0].rule}, {RULES[1].rule}"],
     [f"rewrites: order is now {RULES[0].rule}, {RULES[1].rule}; it was {RULES[1].rule}, {RULES[0].rule}"]),
    (replace(LOCK, packages={"onnx": "1.23.2", "torch": "2.14.0"}), ["packages.torch: 2.13.0 -> 2.14.0"],
     ["packages.torch: 2.14.0 -> 2.13.0"]),
    (replace(LOCK, portwright="0.2.0"), ["portwright: 0.1.0 -> 0.2.0"], ["portwright: 0.2.0 -> 0.1.0"]),
]  # fmt: skip


def said(old: Lock, new: Lock) -> list[str]:
    found = Difference("old", "new", tuple(locks.changes(old, new)), kind="locks")
    return [line for line in words.text(found).splitlines() if line][: len(found.changes)]


@pytest.mark.parametrize(("other", "there", "back"), CASES, ids=[case[1][0] for case in CASES])
def test_sentences(other: Lock, there: list[str], back: list[str]) -> None:
    assert said(LOCK, other) == there
    assert said(other, LOCK) == back


def leaves(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(data, dict | list):
        items = data.items() if isinstance(data, dict) else enumerate(data)
        return [leaf for key, item in items for leaf in leaves(item, (*path, key))]
    return [path]


@pytest.mark.parametrize("path", leaves(to_plain(LOCK)), ids=lambda path: ".".join(map(str, path)))
def test_every_fact_of_a_lock_is_compared(path: tuple[Any, ...]) -> None:
    """Each single value, changed alone, is a change that can be said in all three formats."""
    data = json.loads(json.dumps(to_plain(LOCK)))
    holder = data
    for key in path[:-1]:
        holder = holder[key]
    old = holder[path[-1]]
    words_of = {"pass": "fail", "not run": "fail", "unused": "used", "accepted": "not accepted"}
    other: Any = (old or 0) * 2 + 1 if isinstance(old, float | int) or path[-1] == "value" else f"{old}x"
    other = words_of.get(old, other)
    holder[path[-1]] = other
    found = Difference("a", "b", tuple(locks.changes(LOCK, from_plain(Lock, data))), kind="locks")
    if path == ("lock",):
        return  # another format is not read
    assert found.changes
    assert words.text(found)
    assert words.markdown(found)
    assert json.dumps(words.plain(found))


def test_many_nodes_are_one_line() -> None:
    names = tuple(f"n{number}" for number in range(9))
    assert PRECISION is not None
    other = part("precision", others=PRECISION.others | {"fp32": ("Exp_1", *names)})
    assert said(LOCK, other) == ["n0, n1, n2, n3, n4 and 4 more: fp16 -> fp32"]


@pytest.fixture
def pair(tmp_path: Path) -> Callable[[Lock, Lock], tuple[str, str]]:
    def make(old: Lock, new: Lock) -> tuple[str, str]:
        for name, lock in (("old", old), ("new", new)):
            (tmp_path / f"{name}.lock.yaml").write_text(lock_file.render(lock, Path("none/recipe.yaml")))
        return "old.lock.yaml", "new.lock.yaml"

    return make


WORST = replace(limits("<= 0.02"), verdict="not accepted")


def test_command(cli: Callable[..., Cli], pair: Callable[[Lock, Lock], tuple[str, str]]) -> None:
    old, new = pair(LOCK, WORST)
    done = cli("diff", old, new)
    assert done.code == 1, done.text
    assert done.out == (
        "verdict: accepted -> not accepted  WORSE\n"
        "accept.engine.max_abs: limit <= 0.01 -> <= 0.02  LOOSER\n"
        "\n"
        "2 changes: 1 worse, 0 better, 1 looser, 0 tighter\n"
    )
    assert cli("diff", old, old).out == "old.lock.yaml and old.lock.yaml say the same\n"
    assert cli("diff", old, old).code == 0
    plain = json.loads(cli("diff", old, new, "--format", "json").out)
    assert (plain["equal"], plain["compared"], plain["worse"], plain["looser"]) == (False, "locks", 1, 1)
    assert plain["changes"][0] == {
        "key": "verdict", "what": "", "old": "accepted", "new": "not accepted", "mark": "WORSE",
        "text": "verdict: accepted -> not accepted",
    }  # fmt: skip
    loud = cli("diff", old, new, "--format", "markdown").out
    assert loud.startswith(
        "**Lock:** `old.lock.yaml` → `new.lock.yaml`\n\n> **⚠ 1 worse, 1 looser:**\n>\n> - verdict"
    )


def test_words_of_a_lock_are_no_markup() -> None:
    other = replace(
        LOCK, waivers=(LockedWaiver("accept.onnx.cosine", "2027-01-31", "@x <b>", "used"), *LOCK.waivers)
    )
    text = words.markdown(Difference("a", "b", tuple(locks.changes(LOCK, other)), kind="locks"))
    assert "@x" not in text
    assert "\\<b\\>" in text


def test_a_lock_and_a_recipe(cli: Callable[..., Cli], pair: Any, toy: Callable[..., Path]) -> None:
    old, _ = pair(LOCK, LOCK)
    toy()
    for arguments in ((old, "toy"), ("toy", old)):
        done = cli("diff", *arguments)
        assert (done.code, done.out) == (2, "")
        assert done.err == (
            "old.lock.yaml is a lock file and toy a recipe; they cannot be compared\n"
            "        name two recipes or two lock files; `portwright run --locked` compares a run with its lock\n"
        )


def test_locks_that_are_none(cli: Callable[..., Cli], pair: Any, tmp_path: Path) -> None:
    old, new = pair(LOCK, LOCK)
    done = cli("diff", old, "gone.lock.yaml")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "gone.lock.yaml: no such lock file\n        portwright run RECIPE writes it when it gets to the end\n"
    )
    (tmp_path / new).write_text("portwright: 1\n")
    done = cli("diff", old, new)
    assert done.code == 2
    assert "new.lock.yaml:1:1: 'claims' is missing" in done.err
    (tmp_path / new).write_text("<<<<<<< HEAD\na: 1\n=======\na: 2\n>>>>>>> other\n")
    done = cli("diff", old, new)
    assert done.code == 2
    assert "new.lock.yaml:1:1: an unresolved merge conflict of git" in done.err


def test_locks_of_revisions(cli: Callable[..., Cli], pair: Any, tmp_path: Path) -> None:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q")
    for lock, name in ((LOCK, "one"), (part("export", opset=17), "two")):
        (folder / "recipe.lock.yaml").write_text(lock_file.render(lock, folder / "recipe.yaml"))
        git(folder, "add", ".")
        git(folder, "commit", "-qm", name)
        git(folder, "tag", name)
    done = cli("diff", "one:repo/recipe.lock.yaml", "two:repo/recipe.lock.yaml")
    assert (done.code, done.out.splitlines()[0]) == (1, "export.opset: 18 -> 17")
    assert cli("diff", "two:repo/recipe.lock.yaml", "repo/recipe.lock.yaml").code == 0
    done = cli("diff", "one:repo/other.lock.yaml", "repo/recipe.lock.yaml")
    assert done.code == 2
    assert "there is no lock file 'other.lock.yaml' in that revision" in done.err
    (folder / "recipe.lock.yaml").write_text("lock: 3\n")
    git(folder, "commit", "-qam", "three")
    done = cli("diff", "HEAD:repo/recipe.lock.yaml", "one:repo/recipe.lock.yaml")
    assert done.code == 2
    assert "HEAD:recipe.lock.yaml:1:7: lock: expected 1, got 3" in done.err
    assert "portwright-diff" not in done.err


def test_the_readme_shows_what_is_printed() -> None:
    block = re.search(r"```\n(verdict: accepted ->.*?)\n```", (ROOT / "README.md").read_text(), re.S)
    assert block is not None
    assert PRECISION is not None
    layer = LockedOverride(("LayerNorm_3",), "op: Softmax", "fp32")
    old = part("precision", overrides=(replace(layer, nodes=("Softmax_1",)),))
    new = replace(
        part(
            "precision",
            overrides=(replace(layer, nodes=("LayerNorm_3",)),),
            others={"fp32": ("Exp_1", "Softmax_1")},
        ),
        verdict="not accepted",
        ops=LOCK.ops | {"rewrite": {"Add": 3, "MatMul": 30}},
        claims=claim(REHEARSED, outcome="fail", value=0.04).claims,
    )
    found = Difference("old", "new", tuple(locks.changes(old, new)), kind="locks")
    assert words.text(found) == block[1]
