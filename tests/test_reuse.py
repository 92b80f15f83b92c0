"""Runs that find in the store what they need: what is reused, what runs again, and that it comes to the same."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from engine import route
from engine.store.store import Store
from tests.conftest import Cli, dedent, record_of

RECIPE = """
    portwright: 1
    name: toy
    model: {onnx: m.onnx}
    axes:
      batch: {min: 1, opt: 4, max: 16}
    inputs:
      x: {dtype: float32, shape: [batch, 8]}
    outputs: [y]
    precision:
      base: fp16
      overrides:
        - {op: Relu, type: fp32, because: tried}
    build: {target: sm89}
    bench: {rounds: 0}
    accept:
      onnx: {max_abs: 1.0e-5}
      engine: {max_abs: 2.0e-2}
"""
BODY = """<ir_version: 9, opset_import: ["" : 18]>
g (float[batch,8] x) => (float[batch,300] y) { a = MatMul (x, w)  y = Relu (a) }"""


def write_model(path: Path, seed: int) -> None:
    """Weights of more than 1 KiB, so that the run keeps them in a file of their own."""
    model = onnx.parser.parse_model(BODY)
    weights = np.random.default_rng(seed).normal(size=(8, 300)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(model, path)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(dedent(RECIPE))
    write_model(folder / "m.onnx", 0)
    return folder / "recipe.yaml"


def run(recipe: Path, store: Path, **options: Any) -> tuple[route.Outcome, list[str]]:
    """The outcome, and the steps that ran."""
    done = route.run(recipe, None, "score", (), lambda event: None, store=Store.open(store), **options)
    return done, [item.step for item in done.record.results if not item.reused]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


NEVER = ["verify", "score"]


def test_what_did_not_change_is_reused_and_comes_to_the_same(recipe: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    first, ran = run(recipe, store)
    assert first.exit_code == 0, first.message
    assert len(ran) == 15
    lock = recipe.with_name("recipe.lock.yaml").read_bytes()
    files = digests(recipe.parent / "port")
    recipe.with_name("recipe.lock.yaml").unlink()

    again, ran = run(recipe, store)
    assert ran == NEVER
    assert again.exit_code == 0
    assert recipe.with_name("recipe.lock.yaml").read_bytes() == lock
    assert digests(recipe.parent / "port") == files
    assert list((recipe.parent / "port" / "logs").iterdir()) == []  # no process was started
    report = (recipe.parent / "PORT_REPORT.md").read_text()
    assert "reused, it ran at 20" in report
    assert not (recipe.parent / "port" / ".earlier").exists()

    shutil.rmtree(recipe.parent / "port")
    _, ran = run(recipe, store)
    assert ran == NEVER
    assert digests(recipe.parent / "port") == files

    edit(recipe, "max_abs: 2.0e-2", "max_abs: 1.0e-9")
    strict, ran = run(recipe, store)
    assert ran == NEVER
    assert strict.exit_code == 1

    edit(recipe, "max_abs: 1.0e-9", "max_abs: 2.0e-2")
    edit(recipe, "op: Relu", "op: MatMul")
    _, ran = run(recipe, store)
    assert ran[0] == "lower"
    assert {"rehearse", "build"} <= set(ran)

    edit(recipe, "op: MatMul", "op: Relu")
    _, ran = run(recipe, store)
    assert ran == NEVER
    _, ran = run(recipe, store, fresh=True)
    assert len(ran) == 15


def digests(port: Path) -> dict[str, bytes]:
    kept = ("onnx", "samples", "stress", "engine")
    return {
        str(path.relative_to(port)): path.read_bytes()
        for folder in kept
        for path in (port / folder).rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def test_another_file_of_the_same_name_size_and_time_is_another_model(recipe: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    one, _ = run(recipe, store)
    file = recipe.with_name("m.onnx")
    before = file.stat()
    other = tmp_path / "other.onnx"
    write_model(other, 1)
    assert other.stat().st_size == before.st_size
    file.write_bytes(other.read_bytes())
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    two, ran = run(recipe, store)
    assert "source" in ran
    assert "build" in ran
    assert one.record.facts("source")["origin"]["files"] != two.record.facts("source")["origin"]["files"]
    write_model(file, 0)
    three, ran = run(recipe, store)
    assert ran == NEVER
    assert three.record.facts("source") == one.record.facts("source")


def test_two_recipes_of_one_name_and_graph_do_not_meet(recipe: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    run(recipe, store)
    twin = tmp_path / "twin"
    shutil.copytree(recipe.parent, twin)
    shutil.rmtree(twin / "port")
    write_model(twin / "m.onnx", 2)
    _, ran = run(twin / "recipe.yaml", store)
    assert "source" in ran
    assert "lower" in ran
    engines = [(folder / "port" / "engine" / "toy-sm89.engine").read_bytes() for folder in (recipe.parent, twin)]
    assert engines[0] != engines[1]
    _, ran = run(recipe, store)
    assert ran == NEVER


def test_damage_in_the_store_is_told_and_computed_again(recipe: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    run(recipe, store)
    lock = recipe.with_name("recipe.lock.yaml").read_bytes()
    for path in (store / "objects").rglob("*"):
        if path.is_file():
            path.chmod(0o644)
            data = bytearray(path.read_bytes())
            data[0] ^= 1
            path.write_bytes(data)
    shutil.rmtree(recipe.parent / "port")
    done, ran = run(recipe, store)
    assert "source" in ran
    assert done.exit_code == 0
    told = [issue for item in done.record.results for issue in item.issues if "was not used" in issue.symptom]
    assert told
    assert all(issue.disposition == "fixed" for issue in told)
    assert recipe.with_name("recipe.lock.yaml").read_bytes() == lock
    _, ran = run(recipe, store)
    assert ran == NEVER


def test_a_failure_is_not_stored(recipe: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    edit(recipe, "op: Relu", "op: Conv")  # matches nothing
    done, _ = run(recipe, store)
    assert done.record.failed_step == "lower"
    done, ran = run(recipe, store)
    assert done.record.failed_step == "lower"
    assert ran[0] == "lower"
    edit(recipe, "op: Conv", "op: Relu")
    done, ran = run(recipe, store)
    assert done.exit_code == 0
    assert "parity" not in ran


def test_what_the_model_imports_and_opens_counts(
    toy: Callable[..., Path], tmp_path: Path, cli: Callable[..., Cli]
) -> None:
    model = """
        import json
        from pathlib import Path
        from net import Net

        def load():
            return Net(json.loads((Path(__file__).parent / "sizes.json").read_text())["hidden"]).eval()
    """
    folder = toy(("base: fp16", "base: fp32"), model=model)
    net = """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self, hidden):
                super().__init__()
                torch.manual_seed(0)
                self.first, self.last = nn.Linear(8, hidden), nn.Linear(hidden, 4)

            def forward(self, x):
                return self.last(torch.relu(self.first(x)))
    """
    (folder / "net.py").write_text(dedent(net))
    (folder / "sizes.json").write_text('{"hidden": 16}')
    recipe = folder / "recipe.yaml"

    def ran() -> list[str]:
        done = cli("run", recipe, "--until", "export", "-q", "--store", tmp_path / "store")
        assert done.code == 0, done.text
        return [item["step"] for item in record_of(folder)["results"] if not item["reused"]]

    assert ran() == ["source", "export"]
    assert set(record_of(folder)["results"][0]["facts"]["read"]["files"]) == {"model.py", "net.py", "sizes.json"}
    assert ran() == []
    (folder / "sizes.json").write_text('{"hidden": 24}')
    assert ran() == ["source", "export"]
    (folder / "sizes.json").write_text('{"hidden": 16}')
    assert ran() == []
    edit(folder / "net.py", "torch.relu", "torch.tanh")
    told = cli("why", recipe, "--store", tmp_path / "store").out
    assert "content of net.py: sha256" in told
    assert ran() == ["source", "export"]
    edit(folder / "net.py", "self.last(", "self.last( ")  # other text, the same model
    assert ran() == ["source", "export"]


def test_a_file_that_changes_while_it_is_used_is_not_stored(toy: Callable[..., Path], tmp_path: Path) -> None:
    model = """
        import torch
        from pathlib import Path

        def load():
            note = Path(__file__).parent / "note.json"
            text = note.read_text()
            with open(note.with_name("part"), "w") as out:
                out.write(text + " ")
            note.with_name("part").rename(note)
            torch.manual_seed(0)
            return torch.nn.Linear(8, 4).eval()
    """
    folder = toy(model=model)
    (folder / "note.json").write_text("{}")
    store = Store.open(tmp_path / "store")
    for _ in range(2):
        done = route.run(folder / "recipe.yaml", None, "source", (), lambda event: None, store=store)
        assert [item.reused for item in done.record.results] == [False]


def test_why_says_what_changed_from_what_to_what(recipe: Path, tmp_path: Path, cli: Callable[..., Cli]) -> None:
    store = tmp_path / "store"
    assert "no run of this recipe stored it" in cli("why", recipe, "--store", store).out
    run(recipe, store)
    lines = cli("why", recipe, "--store", store).out.splitlines()
    assert all(" reused " in line or "runs always" in line for line in lines), lines
    edit(recipe, "op: Relu, type: fp32", "op: MatMul, type: fp32")
    text = cli("why", recipe, "--store", store).out
    assert "precision.overrides[0].op: Relu -> MatMul" in text
    assert "rehearse   may run" in text
    found = json.loads(cli("why", recipe, "--store", store, "--json").out)
    [line] = [item for item in found if item["state"] == "runs"]
    assert line["changes"] == [{"field": "precision.overrides[0].op", "then": "Relu", "now": "MatMul"}]
    assert cli("why", recipe, "--no-store").code == 2


def test_cache_lists_prunes_and_verifies(recipe: Path, tmp_path: Path, cli: Callable[..., Cli]) -> None:
    store = tmp_path / "store"
    run(recipe, store)
    listed = cli("cache", "list", "--store", store).out
    assert "toy     build" in listed
    assert cli("cache", "verify", "--store", store).out.startswith("no fault in 13 results")
    [some] = [path for path in (store / "entries").rglob("*.json")][:1]
    some.write_text(some.read_text()[:-5])
    damaged = cli("cache", "verify", "--store", store)
    assert damaged.code == 1
    assert "is damaged" in damaged.out
    assert cli("cache", "prune", "--store", store, "--max-size", "1 parsec").code == 2
    assert cli("cache", "prune", "--store", store, "--max-size", "0").out.startswith("12 results removed")
    _, ran = run(recipe, store)
    assert len(ran) == 15


def test_both_kinds_of_no_store_exclude_each_other(recipe: Path, tmp_path: Path, cli: Callable[..., Cli]) -> None:
    assert cli("run", recipe, "--store", tmp_path / "s", "--no-store").code == 2
    done = cli("run", recipe, "--no-store", "-q", "--until", "check")
    assert done.code == 0
    assert not (tmp_path / "s").exists()
