"""The store: files by content, entries by key, and nothing that is not as it was written."""

from __future__ import annotations

import fcntl
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from engine import installed, intake, keys, needs
from engine.digests import digest_file
from engine.errors import RecipeError
from engine.keys import Unknown
from engine.plan import Plan
from engine.steps import NAMES
from engine.store import care, drafts
from engine.store.store import Store, default_folder
from engine.values import Artifact, StepResult

FULL = Path(__file__).parent / "recipes" / "accept" / "full.yaml"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store")


def stored(store: Store, out: Path, key: str, text: str, name: str = "onnx/g.onnx") -> StepResult:
    path = out / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    found = Artifact(name, digest_file(path), path.stat().st_size)
    result = StepResult("export", "ok", artifacts={"graph": found}, facts={"n": 1}, ended="2026-01-01T00:00:00Z")
    assert store.put(key, result, out, "toy")
    return result


KEY, OTHER = "ab" * 32, "cd" * 32


def test_what_was_put_is_found_with_its_files(store: Store, tmp_path: Path) -> None:
    put = stored(store, tmp_path / "one", KEY, "graph")
    assert store.find(KEY) == put
    assert store.find(OTHER) is None
    assert store.place(put, tmp_path / "two")
    placed = tmp_path / "two" / "onnx" / "g.onnx"
    assert placed.read_text() == "graph"
    assert placed.stat().st_nlink == 1  # ONNX refuses weights with several
    placed.write_text("edited")  # by a user, in place
    assert store.find(KEY) == put
    assert store.troubles == []


def test_one_content_is_stored_once(store: Store, tmp_path: Path) -> None:
    stored(store, tmp_path / "one", KEY, "same")
    stored(store, tmp_path / "two", OTHER, "same")
    assert len([path for path in store.objects.folder.rglob("*") if path.is_file()]) == 1


@pytest.mark.parametrize("kind", ["objects", "entries"])
def test_a_flipped_bit_is_a_miss_and_told(store: Store, tmp_path: Path, kind: str) -> None:
    stored(store, tmp_path / "one", KEY, "graph")
    [file] = [path for path in (store.folder / kind).rglob("*") if path.is_file()]
    file.chmod(0o644)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert store.find(KEY) is None
    assert len(store.troubles) == 1
    assert "was not used" in store.troubles[0]
    faults = care.verify(store)
    assert faults
    assert care.verify(store) == []
    again = stored(store, tmp_path / "two", KEY, "graph")
    assert store.find(KEY) == again


def test_a_stored_file_of_the_same_size_and_mtime_is_not_believed(store: Store, tmp_path: Path) -> None:
    stored(store, tmp_path / "one", KEY, "graph")
    [file] = [path for path in store.objects.folder.rglob("*") if path.is_file()]
    before = file.stat()
    file.chmod(0o644)
    file.write_text("hparg")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert store.find(KEY) is None


def test_a_note_is_believed_until_the_file_changes(store: Store, tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"1" * 100)
    store.seen.note(file, "told")
    assert store.seen.digest(file) == "told"
    before = file.stat()
    file.write_bytes(b"2" * 100)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert store.seen.digest(file) == digest_file(file)
    store.seen.note(file, "told")
    monkeypatch.setattr("engine.store.seen._boot", lambda: "another")
    assert store.seen.digest(file) == digest_file(file)


def test_a_file_that_was_just_written_is_not_noted(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"1")
    store.seen.digest(file)
    assert store.seen.known(file) == ""


def test_what_the_run_before_left_is_renamed_and_not_copied(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "one"
    put = stored(store, out, KEY, "graph")
    inode = (out / "onnx" / "g.onnx").stat().st_ino
    (out / ".earlier").mkdir()
    (out / "onnx").rename(out / ".earlier" / "onnx")
    assert store.place(put, out)
    assert (out / "onnx" / "g.onnx").stat().st_ino == inode
    (out / ".earlier" / "onnx").mkdir(exist_ok=True)
    (out / "onnx" / "g.onnx").replace(out / ".earlier" / "onnx" / "g.onnx")
    (out / ".earlier" / "onnx" / "g.onnx").write_text("hparg")
    assert store.place(put, out)
    assert (out / "onnx" / "g.onnx").read_text() == "graph"


def test_a_full_disk_ends_the_storing_and_not_the_run(store: Store, tmp_path: Path, monkeypatch: Any) -> None:
    def full(*args: object, **named: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(drafts, "write", full)
    path = tmp_path / "out" / "x"
    path.parent.mkdir()
    path.write_text("x")
    result = StepResult("export", "ok", artifacts={"x": Artifact("x", digest_file(path), 1)})
    assert not store.put(KEY, result, tmp_path / "out", "toy")
    assert not store.put(OTHER, result, tmp_path / "out", "toy")
    assert store.troubles == [f"nothing more is stored in {store.folder}: No space left on device"]


def test_a_draft_of_a_dead_process_goes_and_one_of_a_living_stays(tmp_path: Path) -> None:
    folder = tmp_path / "drafts"
    with drafts.draft(folder) as (path, _):
        (folder / "dead").write_text("half")
        assert drafts.sweep(folder) == 1
        assert path.exists()
    assert list(folder.iterdir()) == []


def test_prune_removes_the_least_recently_used(store: Store, tmp_path: Path) -> None:
    for index, key in enumerate((KEY, OTHER)):
        stored(store, tmp_path / key, key, key * 1000)
        os.utime(store.entry(key), (1000 + index, 1000 + index))
    store.find(KEY)  # used now
    done = care.prune(store, 100_000)
    assert done.entries == 1
    assert store.find(KEY) is not None
    assert store.find(OTHER) is None
    assert care.verify(store) == []
    assert care.prune(store, 0).entries == 1
    assert care.entries(store) == []


def test_prune_waits_for_a_run_that_puts(store: Store) -> None:
    with store.locked(exclusive=False), (store.folder / "lock").open("ab") as stream, pytest.raises(BlockingIOError):
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_folder_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecipeError, match="cannot be used as the store"):
        Store.open(tmp_path / "file")


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PORTWRIGHT_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_folder() == Path("~/.cache/portwright").expanduser()
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert default_folder() == Path("/x/portwright")


def plan() -> Plan:
    return intake.make_plan(FULL)[1]


def of(step: str, made: Plan, **earlier: StepResult) -> str:
    given = {name: StepResult(name, "ok") for name in NAMES} | earlier
    return keys.key(keys.fields(step, made, given, digest_file))


def test_the_table_names_fields_of_the_plan_and_steps() -> None:
    known = {field.name for field in fields(Plan)}
    for step, line in needs.NEEDS.items():
        assert {name.partition(".")[0] for name in (*line.plan, *line.partly)} <= known
        assert {NAMES.index(name) < NAMES.index(step) for name in needs.steps_of(line)} <= {True}
        keys.fields(step, plan(), {name: StepResult(name, "ok") for name in NAMES}, digest_file)


def test_a_step_sees_nothing_that_its_line_does_not_name() -> None:
    seen = needs.narrowed(plan(), "rehearse")
    assert seen.shapes == plan().shapes
    with pytest.raises(AttributeError, match=r"does not name 'accept'"):
        _ = seen.accept.engine.max_abs
    with pytest.raises(AttributeError, match=r"does not name 'waivers'"):
        bool(seen.waivers)
    found = needs.seen({name: StepResult(name, "ok", facts={"a": 1}) for name in NAMES}, "rehearse")
    assert list(found) == ["source", "export", "simplify", "rewrite", "lower"]
    assert found["source"].facts == {}
    assert found["lower"].facts == {"a": 1}


def test_a_threshold_changes_no_key_and_an_override_that_of_lower() -> None:
    one = plan()
    other = replace(one, accept=replace(one.accept, engine=replace(one.accept.engine, max_abs=7.0)))
    assert [step for step in needs.NEEDS if of(step, one) != of(step, other)] == []
    other = replace(one, precision=replace(one.precision, overrides=()))
    assert [step for step in needs.NEEDS if of(step, one) != of(step, other)] == ["lower"]
    other = replace(one, build=replace(one.build, workspace_mib=77))
    assert [step for step in needs.NEEDS if of(step, one) != of(step, other)] == ["build"]
    other = replace(one, seed=one.seed + 1)
    assert "source" in [step for step in needs.NEEDS if of(step, one) != of(step, other)]


def test_a_result_follows_the_content_of_files_and_not_their_names() -> None:
    one = StepResult("lower", "ok", artifacts={"graph": Artifact("onnx/lower.onnx", "1" * 64, 9)})
    other = StepResult("lower", "ok", artifacts={"graph": Artifact("onnx/lower.onnx", "2" * 64, 9)})
    assert of("build", plan(), lower=one) != of("build", plan(), lower=other)
    assert of("build", plan(), lower=one) == of("build", plan(), lower=replace(one, seconds=5.0, reused=True))


def test_the_version_of_a_package_and_of_the_toolchain_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {step: of(step, plan()) for step in needs.NEEDS}
    monkeypatch.setitem(installed.versions(), "onnx-ir", "99")
    changed = {step for step in needs.NEEDS if of(step, plan()) != before[step]}
    assert changed == set(needs.NEEDS) - {"build"}
    monkeypatch.undo()
    monkeypatch.setattr(keys.toolchain, "_installed_version", lambda module: "1.5.0.114")
    changed = {step for step in needs.NEEDS if of(step, plan()) != before[step]}
    assert changed == {"build"}
    monkeypatch.setattr(keys.toolchain, "_installed_version", lambda module: "1.4.0.76")  # takes older opsets only
    changed = {step for step in needs.NEEDS if of(step, plan()) != before[step]}
    assert changed == {"build", "check"}


def test_an_engine_for_the_gpu_at_hand_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    made = replace(plan(), build=replace(plan().build, target=None))
    of("build", made)
    monkeypatch.setattr(keys.toolchain, "has_gpu", lambda: (True, ""))
    with pytest.raises(Unknown, match="GPU of this machine"):
        of("build", made)


def test_what_no_step_imports_is_not_in_the_code() -> None:
    from tests.test_structure import MODULES, dotted, imports

    graph = {dotted(path): imports(path) for path in MODULES}
    reached: set[str] = set()
    todo = [name for name in graph if name.startswith("engine.steps.") or name == "engine.host"]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += graph.get(name, set())
    above = {name for name in reached if name.split(".")[1] in keys.ABOVE}
    assert above <= {name for name in reached if name.startswith("engine.store")}
