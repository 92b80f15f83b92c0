"""``portwright diff``: what changed, which limits became looser, which steps are affected."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import document, reruns, schema
from engine.diff import compare, loosening, words
from engine.steps import NAMES
from tests import mutations
from tests.conftest import ROOT, Cli

ACCEPT = ROOT / "tests" / "recipes" / "accept"
MODEL = "def load():\n    return None\n"
RECIPE = """\
portwright: 1
name: toy
model: {python: model.py:load}
axes:
  batch: {min: 1, opt: 4, max: 16}
inputs:
  x: {dtype: float32, shape: [batch, 8]}
outputs: [y]
export: {opset: 18}
rewrites:
  - {rule: sdpa-key-transpose, matches: 6, because: only transposes K}
  - {rule: drop-softmax-nan-guard}
precision:
  base: fp16
  overrides:
    - {op: Softmax, type: fp32, because: large scores}
accept:
  onnx: {max_abs: 1e-5, cosine: 0.999}
  engine: {max_abs: 1e-2}
  fusion: {attention: ">= 6"}
"""


@pytest.fixture
def pair(tmp_path: Path) -> Callable[..., tuple[str, str]]:
    """Folders of RECIPE and of RECIPE with texts replaced."""

    def make(*edit: tuple[str, str], model: str = MODEL) -> tuple[str, str]:
        text = RECIPE
        for old, new in edit:
            assert old in text, old
            text = text.replace(old, new)
        for name, content, code in (("old", RECIPE, MODEL), ("new", text, model)):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "recipe.yaml").write_text(content)
            (tmp_path / name / "model.py").write_text(code)
        return str(tmp_path / "old"), str(tmp_path / "new")

    return make


def lines(found: compare.Difference) -> list[str]:
    return [line for line in words.text(found).splitlines() if line]


CASES: list[tuple[list[tuple[str, str]], list[str], str]] = [
    ([("opset: 18", "opset: 17")], ["export.opset: 18 -> 17"], "export"),
    ([("export: {opset: 18}\n", "export: {exporter: torchscript}\n")],
     ["export.exporter: dynamo (default) -> torchscript"], "export"),
    ([("  - {rule: drop-softmax-nan-guard}\n", "")], ["rewrites: drop-softmax-nan-guard dropped"], "rewrite"),
    ([("  - {rule: drop-softmax-nan-guard}\n",
       "  - {rule: drop-softmax-nan-guard}\n  - {rule: celu-to-elementwise, because: an op\n      is missing}\n")],
     ["rewrites: celu-to-elementwise added (because an op is missing)"], "rewrite"),
    ([("matches: 6, ", "")],
     ["rewrites: sdpa-key-transpose must match any number of times; it was 6 times  LOOSER"], "rewrite"),
    ([("because: only transposes K", "because: nine nodes")],
     ["rewrites: sdpa-key-transpose: because: only transposes K -> nine nodes"], ""),
    ([("op: Softmax, type: fp32, because: large scores", "module: '**.LayerNorm', type: fp32, because: overflow")],
     ["precision: op Softmax no longer fp32", "precision: module **.LayerNorm now fp32 (because overflow)"], "lower"),
    ([("type: fp32", "type: bf16")],
     ["precision: op Softmax now bf16 instead of fp32 (because large scores)"], "lower"),
    ([("base: fp16", "base: bf16")], ["precision.base: fp16 -> bf16"], "source"),
    ([("max: 16", "max: 32")], ["axes.batch.max: 16 -> 32"], "source"),
    ([("shape: [batch, 8]", "shape: [batch, 9]")], ["inputs.x.shape: [batch, 8] -> [batch, 9]"], "source"),
    ([("shape: [batch, 8]}", "shape: [batch, 8], values: ones}")],
     ["inputs.x.values: normal [0, 1] -> ones"], "source"),
    ([("max_abs: 1e-2", "max_abs: 2e-2")], ["accept.engine.max_abs: 0.01 -> 0.02  LOOSER"], ""),
    ([("max_abs: 1e-2", "max_abs: 5e-3")], ["accept.engine.max_abs: 0.01 -> 0.005  tighter"], ""),
    ([("cosine: 0.999", "cosine: 0.99")], ["accept.onnx.cosine: 0.999 -> 0.99  LOOSER"], ""),
    ([("cosine: 0.999", "cosine: 0.9999")], ["accept.onnx.cosine: 0.999 -> 0.9999  tighter"], ""),
    ([(", cosine: 0.999", "")], ["accept.onnx.cosine: 0.999 dropped  LOOSER"], ""),
    ([('  fusion: {attention: ">= 6"}\n', "")], ["accept.fusion.attention: >= 6 dropped  LOOSER"], ""),
    ([('">= 6"', '">= 5"')], ["accept.fusion.attention: >= 6 -> >= 5  LOOSER"], ""),
    ([('">= 6"', '"== 6"')], ["accept.fusion.attention: >= 6 -> == 6  tighter"], ""),
    ([('">= 6"', '"<= 6"')], ["accept.fusion.attention: >= 6 -> <= 6  LOOSER"], ""),
    ([('">= 6"}\n', '">= 6"}\n  rehearsal: plan\n')],
     ["accept.rehearsal: every-op (default) -> plan  LOOSER"], ""),
    ([('">= 6"}\n', '">= 6"}\n  engine_mib: 60\n')], ["accept.engine_mib: 60 added  tighter"], ""),
    ([("name: toy", "name: other")], ["name: toy -> other"], "build"),
    ([("name: toy", "name: toy\nabout: 'a sentence: new'")], ["about: a sentence: new added"], ""),
    ([("accept:", "bench: {rounds: 5}\naccept:")], ["bench.rounds: 20 (default) -> 5"], "bench"),
    ([("accept:", "build: {target: sm89}\naccept:")], ["build.target: sm89 added"], "build"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("edit", "wanted", "first"), CASES, ids=lambda case: case[0] if isinstance(case, list) else case
)
def test_sentences(
    edit: list[tuple[str, str]], wanted: list[str], first: str, pair: Callable[..., tuple[str, str]]
) -> None:
    found = compare.compare(*pair(*edit))
    assert not found.as_written
    assert lines(found)[: len(found.changes)] == wanted
    assert (found.steps[0] if found.steps else "") == first
    if first and first != "bench":
        assert found.steps == NAMES[NAMES.index(first) :]
    back = compare.compare(found.new, found.old)
    assert len(back.changes) == len(found.changes)
    assert back.steps == found.steps


def test_the_same_said_otherwise_is_no_change(pair: Callable[..., tuple[str, str]]) -> None:
    """Comments, order, layout, spelled-out defaults and other spellings of a number mean nothing."""
    found = compare.compare(*pair(
        ("1e-2", "0.010"), ("name: toy", "name: toy  # mine"), ("export: {opset: 18}", "simplify: none\nseed: 0"),
        ("shape: [batch, 8]}", "shape: [batch, 8], values: {normal: [0, 1]}}"),
    ))  # fmt: skip
    assert found.changes == ()
    assert found.steps == ()
    assert words.text(found).endswith("say the same")


def test_the_model_code_counts(pair: Callable[..., tuple[str, str]]) -> None:
    found = compare.compare(*pair(model=MODEL + "# changed\n"))
    assert lines(found)[0] == "model: the code itself changed"
    assert found.steps == NAMES


def test_the_order_of_rules_counts_and_that_of_overrides_where_their_types_differ(
    pair: Callable[..., tuple[str, str]],
) -> None:
    one = "  - {rule: sdpa-key-transpose, matches: 6, because: only transposes K}\n"
    found = compare.compare(*pair((one, ""), ("precision:", one + "precision:")))
    assert lines(found)[0] == (
        "rewrites: order is now drop-softmax-nan-guard, sdpa-key-transpose; "
        "it was sdpa-key-transpose, drop-softmax-nan-guard"
    )
    first = "    - {op: Softmax, type: fp32, because: large scores}\n"
    more = "    - {op: Erf, type: fp32, because: steep}\n"
    a, b = pair((first, first + more))
    Path(a, "recipe.yaml").write_text(RECIPE.replace(first, more + first))
    assert compare.compare(a, b).changes == ()
    wide = more.replace("fp32", "bf16")
    Path(a, "recipe.yaml").write_text(RECIPE.replace(first, wide + first))
    Path(b, "recipe.yaml").write_text(RECIPE.replace(first, first + wide))
    assert lines(compare.compare(a, b))[0].startswith("precision.overrides: order is now ")


def test_a_waiver_is_a_loosened_limit() -> None:
    one = {
        "claim": "accept.engine.max_abs",
        "owner": "jane@example.com",
        "because": "ranks only",
        "expires": "2027-01-31",
    }
    none, some, later = (
        compare._View({"waivers": entries}) for entries in ([], [one], [one | {"expires": "2027-02-01"}])
    )

    def said(old: compare._View, new: compare._View) -> list[tuple[str, str]]:
        return [(words.sentence(change), change.mark) for change in compare._changes(old, new)]

    sentence = (
        "waivers: accept.engine.max_abs waived until 2027-01-31 by jane@example.com (because ranks only)"
    )
    assert said(none, some) == [(sentence, "LOOSER")]
    assert said(some, none) == [("waivers: accept.engine.max_abs no longer waived", "tighter")]
    assert said(some, later) == [
        ("waivers: accept.engine.max_abs: expires: 2027-01-31 -> 2027-02-01", "LOOSER")
    ]
    assert said(later, some)[0][1] == "tighter"
    assert said(some, some) == []


def test_written_where_one_does_not_check(pair: Callable[..., tuple[str, str]]) -> None:
    found = compare.compare(*pair(("rule: drop-softmax-nan-guard", "rule: none-of-that-name")))
    assert "new does not check: no rule 'none-of-that-name'" in found.as_written
    assert lines(found)[:2] == [
        "rewrites: drop-softmax-nan-guard dropped",
        "rewrites: none-of-that-name added",
    ]
    assert "as written, without defaults" in words.text(found)


def test_summary(pair: Callable[..., tuple[str, str]]) -> None:
    found = compare.compare(*pair(("1e-2", "2e-2"), ("0.999", "0.9999"), ("opset: 18", "opset: 17")))
    assert lines(found)[-2:] == [
        "3 changes: 1 looser, 1 tighter",
        "steps affected: " + ", ".join(NAMES[NAMES.index("export") :]),
    ]
    assert lines(compare.compare(*pair(("1e-2", "2e-2"))))[-1] == (
        "steps affected: none; the verdict and the report are"
    )


def test_the_readme_shows_what_is_printed(pair: Callable[..., tuple[str, str]]) -> None:
    block = re.search(r"```\n(export\.opset.*?)\n```", (ROOT / "README.md").read_text(), re.S)
    assert block is not None
    override = "    - {op: Softmax, type: fp32, because: large scores}\n"
    more = '    - {module: "**.LayerNorm", type: fp32, because: layer normalisation in FP16 may overflow}\n'
    found = compare.compare(*pair(("18", "17"), ("1e-2", "2e-2"), (override, override + more)))
    assert words.text(found) == block[1]


def test_markdown_is_safe_and_loud(pair: Callable[..., tuple[str, str]]) -> None:
    reason = "see #12, @someone, <b>bold</b> | `x` and https://a.b/c [l](m)"
    found = compare.compare(*pair(("large scores", json.dumps(reason)), ("1e-2", "2e-2")))
    text = words.markdown(found)
    assert "> **⚠ 1 looser:**" in text
    assert "**LOOSER**" in text
    for raw in ("#12", "@someone", "<b>", "`x`", "[l]", "https://"):
        assert not re.search(rf"(?<!\\){re.escape(raw)}", text), raw
    assert text.count("accept.engine.max\\_abs: 0.01 -\\> 0.02") == 2
    assert words.markdown(compare.compare(found.old, found.old)).endswith("Both say the same.")


def test_command(cli: Callable[..., Cli], pair: Callable[..., tuple[str, str]]) -> None:
    a, b = pair(("1e-2", "2e-2"))
    done = cli("diff", a, b)
    assert done.code == 1
    assert "accept.engine.max_abs: 0.01 -> 0.02  LOOSER" in done.out
    plain = json.loads(cli("diff", a, b, "--format", "json").out)
    assert (plain["equal"], plain["looser"], plain["compared"]) == (False, 1, "as resolved")
    assert plain["changes"][0]["key"] == "accept.engine.max_abs"
    assert cli("diff", a, a).code == 0
    assert cli("diff", a, a, "--format", "markdown").code == 0
    done = cli("diff", a, "nowhere")
    assert (done.code, done.out) == (2, "")
    assert "nowhere: no such recipe" in done.err
    done = cli("diff", f"{a}/recipe.lock.yaml", b)
    assert done.code == 2
    assert "is a lock file and" in done.err
    Path(b, "recipe.yaml").write_text("portwright: 2\n")
    done = cli("diff", b, b)
    assert done.code == 2
    assert "portwright: expected 1, got 2" in done.err
    assert done.err.count("expected 1, got 2") == 1


def test_no_code_of_the_recipe_is_run(cli: Callable[..., Cli], pair: Callable[..., tuple[str, str]]) -> None:
    a, b = pair(model="raise SystemExit(9)\ndef load(): ...\n")
    assert cli("diff", a, b).code == 1


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A recipe with its model and a rule of its own in two commits; the first is tagged ``one``."""
    rule = (ROOT / "rewrites" / "celu-to-elementwise.yaml").read_text()
    folder = tmp_path / "repo" / "recipes" / "my toy"
    folder.mkdir(parents=True)
    git(tmp_path / "repo", "init", "-q")
    (folder / "recipe.yaml").write_text(
        RECIPE.replace("rule: drop-softmax-nan-guard", "rule: own/celu-to-elementwise.yaml"))  # fmt: skip
    (folder / "model.py").write_text(MODEL)
    (folder / "own").mkdir()
    (folder / "own" / "celu-to-elementwise.yaml").write_text(rule)
    git(tmp_path / "repo", "add", ".")
    git(tmp_path / "repo", "commit", "-qm", "one")
    git(tmp_path / "repo", "tag", "one")
    (folder / "recipe.yaml").write_text(
        (folder / "recipe.yaml").read_text().replace("opset: 18", "opset: 17")
    )
    (folder / "model.py").write_text(MODEL + "# two\n")
    git(tmp_path / "repo", "commit", "-qam", "two")
    return folder


def test_revisions(repository: Path, cli: Callable[..., Cli]) -> None:
    here = "repo/recipes/my toy"
    done = cli("diff", f"one:{here}", f"HEAD:{here}/recipe.yaml")
    assert done.code == 1, done.text
    assert done.out.splitlines()[:2] == ["model: the code itself changed", "export.opset: 18 -> 17"]
    assert "as written" not in done.out
    assert cli("diff", f"HEAD:{here}", here).code == 0
    rule = repository / "own" / "celu-to-elementwise.yaml"
    rule.write_text(rule.read_text() + "# other\n")
    done = cli("diff", f"HEAD:{here}", here)
    assert "rewrites: own/celu-to-elementwise.yaml: the rule itself changed" in done.out
    status = subprocess.run(["git", "status", "--porcelain"], cwd=repository, capture_output=True, text=True)
    assert status.stdout == ' M "recipes/my toy/own/celu-to-elementwise.yaml"\n'


def test_a_recipe_that_is_gone_from_the_working_tree(repository: Path, cli: Callable[..., Cli]) -> None:
    for file in repository.rglob("*.*"):
        file.unlink()
    done = cli("diff", "one:repo/recipes/my toy", "HEAD:repo/recipes/my toy")
    assert done.code == 1
    assert "export.opset: 18 -> 17" in done.out


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("none:repo/recipes/my toy", "no revision 'none' in"),
        ("--output=x:repo/recipes/my toy", "no revision '--output=x' in"),
        ("one:repo/recipes/other", "there is no recipe 'recipes/other' in that revision"),
        ("one:elsewhere", "lies in no git repository"),
        (":repo/recipes/my toy", "no revision before the colon"),
    ],
)
def test_revisions_that_are_not_there(
    spec: str, what: str, repository: Path, cli: Callable[..., Cli]
) -> None:
    done = cli("diff", "--", spec, "repo/recipes/my toy")
    assert (done.code, done.out) == (2, "")
    assert what in done.err
    assert "Traceback" not in done.err


def test_a_broken_recipe_in_a_revision_has_its_place(repository: Path, cli: Callable[..., Cli]) -> None:
    (repository / "recipe.yaml").write_text("portwright: 1\nnam: x\n")
    git(repository, "commit", "-qam", "three")
    done = cli("diff", "HEAD:repo/recipes/my toy", "one:repo/recipes/my toy")
    assert done.code == 2
    assert "HEAD:recipes/my toy/recipe.yaml:2:1: unknown key 'nam'" in done.err
    assert "portwright-diff" not in done.err


def keys(node: dict[str, Any], path: str = "") -> Iterator[str]:
    """The dotted keys of a schema, without the names that the user chooses."""
    definitions = schema.load("recipe")["$defs"]
    node = {**definitions[node["$ref"].rsplit("/", 1)[-1]], **node} if "$ref" in node else node
    for part in (node, node.get("else", {})):
        for key, child in part.get("properties", {}).items():
            yield f"{path}{key}"
            yield from keys(child, f"{path}{key}.")
    for inside in (node.get("items"), node.get("additionalProperties")):
        if isinstance(inside, dict):
            yield from keys(inside, path)


KEYS = sorted(set(keys(schema.load("recipe"))))


@pytest.mark.parametrize("key", KEYS)
def test_every_key_has_its_first_step(key: str) -> None:
    assert reruns.first(key) in (None, *NAMES)


def test_the_table_of_steps_names_only_keys() -> None:
    assert set(reruns.FIRST) <= set(KEYS)
    with pytest.raises(KeyError):
        reruns.first("zebra.max_abs")


def test_steps_of_several_keys() -> None:
    assert reruns.steps(["bench.rounds", "build.target"]) == ("build", "fused", "verify", "bench", "score")
    assert reruns.steps(["bench.rounds"]) == ("bench",)
    assert reruns.steps(["accept.onnx.max_abs", "about"]) == ()


@pytest.mark.parametrize(
    "key", [key for key in KEYS if key.startswith("accept.") and key.count(".") == 2] + ["accept.engine_mib"]
)
def test_every_limit_has_a_direction(key: str) -> None:
    assert loosening.direction(key) is not None


def test_the_rehearsal_that_rounds_less_is_looser() -> None:
    marks = {(old, new): loosening.mark("accept.rehearsal", old, new)
             for old in (None, "every-op", "plan") for new in (None, "every-op", "plan")}  # fmt: skip
    assert {pair for pair, mark in marks.items() if mark == "LOOSER"} == {(None, "plan"), ("every-op", "plan")}
    assert {pair for pair, mark in marks.items() if mark == "tighter"} == {("plan", None), ("plan", "every-op")}


def test_a_limit_of_unknown_direction_is_loud() -> None:
    assert loosening.mark("accept.speed", 1, 2) == "UNKNOWN DIRECTION"


LIMIT = st.floats(1e-6, 1.0)
BOUND = st.tuples(st.sampled_from([">=", "<=", "=="]), st.integers(0, 9)).map(
    lambda pair: f"{pair[0]} {pair[1]}"
)


@given(BOUND, BOUND)
def test_a_bound_is_looser_when_something_new_passes(old: str, new: str) -> None:
    def passes(bound: str) -> set[int]:
        sign, number = bound.split()
        return {
            n
            for n in range(-1, 12)
            if {">=": n >= int(number), "<=": n <= int(number), "==": n == int(number)}[sign]
        }

    got = loosening.mark("accept.fusion.layers", old, new)
    wanted = "" if passes(old) == passes(new) else "LOOSER" if passes(new) - passes(old) else "tighter"
    assert got == wanted


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["max_abs", "mean_abs", "rel_l2", "cosine", "argmax"]), LIMIT, LIMIT, LIMIT)
def test_a_limit_is_looser_when_something_new_passes(
    metric: str, old: float, new: float, value: float
) -> None:
    from engine import accept
    from engine.recipe import Limits

    def passes(limit: float) -> bool:
        figures = dict.fromkeys(("max_abs", "mean_abs", "rel_l2", "cosine", "argmax"), value)
        item = type("Figures", (), {**figures, "output": "y", "shape": "opt", "problem": ""})()
        (claim,) = accept.judge_limits("x", Limits(**{metric: limit}), [item], "")
        return claim.status == "pass"

    if passes(new) and not passes(old):
        assert loosening.mark(f"accept.engine.{metric}", old, new) == "LOOSER"
    if passes(old) and not passes(new):
        assert loosening.mark(f"accept.engine.{metric}", old, new) == "tighter"


def leaves(node: mutations.Node) -> list[mutations.Node]:
    return [part for part in node.walk() if part.text is not None]


def test_every_value_of_the_language_is_compared() -> None:
    """Each value of the recipe that uses every key, changed alone, is a change that can be said."""
    data = document.read(ACCEPT / "full.yaml").data
    count = len(leaves(mutations.tree(data)))
    assert count > 50
    for number in range(count):
        root = mutations.tree(data)
        leaf = leaves(root)[number]
        value = json.loads(leaf.text or "")
        other = (
            value * 2 + 1 if not isinstance(value, str) else "== 77" if value[:1] in "<>=" else value + "x"
        )
        leaf.text = json.dumps(other)
        found = list(compare._changes(compare._View(data), compare._View(mutations._data(root))))
        assert found, (value, other)
        for change in found:
            assert words.sentence(change)
            assert reruns.first(change.key) in (None, *NAMES)


def test_every_key_that_goes_or_comes_is_compared() -> None:
    data = document.read(ACCEPT / "full.yaml").data
    holders = [number for number, node in enumerate(mutations.tree(data).walk()) if node.pairs]
    for number in holders:
        for index in range(len(list(mutations.tree(data).walk())[number].pairs or ())):
            root = mutations.tree(data)
            pairs = list(root.walk())[number].pairs or []
            del pairs[index]
            less = compare._View(mutations._data(root))
            for pair in ((compare._View(data), less), (less, compare._View(data))):
                try:
                    found = list(compare._changes(*pair))
                except KeyError:
                    continue  # a list entry without what it is known by: the schema refuses it
                assert found
                assert all(words.sentence(change) for change in found)


def test_a_pin_of_a_weight_file_that_goes_is_looser() -> None:
    key = "model.external_sha256.m.data"
    assert loosening.mark(key, "ab" * 32, None) == "LOOSER"
    assert loosening.mark(key, None, "ab" * 32) == "tighter"
    assert loosening.mark(key, "ab" * 32, "cd" * 32) == ""


@pytest.fixture
def variants(tmp_path: Path) -> Path:
    """A variant whose base lies elsewhere in the same repository; the base changes between two commits."""
    top = tmp_path / "repo"
    for name in ("base", "variant"):
        (top / name).mkdir(parents=True)
    git(top, "init", "-q")
    (top / "base" / "recipe.yaml").write_text(RECIPE)
    (top / "base" / "model.py").write_text(MODEL)
    (top / "variant" / "recipe.yaml").write_text(
        "extends: ../base\nname: variant\nexport: {exporter: torchscript}\n"
    )
    git(top, "add", ".")
    git(top, "commit", "-qm", "one")
    git(top, "tag", "one")
    (top / "base" / "recipe.yaml").write_text(
        RECIPE.replace("opset: 18", "opset: 17").replace("1e-2", "2e-2")
    )
    git(top, "commit", "-qam", "two")
    return top


def test_a_base_that_changed_between_revisions_changes_its_variant(
    variants: Path, cli: Callable[..., Cli]
) -> None:
    done = cli("diff", "one:repo/variant", "HEAD:repo/variant")
    assert done.code == 1, done.text
    assert done.out.splitlines()[:2] == [
        "export.opset: 18 -> 17",
        "accept.engine.max_abs: 0.01 -> 0.02  LOOSER",
    ]
    assert "as written" not in done.out
    assert cli("diff", "HEAD:repo/variant", "repo/variant").code == 0
    (variants / "base" / "model.py").write_text("# other\n" + MODEL)
    done = cli("diff", "HEAD:repo/variant", "repo/variant")
    assert done.out.splitlines()[0] == "model: the code itself changed"


def test_a_base_comes_from_its_revision_and_not_from_the_working_tree(
    variants: Path, cli: Callable[..., Cli]
) -> None:
    (variants / "base" / "recipe.yaml").write_text("nothing that is a recipe\n")
    done = cli("diff", "one:repo/variant", "HEAD:repo/variant")
    assert done.out.splitlines()[0] == "export.opset: 18 -> 17", done.text


def test_a_chain_of_bases_in_a_revision(variants: Path, cli: Callable[..., Cli]) -> None:
    (variants / "third.yaml").write_text("extends: variant/recipe.yaml\nname: third\n")
    git(variants, "add", ".")
    git(variants, "commit", "-qm", "three")
    done = cli("diff", "HEAD:repo/third.yaml", "HEAD:repo/variant")
    assert done.code == 1, done.text
    assert done.out.splitlines()[:2] == ["extends: variant/recipe.yaml -> ../base", "name: third -> variant"]


def test_a_base_at_the_top_of_the_repository(variants: Path, cli: Callable[..., Cli]) -> None:
    (variants / "recipe.yaml").write_text("extends: base\nname: top\n")
    (variants / "variant" / "recipe.yaml").write_text("extends: ..\nname: variant\n")
    git(variants, "add", ".")
    git(variants, "commit", "-qm", "three")
    done = cli("diff", "HEAD:repo/variant", "HEAD:repo")
    assert done.code == 1, done.text
    assert done.out.splitlines()[:2] == ["extends: .. -> base", "name: variant -> top"]


def test_a_base_that_is_not_in_the_revision(variants: Path, cli: Callable[..., Cli]) -> None:
    git(variants, "rm", "-q", "--cached", "base/recipe.yaml")
    git(variants, "commit", "-qm", "three")
    assert (variants / "base" / "recipe.yaml").exists()
    done = cli("diff", "HEAD:repo/variant", "one:repo/variant")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "HEAD:variant/recipe.yaml:1:10: extends: there is no recipe '../base'\n"
        "    1 | extends: ../base\n"
        "      |          ^^^^^^^\n"
        "        the folder holds no recipe.yaml\n"
        "read more: docs/recipe-reference.md#extends; or `portwright schema`\n"
    )
    git(variants, "rm", "-q", "--cached", "base/model.py")
    git(variants, "commit", "-qm", "four")
    done = cli("diff", "HEAD:repo/variant", "one:repo/variant")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "HEAD:variant/recipe.yaml:1:10: extends: there is no recipe '../base'\n"
        "    1 | extends: ../base\n"
        "      |          ^^^^^^^\n"
        "        looked in HEAD:variant/..\n"
        "read more: docs/recipe-reference.md#extends; or `portwright schema`\n"
    )


def test_a_base_outside_the_repository(variants: Path, cli: Callable[..., Cli], tmp_path: Path) -> None:
    """It is not taken from wherever the path leads to now."""
    steps = "../" * (len(tmp_path.parts) + 1)
    base = f"{steps}{tmp_path.relative_to('/')}/outside"
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "recipe.yaml").write_text(RECIPE)
    (variants / "variant" / "recipe.yaml").write_text(f"extends: {base}\n")
    git(variants, "commit", "-qam", "three")
    done = cli("diff", "HEAD:repo/variant", "one:repo/variant")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        f"HEAD:variant/recipe.yaml:1:10: extends: '{base}' lies outside the repository, so that no revision holds it\n"
    )
    assert "move it into the repository, or compare two folders instead of revisions\n" in done.err


def test_a_broken_base_in_a_revision_has_its_place(variants: Path, cli: Callable[..., Cli]) -> None:
    (variants / "base" / "recipe.yaml").write_text(RECIPE.replace("base: fp16", "base: fp15"))
    git(variants, "commit", "-qam", "three")
    done = cli("diff", "HEAD:repo/variant", "one:repo/variant")
    assert done.code == 2
    assert "HEAD:base/recipe.yaml:14:9: precision.base: 'fp15' is not one of" in done.err
    assert "portwright-diff" not in done.err
