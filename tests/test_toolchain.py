"""``portwright toolchain``: made whole or not at all, shared, and what each said of itself."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import compatibility, refusals, toolchain
from engine.errors import RecipeError, StepError
from engine.toolchains import capability, make, places
from tests.conftest import ROOT, Cli

NONE_LIKE_IT = "9.9.0.1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "kept"))
    return tmp_path / "kept"


def wheel(folder: Path, version: str, module: str = "", pth: str = "") -> dict[str, str]:
    """A small wheel of that name and version; what pip must be told to take it from ``folder`` alone."""
    folder.mkdir(exist_ok=True)
    info = f"tensorrt_rtx-{version}.dist-info"
    files = {f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tensorrt-rtx\nVersion: {version}\n",
             f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}  # fmt: skip
    if module:
        files["tensorrt_rtx/__init__.py"] = module
    if pth:
        files["installed.pth"] = pth
    rows = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(text.encode())}")
    with zipfile.ZipFile(folder / f"tensorrt_rtx-{version}-py3-none-any.whl", "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "\n".join([*rows, f"{info}/RECORD,,"]) + "\n")
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}


def installed() -> tuple[str, str]:
    """Version and folder of the TensorRT-RTX of this environment."""
    try:
        tool = toolchain.find("tensorrt-rtx")
    except RecipeError:
        pytest.skip("TensorRT-RTX is not installed here")
    import importlib.util

    spec = importlib.util.find_spec("tensorrt_rtx")
    assert spec is not None
    assert spec.origin is not None
    return tool.version, str(Path(spec.origin).parents[1])


def test_made_once_by_two_at_once_and_then_built_with(folder: Path, tmp_path: Path) -> None:
    version, packages = installed()
    env = os.environ | wheel(tmp_path / "wheels", version, pth=packages) | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "engine.cli", "toolchain", "add", f"tensorrt-rtx=={version}"]
    both = [subprocess.Popen(command, env=env, text=True, stdout=-1, stderr=-1) for _ in range(2)]
    told = [one.communicate(timeout=240) for one in both]
    assert [one.returncode for one in both] == [0, 0], told
    assert sum("making" in err for _, err in told) == 1
    kept = places.find(f"tensorrt-rtx=={version}")
    assert kept is not None
    assert kept.record["types"]["any"]["fp16"] == "builds"
    assert kept.record["operators"]["Relu"] is True
    assert kept.record["operators"]["Unique"] is False
    facts = toolchain.probe(toolchain.Toolchain(kept.spec, kept.python, kept.module, kept.version))
    assert facts["version"] == version
    with places.held(kept.folder, alone=False), pytest.raises(RecipeError, match="is in use"):
        make.remove(kept.spec)
    make.remove(kept.spec)
    assert places.kept() == []
    assert not kept.folder.exists()


def test_what_answers_as_another_version_is_not_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, packages = installed()
    for key, value in wheel(tmp_path / "wheels", NONE_LIKE_IT, pth=packages).items():
        monkeypatch.setenv(key, value)
    with pytest.raises(StepError, match=f"tensorrt-rtx=={NONE_LIKE_IT} was installed, and answers that it is "):
        make.add(f"tensorrt-rtx=={NONE_LIKE_IT}", print)
    assert list(folder.glob("tensorrt*")) == []


def test_what_does_not_import_is_not_kept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in wheel(tmp_path / "wheels", NONE_LIKE_IT, "raise ImportError('no such library')\n").items():
        monkeypatch.setenv(key, value)
    with pytest.raises(StepError, match="does not start: tensorrt_rtx cannot be imported: no such library"):
        make.add(f"tensorrt-rtx=={NONE_LIKE_IT}", print)
    assert list(folder.glob("tensorrt*")) == []


def test_a_half_made_one_is_not_used_and_is_made_anew(folder: Path, tmp_path: Path, cli: Callable[..., Cli]) -> None:
    half = places.folder_of(f"tensorrt-rtx=={NONE_LIKE_IT}")
    (half / "bin").mkdir(parents=True)
    (half / "bin" / "python").symlink_to(sys.executable)
    (half / ".ready").write_text('{"format": 1, "spec"')
    with pytest.raises(RecipeError, match="is not available"):
        toolchain.find(f"tensorrt-rtx=={NONE_LIKE_IT}")
    assert "half-made, not used" in cli("toolchain", "list").out
    done = cli("toolchain", "add", f"tensorrt-rtx=={NONE_LIKE_IT}", env=wheel(tmp_path / "wheels", "9.9.0.2"))
    assert done.code == 3
    assert f"toolchain tensorrt-rtx=={NONE_LIKE_IT} cannot be made: ERROR: " in done.err
    assert not half.exists()


def test_full_tensorrt_that_cannot_be_had_says_where_it_is(
    folder: Path, tmp_path: Path, cli: Callable[..., Cli]
) -> None:
    done = cli("toolchain", "add", "tensorrt==11.4.0.106", env=wheel(tmp_path / "wheels", NONE_LIKE_IT))
    assert done.code == 3
    assert "fetch their libraries from https://pypi.nvidia.com" in done.err
    assert list(folder.glob("tensorrt*")) == []


def test_an_interpreter_is_asked_and_left_alone(tmp_path: Path, cli: Callable[..., Cli]) -> None:
    version, _ = installed()
    spec, where = f"path:{sys.executable}", ("toolchain", "--toolchains", tmp_path / "kept")
    assert cli(*where, "add", spec).code == 0
    shown = cli(*where, "show", spec, "--json")
    record = json.loads(shown.out)
    assert (record["version"], record["python"]) == (version, sys.executable)
    assert cli(*where, "remove", spec).code == 0
    assert Path(sys.executable).exists()
    assert cli(*where, "show", spec).code == 2


@pytest.mark.parametrize("spec", ["tensorrt-rtx", "tensorrt-rtx==", "tensorrt-rtx==1.4;x", "torch==2.0", "../x==1"])
def test_a_spec_that_is_none(spec: str, folder: Path, cli: Callable[..., Cli]) -> None:
    done = cli("toolchain", "add", spec)
    assert done.code == 2
    assert "unknown toolchain" in done.err
    assert not folder.exists()


def test_a_recipe_that_names_one_that_is_not_there(
    folder: Path, cli: Callable[..., Cli], toy: Callable[..., Path]
) -> None:
    spec = f"tensorrt-rtx=={NONE_LIKE_IT}"
    done = cli("check", toy(("{target: sm89}", f"{{toolchain: '{spec}'}}")))
    assert done.code == 2
    assert "recipe.yaml:11:" in done.err
    assert f"portwright toolchain add {spec}" in done.err


@pytest.mark.parametrize(("version", "last"), [("1.4.0.76", "sm120"), ("1.5.0.114", "sm121"), ("1.7.1.116", "sm121")])
def test_targets_are_those_that_each_version_named_when_asked(version: str, last: str) -> None:
    assert compatibility.targets("tensorrt_rtx", version)[-1] == last


@pytest.mark.parametrize(("texts", "reason"), [(("", "\n too wide \nmore"), "too wide"),
                                               (("", " \n"), "refused at build without a word")])  # fmt: skip
def test_a_type_that_does_not_build_has_a_reason(texts: tuple[str, ...], reason: str) -> None:
    answer = refusals.Answer("build", False, tuple(refusals.Refusal(text) for text in texts))
    assert capability._reason(answer) == reason


@pytest.mark.skipif(not os.environ.get("PORTWRIGHT_INSTALL"), reason="PORTWRIGHT_INSTALL=1 downloads 367 MB")
def test_a_real_one_from_the_index(folder: Path, cli: Callable[..., Cli], toy: Callable[..., Path]) -> None:
    spec = "tensorrt-rtx==1.4.0.76"
    assert cli("toolchain", "add", spec).code == 0
    recipe = toy(("{target: sm89}", f"{{toolchain: '{spec}', target: sm89}}"))
    assert cli("run", recipe).code == 0
    assert "tensorrt_rtx 1.4.0.76" in (recipe / "recipe.lock.yaml").read_text()
