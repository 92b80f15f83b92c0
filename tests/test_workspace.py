"""The output folder: one run at a time, nothing stale, nothing lost to a kill or a full disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from engine import workspace
from engine.errors import RecipeError
from tests.conftest import ROOT, Cli

SLOW = """
    import time
    from torch import nn

    class Net(nn.Module):
        def forward(self, x):
            time.sleep(60)
            return x

    def load():
        return Net().eval()
"""


def start(folder: Path, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "engine.cli", "run", str(folder), *args],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(path: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.05)


def test_a_second_run_in_the_same_folder_is_refused(
    toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    folder = toy(model=SLOW)
    first = start(folder)
    wait_for(folder / "port" / "record.json")
    done = cli("run", folder)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=30)
    assert done.code == 2, done.text
    assert "another run is writing" in done.err


def test_killed_run_is_not_finished_leaves_no_process_and_can_be_repeated(
    toy: Callable[..., Path], cli: Callable[..., Cli]
) -> None:
    folder = toy(model=SLOW)
    run = start(folder)
    wait_for(folder / "port" / "logs" / "torch.log")
    time.sleep(0.5)
    children = psutil.Process(run.pid).children(recursive=True)
    assert children
    run.kill()
    run.communicate(timeout=30)
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    record = json.loads((folder / "port" / "record.json").read_text())
    assert record["finished"] is False
    done = cli("report", folder)
    assert done.code == 1, done.text
    assert "NOT FINISHED" in done.out
    toy()
    assert cli("run", folder, "--until", "check").code == 0


def test_nothing_stale_is_left_beside_a_new_report(toy: Callable[..., Path], cli: Callable[..., Cli]) -> None:
    folder = toy()
    assert cli("run", folder, "--until", "build").code == 0
    engines = list((folder / "port" / "engine").glob("*.engine"))
    assert len(engines) == 1
    toy(model="raise RuntimeError('no')\ndef load(): pass\n")
    assert cli("run", folder).code == 3
    assert not engines[0].exists()
    assert "NOT ACCEPTED" in (folder / "PORT_REPORT.md").read_text()


def test_a_folder_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    precious = tmp_path / "onnx" / "mine.txt"
    precious.write_text("mine")
    with pytest.raises(RecipeError, match="not a folder of an earlier run"), workspace.claim(tmp_path):
        pass
    assert precious.read_text() == "mine"


def test_out_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecipeError, match="cannot be written to"), workspace.claim(tmp_path / "file"):
        pass


def test_full_disk_is_a_clear_message(toy: Callable[..., Path], tmp_path: Path) -> None:
    folder = toy(("max: 16", "max: 4096"))
    code = (
        "import resource, sys\nfrom engine.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        f"sys.argv = ['portwright', 'run', {str(folder)!r}, '--until', 'export']\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    text = done.stdout + done.stderr
    assert done.returncode == 3, text
    assert "File too large" in text
    assert "Traceback" not in text
