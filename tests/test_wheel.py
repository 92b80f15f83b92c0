"""The wheel works in an empty folder far from the checkout, with its schemas, templates and rules inside."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    source = tmp_path_factory.mktemp("source") / "portwright"
    ignored = shutil.ignore_patterns(".venv", ".git", "port", "*.egg-info", ".*_cache", "__pycache__")
    shutil.copytree(ROOT, source, ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(out), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (built,) = out.glob("*.whl")
    return built


def test_wheel_holds_what_a_run_needs(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, pattern in (("schemas", "*.json"), ("templates", "*.j2"), ("rewrites", "*.yaml")):
        shipped = {f"engine/data/{folder}/{path.name}" for path in (ROOT / folder).glob(pattern)}
        assert shipped
        assert shipped <= names
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "engine").rglob("*.py")}
    assert modules <= names
    assert not [name for name in names if name.startswith(("tests/", "recipes/"))]


def test_metadata_has_the_extras(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    text = archive.read(next(name for name in archive.namelist() if name.endswith("METADATA"))).decode()
    for extra in ("cpu", "gpu", "models", "dev"):
        assert f"Provides-Extra: {extra}" in text
    for need in ("onnxruntime", "tensorrt-rtx"):
        assert any(line.startswith(f"Requires-Dist: {need}") and "cpu" in line for line in text.splitlines())


@pytest.mark.slow
def test_wheel_with_its_cpu_extra_ports_a_model_in_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    pip = [str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check",
           "-c", str(ROOT / "constraints.txt")]  # fmt: skip
    subprocess.run([*pip, "torch==2.13.0"], check=True, capture_output=True, text=True)
    subprocess.run([*pip, f"{wheel}[cpu]", "safetensors"], check=True, capture_output=True, text=True)
    recipe = tmp_path / "far" / "away"
    shutil.copytree(ROOT / "recipes" / "digits-resnet", recipe, ignore=shutil.ignore_patterns("port", "*.md"))
    portwright = str(home / "bin" / "portwright")
    done = subprocess.run(
        [portwright, "run", ".", "--json"],
        cwd=recipe,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (recipe / "PORT_REPORT.md").exists()
    assert list((recipe / "port" / "engine").glob("*.engine"))
