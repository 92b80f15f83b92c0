"""The lock file: what is in it, how it is written and read, and when two figures are the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from engine import accept, document, intake, interpret, locking, record, route, schema
from engine.errors import Exit, Failure, RecipeError
from engine.lock import figures, make
from engine.lock import file as lock_file
from engine.lock.model import Lock, LockedClaim
from engine.record import Record
from tests.conftest import ROOT, Cli
from tests.lock_tools import LOCK
from tests.test_schema import same
from tests.test_waivers import WAIVER
from tests.test_waivers import run as judged_run

SCHEMA = schema.load("lock")
NOWHERE = Path("nowhere/recipe.yaml")


def text(lock: Lock = LOCK) -> str:
    return lock_file.render(lock, NOWHERE)


def nodes(node: dict[str, Any], path: str = "lock") -> list[tuple[str, dict[str, Any]]]:
    found = [(path, node)]
    for key, child in node.get("properties", {}).items():
        found += nodes(child, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict) and "properties" in node[key]:
            found += nodes(node[key], f"{path}[]")
    return found


NODES = nodes(SCHEMA)


def test_schema_and_types_are_in_step() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    same(Lock, SCHEMA, "lock")


@pytest.mark.parametrize(("path", "node"), NODES, ids=[path for path, _ in NODES])
def test_schema_describes_everything_with_examples(path: str, node: dict[str, Any]) -> None:
    assert len(node["description"]) > 8
    assert path == "lock" or node["examples"]
    for example in node.get("examples", []):
        jsonschema.Draft202012Validator(node).validate(example)
    if "properties" in node:
        assert node["additionalProperties"] is False


def test_what_is_written_is_read(tmp_path: Path) -> None:
    (tmp_path / "recipe.lock.yaml").write_text(text())
    assert lock_file.read(tmp_path / "recipe.lock.yaml") == LOCK
    least = replace(LOCK, engine=None, export=None, graph=None, precision=None, waivers=(), rules=(), ops={})
    (tmp_path / "recipe.lock.yaml").write_text(text(least))
    assert lock_file.read(tmp_path / "recipe.lock.yaml") == least


NAMES = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Cn", "Co")), min_size=1, max_size=12)
TRICKY = st.sampled_from(
    ["1e5", "0x10", "no", "12:30", "null", "~", "- a", "a: b", "#", "'", "1.0", "=", "<<"]
)


@given(st.lists(NAMES | TRICKY, min_size=1, max_size=8, unique=True))
def test_any_name_survives(names: list[str]) -> None:
    assert LOCK.precision is not None
    precision = replace(LOCK.precision, others={"fp32": tuple(sorted(names))})
    lock = replace(LOCK, precision=precision, model=replace(LOCK.model, files=dict.fromkeys(names, "a" * 64)))
    data = document.parse(text(lock)).data
    assert data["precision"]["others"]["fp32"] == sorted(names)
    assert set(data["model"]["files"]) == set(names)


def unsorted(data: Any) -> list[Any]:
    if isinstance(data, dict):
        wrong = [] if list(data) == sorted(data) else [list(data)]
        return wrong + [item for value in data.values() for item in unsorted(value)]
    return [item for value in data for item in unsorted(value)] if isinstance(data, list) else []


def test_it_is_sorted_and_in_block_style() -> None:
    assert unsorted(document.parse(text()).data) == []
    body = [line for line in text().splitlines() if not line.startswith("#")]
    assert not [line for line in body if line.endswith(("}", "]")) and not line.endswith(("{}", "[]"))]
    assert yaml.safe_load(text())["precision"]["overrides"][0]["nodes"] == ["Softmax_1"]


def test_the_head_says_who_wrote_it_and_where_its_schema_is(tmp_path: Path) -> None:
    lines = lock_file.render(LOCK, ROOT / "recipes" / "minilm-l6" / "recipe.yaml").splitlines()
    assert lines[0] == "# yaml-language-server: $schema=../../schemas/lock.schema.json"
    assert (ROOT / "recipes" / "minilm-l6" / lines[0].partition("=")[2]).is_file()
    assert lines[1].startswith("# Written by `portwright run`; do not edit.")
    (tmp_path / "recipe.yaml").write_text("# yaml-language-server: $schema=recipe.schema.json\n")
    assert lock_file.render(LOCK, tmp_path / "recipe.yaml") == text()  # there is no such schema beside it
    (tmp_path / "lock.schema.json").write_text("{}")
    first = lock_file.render(LOCK, tmp_path / "recipe.yaml").splitlines()[0]
    assert first == "# yaml-language-server: $schema=lock.schema.json"


WRONG = [
    (("lock: 1\n", "lock: 2\n"), "lock: expected 1, got 2"),
    (("verdict: accepted\n", "verdict: splendid\n"), "verdict: 'splendid' is not one of: accepted, "),
    (("verdict: accepted\n", ""), "'verdict' is missing"),
    (("outcome: pass", "outcome: passed"), "'passed' is not one of: pass, fail, not run, waived"),
    (("network_layers: 90", "network_layers: many"), "engine.network_layers: expected a whole number, got 'many'"),
    (("name: toy", "name: toy\n  nam: x"), "recipe: unknown key 'nam'"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "what"), WRONG, ids=[what for _, what in WRONG])
def test_a_wrong_lock_has_places(edit: tuple[str, str], what: str, tmp_path: Path) -> None:
    assert edit[0] in text()
    path = tmp_path / "recipe.lock.yaml"
    path.write_text(text().replace(*edit))
    with pytest.raises(RecipeError) as caught:
        lock_file.read(path, "recipe.lock.yaml")
    problem = caught.value.problems[0]
    assert what in problem.what
    assert problem.place is not None
    assert problem.place.file == "recipe.lock.yaml"
    if edit[1]:
        assert edit[1].split(": ")[-1].strip() in problem.source_line


def test_a_lock_that_is_a_list(tmp_path: Path) -> None:
    (tmp_path / "recipe.lock.yaml").write_text("- a\n")
    with pytest.raises(RecipeError, match="a lock is a mapping; this file holds something else"):
        lock_file.read(tmp_path / "recipe.lock.yaml")


# Figures


@pytest.mark.parametrize(
    ("claim", "value", "shown"),
    [
        ("accept.onnx.max_abs", 2.7418136e-06, 2.7e-06),
        ("accept.onnx.max_abs", 0.0, 0.0),
        ("accept.engine (rehearsed).rel_l2", 0.000675, 0.00068),
        ("accept.engine (measured).cosine", 0.99999976543, 0.99999977),
        ("accept.engine (measured).cosine", 1.0000000000000002, 1.0),
        ("accept.engine (measured).cosine", -0.24, -0.2),
        ("accept.onnx.argmax", 1 - 1 / 64, 0.984),
        ("accept.fusion.layers", 129.0, 129.0),
        ("accept.engine_mib", 47.853, 47.85),
    ],
)
def test_rounding(claim: str, value: float, shown: float) -> None:
    assert figures.rounded(claim, value) == shown


@pytest.mark.parametrize(
    ("claim", "one", "other", "equal"),
    [
        ("accept.onnx.max_abs", 1.2e-6, 1.3e-6, True),  # either side of a rounding boundary
        ("accept.onnx.max_abs", 1.2e-6, 2.4e-6, True),  # the factor itself
        ("accept.onnx.max_abs", 1.2e-6, 2.5e-6, False),
        ("accept.onnx.max_abs", 0.0, 9e-8, True),  # both below the floor
        ("accept.onnx.max_abs", 0.0, 2.1e-7, False),
        ("accept.engine (rehearsed).cosine", 0.9999999, 0.9999996, True),
        ("accept.engine (rehearsed).cosine", 0.9999999, 0.9999995, False),
        ("accept.onnx.argmax", 1.0, 0.98, False),
        ("accept.fusion.layers", 129.0, 130.0, False),
        ("accept.engine_mib", 47.85, 47.86, False),
        ("accept.onnx.max_abs", 1.2e-6, None, False),
        ("accept.onnx.max_abs", None, None, True),
    ],
)
def test_figures_that_are_the_same(claim: str, one: float | None, other: float | None, equal: bool) -> None:
    assert figures.same(claim, one, other) is equal
    assert figures.same(claim, other, one) is equal


@given(st.floats(1e-9, 1e3), st.floats(1 / 1.8, 1.8))
def test_rounding_never_makes_two_like_figures_differ(value: float, factor: float) -> None:
    name = "accept.engine (rehearsed).max_abs"
    assert figures.same(name, figures.rounded(name, value), figures.rounded(name, value * factor))


# From a record


def locked(done: Record) -> Lock:
    """``make`` on a record whose steps before parity are filled in with the least that it reads."""
    from engine.values import StepResult

    source = StepResult("source", "ok", facts={"origin": {"files": {}, "source": "python", "what": "model"}})
    build = next(item for item in done.results if item.step == "build")
    more = {"network_layers": 3, "types_checked": 2, "fused_types": {}, "target": None, "module": "tensorrt_rtx",
            "version": "1", "engine_bytes": 5, "fusion": {}}  # fmt: skip
    build = replace(build, facts=more | dict(build.facts))
    others = tuple(item for item in done.results if item.step != "build")
    done = replace(done, results=(source, *others, build))
    return make.make(done, accept.judge(done))


def test_a_waiver_is_in_it_and_the_day_of_the_run_is_not() -> None:
    lock = locked(judged_run(WAIVER))
    assert lock.verdict == "accepted with waivers"
    assert [(item.claim, item.state) for item in lock.waivers] == [("accept.engine.max_abs", "used")]
    claim = lock.claims["accept.engine (rehearsed).max_abs"]
    assert (claim.outcome, claim.value, claim.why) == ("waived", 0.5, None)
    late = [locked(judged_run(WAIVER, date=day)) for day in ("2027-02-01", "2027-02-02")]
    assert late[0] == late[1]
    assert late[0].verdict == "not accepted"


def test_a_reason_names_neither_the_day_nor_the_machine() -> None:
    from engine.comparison import Comparison

    broken = Comparison("y", "min", "shape [1, 4], expected [4]")
    lock = locked(judged_run(WAIVER, date="2027-02-01", half=broken))
    assert lock.claims["accept.engine (rehearsed).max_abs"] == LockedClaim(
        "<= 0.02", "fail", None, "shape [1, 4], expected [4]"
    )
    claim = accept.Claim("x", "not run", "", why="not part of this version (no GPU here (libcuda.so.1))")
    assert make._claim(claim, ()).why == "not part of this version"
    assert "2027-02-01" not in text(lock)


# What git leaves behind


def conflicted(tmp_path: Path, name: str, one: str, base: str, other: str, style: str) -> Path:
    """``name`` with what a merge of two branches leaves in it."""
    for side, content in (("one", one), ("base", base), ("other", other)):
        (tmp_path / side).write_text(content)
    done = subprocess.run(["git", "merge-file", "-p", *([style] if style else []), "one", "base", "other"],
                          cwd=tmp_path, capture_output=True, text=True)  # fmt: skip
    assert "<<<<<<<" in done.stdout
    (tmp_path / name).write_text(done.stdout)
    return tmp_path / name


@pytest.mark.parametrize("style", ["", "--diff3"])
def test_a_conflict_in_a_lock_is_explained(style: str, tmp_path: Path) -> None:
    sides = [text(replace(LOCK, export=replace(LOCK.export, opset=opset))) for opset in (17, 18, 19)]
    path = conflicted(tmp_path, "recipe.lock.yaml", *sides, style)
    with pytest.raises(RecipeError) as caught:
        lock_file.read(path, "recipe.lock.yaml")
    line = path.read_text().splitlines().index("<<<<<<< one") + 1
    assert str(caught.value) == (
        f"recipe.lock.yaml:{line}:1: an unresolved merge conflict of git\n"
        f"{line:>5} | <<<<<<< one\n"
        "      | ^^^^^^^^^^^\n"
        "        resolve the recipe, then run the recipe again: portwright run RECIPE writes the lock anew"
    )


@pytest.mark.parametrize(
    ("content", "places"),
    [
        ("<<<<<<< HEAD\na: 1\n=======\na: 2\n>>>>>>> fix: that\n", ["1:1"]),
        ("a: 1\n<<<<<<< a\nb: 1\n=======\nb: 2\n>>>>>>> b\nc: 1\n<<<<<<< a\n=======\n>>>>>>> b\n", ["2:1", "8:1"]),
        ("a: 1\n=======\n", ["2:1"]),
        ("a: 1\n>>>>>>> 1a2b: x\n", ["2:1"]),
        ("a: 1\r\n||||||| base\r\n", ["2:1"]),
    ],
)  # fmt: skip
def test_conflicts_have_their_places(content: str, places: list[str]) -> None:
    with pytest.raises(RecipeError) as caught:
        document.parse(content, "x")
    assert [str(problem.place) for problem in caught.value.problems] == [f"x:{place}" for place in places]
    assert {problem.what for problem in caught.value.problems} == {document.CONFLICT}


@pytest.mark.parametrize(
    "content", ["a: |\n  <<<<<<< not git\n  =======\n", "# =======\na: 1\n", "a: '======='\n", "<<<<<<<<: 1\n"]
)  # fmt: skip
def test_what_only_looks_like_a_conflict(content: str) -> None:
    document.parse(content)


# Runs


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The digits recipe run twice, in two folders and two environments."""
    folders = []
    for number in (1, 2):
        out = tmp_path_factory.mktemp("locked") / ("x" * number * 20)
        command = [
            sys.executable,
            "-m",
            "engine.cli",
            "run",
            str(ROOT / "recipes" / "digits-resnet"),
            "--out",
            str(out),
        ]
        path = os.environ | {"PYTHONPATH": str(ROOT), "PADDING": "x" * number * 5000}
        done = subprocess.run(command, cwd=ROOT, env=path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == f"lock: {out}/recipe.lock.yaml: written"
        folders.append(out)
    return folders[0], folders[1]


def test_two_runs_write_the_same_lock(twice: tuple[Path, Path]) -> None:
    one, other = ((folder / "recipe.lock.yaml").read_bytes() for folder in twice)
    assert one == other
    lock = lock_file.read(twice[0] / "recipe.lock.yaml")
    assert lock.verdict == "accepted"
    assert lock.precision is not None
    assert lock.precision.counts == {"fp16": 20, "fp32": 1}
    assert list(lock.ops) == ["export", "lower"]


def test_nothing_of_the_machine_or_the_day_is_in_it(twice: tuple[Path, Path]) -> None:
    content = (twice[0] / "recipe.lock.yaml").read_text()
    done = record.read(twice[0])
    machine = (done.environment["platform"], done.environment["machine"], str(ROOT))
    for word in (*machine, done.date, str(twice[0]), "seconds"):
        assert word not in content


def test_a_shipped_lock_says_what_a_run_comes_to(twice: tuple[Path, Path]) -> None:
    """With the pinned packages; with others the lock of a run differs, as it should."""
    shipped = lock_file.read(ROOT / "recipes" / "digits-resnet" / "recipe.lock.yaml")
    ran = lock_file.read(twice[0] / "recipe.lock.yaml")
    if shipped.packages != ran.packages:
        pytest.skip(f"the lock was written with {shipped.packages}, here are {ran.packages}")
    from engine.diff import locks

    assert list(locks.changes(shipped, ran, tolerant=True)) == []


SHIPPED = sorted((ROOT / "recipes").glob("*/recipe.lock.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.parent.name)
def test_shipped_locks_are_of_the_recipes_beside_them(path: Path) -> None:
    _, plan = intake.make_plan(path.parent)
    assert lock_file.read(path).recipe.digest == plan.digest, f"stale: portwright run {path.parent}"
    assert lock_file.render(lock_file.read(path), path.with_name("recipe.yaml")) == path.read_text()


def test_the_shipped_locks_are_there() -> None:
    assert {"digits-resnet", "minilm-l6"} <= {path.parent.name for path in SHIPPED}


@pytest.fixture
def replay(
    twice: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., route.Outcome]:
    """``route.run`` on a copy of the recipe, with the stored record in the place of a run; ``change`` alters it."""
    stored = record.read(twice[0])
    folder = tmp_path / "digits"
    folder.mkdir()
    for name in ("recipe.yaml", "model.py", "weights.safetensors"):
        (folder / name).write_bytes((ROOT / "recipes" / "digits-resnet" / name).read_bytes())

    def call(
        change: Callable[[Record], Record] = lambda done: done, *, until: str = "score", out: Path | None = None,
        locked: bool = False,
    ) -> route.Outcome:  # fmt: skip
        def run(plan: Any, folder: Path, until: str, *rest: Any) -> Record:
            return change(replace(stored, plan=plan, until=until))

        monkeypatch.setattr(interpret, "run", run)
        return route.run(folder, out, until, (), lambda event: None, locked=locked)

    return call


def state(outcome: route.Outcome) -> tuple[str, int]:
    assert outcome.lock is not None
    return outcome.lock.state, int(outcome.exit_code)


def worse(done: Record, factor: float = 1.5) -> Record:
    """The rehearsed errors times ``factor``."""

    def scaled(item: dict[str, Any]) -> dict[str, Any]:
        return item | {key: item[key] * factor for key in ("max_abs", "rel_l2")}

    results = [
        replace(result, measurements={**result.measurements,
                                      "comparisons": [scaled(item) for item in result.measurements["comparisons"]]})
        if result.step == "rehearse" else result
        for result in done.results
    ]  # fmt: skip
    return replace(done, results=tuple(results))


def failed(done: Record) -> Record:
    return replace(done, results=done.results[:3], failed_step="build", failure=Failure("it broke"))


def test_a_lock_is_written_beside_the_recipe_once(
    replay: Callable[..., route.Outcome], tmp_path: Path
) -> None:
    file = tmp_path / "digits" / "recipe.lock.yaml"
    assert state(replay()) == ("written", 0)
    before = file.stat().st_mtime_ns, file.read_text()
    os.utime(file, ns=(1, 1))
    assert state(replay()) == ("unchanged", 0)
    assert state(replay(worse)) == ("unchanged", 0)  # figures within the factor do not dirty it
    assert (file.stat().st_mtime_ns, file.read_text()) == (1, before[1])
    assert state(replay(lambda done: worse(done, 3))) == ("written", 0)
    assert file.read_text() != before[1]
    assert sorted(path.name for path in file.parent.iterdir()) == [
        "PORT_REPORT.md", "model.py", "port", "recipe.lock.yaml", "recipe.yaml", "weights.safetensors"]  # fmt: skip


def test_a_run_that_is_not_accepted_has_a_lock_too(
    replay: Callable[..., route.Outcome], tmp_path: Path
) -> None:
    assert state(replay(lambda done: worse(done, 1000))) == ("written", 1)
    lock = lock_file.read(tmp_path / "digits" / "recipe.lock.yaml")
    assert lock.verdict == "not accepted"
    assert lock.claims["accept.engine (rehearsed).max_abs"].outcome == "fail"
    assert state(replay(lambda done: worse(done, 1000), locked=True)) == ("same", 1)


def test_out_touches_nothing_else(replay: Callable[..., route.Outcome], tmp_path: Path) -> None:
    assert state(replay(out=tmp_path / "out")) == ("written", 0)
    assert (tmp_path / "out" / "recipe.lock.yaml").is_file()
    assert not (tmp_path / "digits" / "recipe.lock.yaml").exists()


@pytest.mark.parametrize(
    ("change", "until", "why"),
    [
        (lambda done: done, "build", "the run stopped after build"),
        (failed, "score", "build failed"),
        (lambda done: replace(done, interrupted=True), "score", "the run was interrupted"),
    ],
)
def test_a_run_that_did_not_end_leaves_the_lock_alone(
    change: Callable[[Record], Record],
    until: str,
    why: str,
    replay: Callable[..., route.Outcome],
    tmp_path: Path,
) -> None:
    file = tmp_path / "digits" / "recipe.lock.yaml"
    outcome = replay(change, until=until)
    assert outcome.lock is not None
    assert (outcome.lock.state, outcome.lock.text) == ("none", "")
    assert not file.exists()
    file.write_text("kept\n")
    outcome = replay(change, until=until)
    assert outcome.lock is not None
    assert outcome.lock.text == f"lock: {file}: left as it was ({why})"
    assert file.read_text() == "kept\n"


def test_a_lock_with_a_conflict_is_written_anew(replay: Callable[..., route.Outcome], tmp_path: Path) -> None:
    file = tmp_path / "digits" / "recipe.lock.yaml"
    file.write_text("<<<<<<< HEAD\n=======\n>>>>>>> x\n")
    assert state(replay()) == ("written", 0)
    assert lock_file.read(file).verdict == "accepted"


def test_locked(replay: Callable[..., route.Outcome], tmp_path: Path) -> None:
    file = tmp_path / "digits" / "recipe.lock.yaml"
    replay()
    os.utime(file, ns=(1, 1))
    assert state(replay(locked=True)) == ("same", 0)
    assert state(replay(worse, locked=True)) == ("same", 0)
    outcome = replay(lambda done: worse(done, 3), locked=True)
    assert state(outcome) == ("differs", 1)
    assert outcome.lock is not None
    changes = locking.plain(outcome.lock)["changes"]
    assert [change["text"] for change in changes] == [
        "accept.engine.max_abs: rehearsed 0.0068 -> 0.02 (limit <= 0.05)",
        "accept.engine.rel_l2: rehearsed 0.00068 -> 0.002 (limit <= 0.005)",
    ]
    outcome = replay(failed, locked=True)
    assert state(outcome) == ("not compared", 3)
    assert outcome.lock is not None
    assert outcome.lock.text == f"lock: {file}: not compared (build failed)"
    # with --out it is still the lock beside the recipe that counts, and none is written
    assert state(replay(locked=True, out=tmp_path / "out")) == ("same", 0)
    assert not (tmp_path / "out" / "recipe.lock.yaml").exists()
    assert file.stat().st_mtime_ns == 1


def test_a_wrong_type_in_the_stored_lock_is_said(
    replay: Callable[..., route.Outcome], tmp_path: Path
) -> None:
    """A flipped fact of each kind makes --locked fail: nothing in the lock is decoration."""
    replay()
    file = tmp_path / "digits" / "recipe.lock.yaml"
    original = file.read_text()
    for old, new in (
        ("fp16: 20", "fp16: 19"), ("Conv: 9", "Conv: 8"), ("opset: 18", "opset: 17"), ("bytes: 4", "bytes: 5"),
        ("layers: 13", "layers: 14"), ('onnx: "1', 'onnx: "2'), ("outcome: not run", "outcome: pass"),
        ('limit: "<= 0.05"', 'limit: "<= 0.06"'), ("- node_linear", "- node_other"),
        ("verdict: accepted", "verdict: not accepted"), ("target: sm89", "target: sm80"),
        ('portwright: "0', 'portwright: "1'),
    ):  # fmt: skip
        assert old in original
        file.write_text(original.replace(old, new, 1))
        assert state(replay(locked=True)) == ("differs", 1), old


def test_locked_without_a_lock_or_with_another_recipes(
    cli: Callable[..., Cli], toy: Callable[..., Path]
) -> None:
    folder = toy()
    done = cli("run", folder, "--locked")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"{folder}/recipe.lock.yaml: there is no lock to hold the run against\n"
        f"        write it first: portwright run {folder}/recipe.yaml\n"
    )
    (folder / "recipe.lock.yaml").write_text(text())
    digest = intake.make_plan(folder)[1].digest[:12]
    line = text().splitlines().index(f"  digest: {'a' * 64}") + 1
    done = cli("run", folder, "--locked")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"{folder}/recipe.lock.yaml:{line}:11: recipe.digest: the recipe changed since the lock was written:"
        f" its meaning now has the digest {digest}..., the lock aaaaaaaaaaaa...\n"
        f"{line:>5} |   digest: {'a' * 64}\n"
        f"      |           {'^' * 64}\n"
        "        portwright diff REV:RECIPE RECIPE says what changed;"
        f" write the lock anew with portwright run {folder}/recipe.yaml\n"
    )
    assert not (folder / "port").exists()
    done = cli("run", folder, "--locked", "--until", "check")
    assert done.code == 2
    assert done.err == (
        "--locked needs the whole run, and it was to stop after check\n        leave out --until\n"
    )


def test_layout_comments_and_defaults_do_not_make_a_lock_stale(toy: Callable[..., Path]) -> None:
    first = intake.make_plan(toy())[1].digest
    same = toy(
        ("name: toy", "# a comment\nname:   toy"),
        ("bench:", "simplify: none\nseed: 0\nbench:"),
        ("1.0e-5", "0.00001"),
    )
    assert intake.make_plan(same)[1].digest == first
    other = toy(("base: fp16", "base: bf16"))
    assert intake.make_plan(other)[1].digest != first


def test_a_variant_has_a_lock_of_its_own() -> None:
    assert lock_file.beside(Path("a/recipe.yaml")) == Path("a/recipe.lock.yaml")
    assert lock_file.beside(Path("a/variant.yaml")) == Path("a/variant.lock.yaml")


@pytest.mark.parametrize("command", ["check", "run", "plan"])
def test_a_lock_is_no_recipe(command: str, cli: Callable[..., Cli], tmp_path: Path) -> None:
    (tmp_path / "recipe.lock.yaml").write_text(text())
    done = cli(command, "recipe.lock.yaml")
    assert done.code == 2
    assert done.err.startswith(
        "recipe.lock.yaml: a lock file, not a recipe\n        name the recipe that it lies beside\n"
    )


@pytest.mark.parametrize("options", [(), ("--locked",), ("--out", "out")], ids=str)
def test_a_folder_in_the_place_of_the_lock(
    options: tuple[str, ...], cli: Callable[..., Cli], toy: Callable[..., Path], tmp_path: Path
) -> None:
    folder = toy()
    file = (tmp_path / "out" if "--out" in options else folder) / "recipe.lock.yaml"
    file.mkdir(parents=True)
    done = cli("run", folder, *options)
    assert done.code == 2, done.text
    assert (
        "recipe.lock.yaml: is a folder, where the lock of the recipe belongs\n        move it away\n"
        in done.err
    )
    assert not (folder / "port").exists()


def test_json_tells_of_the_lock(cli: Callable[..., Cli], toy: Callable[..., Path]) -> None:
    folder = toy()
    (folder / "recipe.lock.yaml").write_text(text())
    done = cli("run", folder, "--until", "check", "--json")
    wanted = {"state": "left alone", "why": "the run stopped after check", "changes": []}
    assert json.loads(done.out)["lock"] == {"file": f"{folder}/recipe.lock.yaml"} | wanted
    assert done.code == Exit.ACCEPTED
