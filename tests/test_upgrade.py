"""Recipes on two toolchains, without what they may not need, and on every cell of a matrix."""

from __future__ import annotations

import json
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import recipe_patch
from engine.errors import RecipeError
from engine.lock import file as lock_file
from tests.conftest import ROOT, Cli, dedent
from tests.test_reuse import RECIPE, edit, write_model
from tests.test_route import DEEDS, FAKE


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(dedent(RECIPE))
    write_model(folder / "m.onnx", 0)
    return folder / "recipe.yaml"


def dying(tmp_path: Path, deed: str) -> str:
    fake = tmp_path / f"python-{deed.replace(' ', '-')}"
    fake.write_text(FAKE.format(python=sys.executable, root=str(ROOT), deed=DEEDS[deed][0]))
    fake.chmod(fake.stat().st_mode | stat.S_IEXEC)
    return f"path:{fake}"


def upgraded(tmp_path: Path) -> dict[str, dict[str, object]]:
    found = json.loads((tmp_path / "upgrade" / "upgrade.json").read_text())
    return {row["recipe"]: row for row in found["recipes"]}


def test_the_same_toolchain_changes_nothing(recipe: Path, tmp_path: Path, cli: Callable[..., Cli]) -> None:
    done = cli("upgrade", recipe.parent, "--from", "tensorrt-rtx", "--to", "current")
    assert done.code == 0, done.text
    assert "1 of 1 accepted: 1 unchanged" in done.out
    row = upgraded(tmp_path)["toy"]
    assert row["status"] == "unchanged"
    assert row["changes"] == []
    assert "what no toolchain has a part in was run once" in (tmp_path / "upgrade" / "UPGRADE_REPORT.md").read_text()
    record = json.loads((tmp_path / "upgrade" / "toy" / "to" / "record.json").read_text())
    ran = [item["step"] for item in record["results"] if not item["reused"]]
    assert ran == ["verify", "score"]  # the version is the same


@pytest.mark.parametrize("deed", ["segfault", "hang"])
def test_a_version_that_dies_is_a_row_and_the_others_are_complete(
    deed: str, recipe: Path, tmp_path: Path, cli: Callable[..., Cli]
) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "recipe.yaml").write_text("portwright: 1\n")
    done = cli("upgrade", recipe.parent, tmp_path / "bad", "--from", "current", "--to", dying(tmp_path, deed),
               *(("--time-limit", "20") if deed == "hang" else ()))  # fmt: skip
    assert done.code == 1, done.text
    rows = upgraded(tmp_path)
    assert rows["toy"]["status"] == "broke"
    assert DEEDS[deed][1].replace("2 s", "20 s") in str(rows["toy"]["notes"])
    assert rows["bad"]["status"] == "not compared"
    assert "0 of 2 accepted" in done.out
    again = cli("upgrade", recipe.parent, "--from", dying(tmp_path, "segfault"), "--to", "current")
    assert again.code == 0
    assert upgraded(tmp_path)["toy"]["status"] == "fixed"


def test_a_version_that_is_missing_is_a_row(recipe: Path, tmp_path: Path, cli: Callable[..., Cli]) -> None:
    done = cli("upgrade", recipe.parent, "--from", "current", "--to", "tensorrt==10.3.0")
    assert done.code == 1
    row = upgraded(tmp_path)["toy"]
    assert row["status"] == "not compared"
    assert "toolchain tensorrt==10.3.0 is not available" in str(row["notes"])
    assert "ACCEPTED" in str(row["from"])


def test_without_a_lock_the_old_version_must_be_named(recipe: Path, tmp_path: Path, cli: Callable[..., Cli]) -> None:
    done = cli("upgrade", recipe.parent, "--to", "current")
    assert done.code == 1
    assert "give --from SPEC" in done.err + str(upgraded(tmp_path))
    assert cli("upgrade", "--to", "current").code == 2
    assert "unknown toolchain 'rtx-2'" in cli("upgrade", recipe, "--to", "rtx-2").err
    assert cli("prune", recipe, "--toolchain", "rtx-2").code == 2
    shutil.copytree(recipe.parent, tmp_path / "other" / "toy")
    twice = cli("upgrade", recipe.parent, tmp_path / "other" / "toy", "--to", "current")
    assert twice.code == 2
    assert "two recipes would be upgraded as 'toy'" in twice.err


def test_write_writes_the_lock_and_the_version(recipe: Path, tmp_path: Path, cli: Callable[..., Cli]) -> None:
    version = "tensorrt-rtx==1.7.1.116"
    edit(recipe, "build: {target: sm89}", f"build: {{toolchain: {version}, target: sm89}}  # by hand")
    assert cli("run", recipe, "-q").code == 0
    lock = lock_file.beside(recipe)
    wanted = lock.read_text()
    edit(recipe, version, "tensorrt-rtx==1.4.0.76")
    lock.write_text(wanted.replace("1.7.1.116", "1.4.0.76"))
    bad = cli("upgrade", recipe, "--from", dying(tmp_path, "segfault"), "--to", version, "--write")
    if "is not available" in bad.text:  # the pinned one is not installed: the recipe itself cannot be read
        assert bad.code == 1
        assert lock.read_text() != wanted
        edit(recipe, "tensorrt-rtx==1.4.0.76", version)
        bad = cli("upgrade", recipe, "--from", dying(tmp_path, "segfault"), "--to", version, "--write")
    assert bad.code == 0, bad.text
    assert f"toolchain: {version}, target: sm89}}  # by hand" in recipe.read_text()
    assert lock.read_text() == wanted
    assert cli("run", recipe, "--locked", "-q").code == 0


def test_no_lock_is_written_unless_all_are_accepted(recipe: Path, tmp_path: Path, cli: Callable[..., Cli]) -> None:
    assert cli("run", recipe, "-q").code == 0
    lock = lock_file.beside(recipe).read_bytes()
    done = cli("upgrade", recipe, "--to", dying(tmp_path, "segfault"), "--write")
    assert done.code == 1
    assert "no lock was written: not accepted on the new toolchain: toy" in done.out
    assert lock_file.beside(recipe).read_bytes() == lock


def test_prune_finds_what_is_not_needed(recipe: Path, tmp_path: Path, cli: Callable[..., Cli]) -> None:
    done = cli("prune", recipe)
    assert done.code == 0, done.text
    assert "override op Relu: fp32: not needed on current" in done.out
    assert "-    - {op: Relu, type: fp32, because: tried}" in done.out
    before = recipe.read_text()
    assert "overrides" in before
    applied = cli("prune", recipe, "--apply", "--json")
    assert json.loads(applied.out)["gone"] == [{"key": "overrides", "index": 0, "label": "override op Relu: fp32"}]
    assert "overrides" not in recipe.read_text()
    assert "base: fp16" in recipe.read_text()
    assert cli("run", recipe, "-q").code == 0
    none = cli("prune", recipe)
    assert none.code == 2
    assert "nothing to prune" in none.err


def test_prune_keeps_what_is_needed(recipe: Path, cli: Callable[..., Cli]) -> None:
    both = "- {op: Relu, type: fp32, because: tried}\n    - {op: MatMul, type: fp32, because: tried}"
    edit(recipe, "- {op: Relu, type: fp32, because: tried}", both)
    edit(recipe, "{max_abs: 2.0e-2}", "{max_abs: 1.0e-4}")
    done = cli("prune", recipe)
    assert done.code == 0, done.text
    assert "override op MatMul: fp32: needed: NOT ACCEPTED: accept.engine (rehearsed).max_abs" in done.out
    assert "everything in the recipe is needed" in done.out
    edit(recipe, "{max_abs: 1.0e-4}", "{max_abs: 1.0e-12}")
    assert cli("prune", recipe).code == 1


TEXT = """\
portwright: 1
# above
rewrites:
  - rule: one  # first
    matches: 1
  # of the second
  - rule: two

  - {rule: three}
precision:
  base: fp16  # kept
  overrides: [{op: Relu, type: fp32}, {op: Add, type: fp32}]
"""


@pytest.mark.parametrize(
    ("places", "gone"),
    [
        ([("rewrites", 0)], ["  - rule: one  # first\n", "    matches: 1\n"]),
        ([("rewrites", 1)], ["  - rule: two\n"]),
        ([("rewrites", 0), ("rewrites", 2)],
         ["  - rule: one  # first\n", "    matches: 1\n", "  - {rule: three}\n"]),
        ([("precision", "overrides", 0)], ["{op: Relu, type: fp32}, "]),
        ([("precision", "overrides", 1)], [", {op: Add, type: fp32}"]),
        ([("precision", "overrides", 0), ("precision", "overrides", 1)],
         ["  overrides: [{op: Relu, type: fp32}, {op: Add, type: fp32}]\n"]),
    ],
)  # fmt: skip
def test_taking_out_items_leaves_every_other_byte(places: list[tuple[str, int]], gone: list[str]) -> None:
    expected = TEXT
    for text in gone:
        assert text in expected
        expected = expected.replace(text, "")
    assert recipe_patch.without(TEXT, places) == expected


def test_what_cannot_be_taken_out_is_left(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="cannot be taken out"):
        recipe_patch.without("precision: {base: fp16, overrides: [{op: Add}]}\n", [("precision", "overrides", 0)])


def test_a_matrix_is_a_table_of_runs(recipe: Path, tmp_path: Path, cli: Callable[..., Cli]) -> None:
    assert "the recipe has no matrix" in cli("run", recipe, "--matrix").err
    matrix = "matrix: {targets: [sm86, sm120], toolchains: [current, tensorrt==10.3.0]}"
    edit(recipe, "build: {target: sm89}", f"build: {{target: sm89}}\n{matrix}")
    done = cli("run", recipe, "--matrix", "--json")
    assert done.code == 1
    found = [(cell["toolchain"], cell["target"], cell["verdict"] is not None) for cell in json.loads(done.out)]
    assert found == [("current", "sm86", True), ("current", "sm120", True), ("tensorrt==10.3.0", "sm86", False),
                     ("tensorrt==10.3.0", "sm120", False)]  # fmt: skip
    assert not lock_file.beside(recipe).exists()
    edit(recipe, ", toolchains: [current, tensorrt==10.3.0]", "")
    assert cli("run", recipe, "--matrix").code == 0
    assert cli("run", recipe, "--matrix", "--locked").code == 2


@pytest.mark.parametrize(
    ("matrix", "base", "what"),
    [
        ("{targets: [sm89, sm75]}", "bf16", "bf16 needs sm80 or newer; this target is sm75"),
        ("{targets: [sm121], toolchains: [tensorrt-rtx==1.4.0.76]}", "fp16", "does not build for sm121"),
        ("{toolchains: [tensorflow]}", "fp16", "matrix.toolchains"),
        ("{}", "fp16", "matrix"),
    ],
)
def test_a_matrix_that_cannot_be_is_refused(
    matrix: str, base: str, what: str, recipe: Path, cli: Callable[..., Cli]
) -> None:
    edit(recipe, "base: fp16", f"base: {base}")
    edit(recipe, "build: {target: sm89}", f"build: {{target: sm89}}\nmatrix: {matrix}")
    done = cli("check", recipe)
    assert done.code == 2
    assert what in done.err
    assert "recipe.yaml:14" in done.err
