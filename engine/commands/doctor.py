"""``portwright doctor``: what works here, and the one command that mends what does not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Literal

import click

from engine import toolchain
from engine.errors import Exit, RecipeError, StepError

State = Literal["ok", "missing", "absent"]
_NEEDED = {
    "torch": "pip install torch",
    "onnx": "pip install 'portwright'",
    "onnx-ir": "pip install 'portwright'",
    "onnxscript": "pip install 'portwright'",
    "onnxsim": "pip install 'portwright'",
    "onnx-graphsurgeon": "pip install 'portwright'",
}
_RUNTIMES = ("onnxruntime", "onnxruntime-gpu")
_TOOLCHAINS = ("tensorrt-rtx", "tensorrt")


@dataclass(frozen=True)
class Finding:
    """``absent`` is something a machine may well lack (a GPU); ``missing`` stops a run."""

    what: str
    state: State
    detail: str
    mend: str = ""


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(as_json: bool) -> Exit:
    """Say what is installed, which toolchains work and whether there is a GPU."""
    findings = examine()
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for item in findings:
            click.echo(f"{item.state:<8} {item.what:<20} {item.detail}")
            if item.mend:
                click.echo(f"{'':<8} {'':<20} mend: {item.mend}")
    return Exit.STEP_FAILED if any(item.state == "missing" for item in findings) else Exit.ACCEPTED


def examine() -> list[Finding]:
    """Every finding, without importing torch, onnx or tensorrt into this process."""
    python = ".".join(map(str, sys.version_info[:3]))
    old = sys.version_info < (3, 11)
    findings = [
        Finding("python", "missing" if old else "ok", python, "use Python 3.11 or newer" if old else "")
    ]
    findings += [_package(name, mend) for name, mend in _NEEDED.items()]
    findings += [_runtime(), *_toolchains(), _gpu(), _compiler_tool()]
    return findings


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _package(name: str, mend: str) -> Finding:
    version = _version(name)
    return Finding(name, "ok" if version else "missing", version or "not installed", "" if version else mend)


def _runtime() -> Finding:
    found = {name: version for name in _RUNTIMES if (version := _version(name))}
    if not found:
        return Finding("onnxruntime", "missing", "not installed", "pip install 'portwright[cpu]'")
    if len(found) > 1:
        detail = "onnxruntime and onnxruntime-gpu are both installed and overwrite each other"
        return Finding(
            "onnxruntime", "missing", detail, "pip uninstall onnxruntime onnxruntime-gpu, then one of them"
        )
    name, version = next(iter(found.items()))
    return Finding(name, "ok", version)


def _toolchains() -> list[Finding]:
    findings = []
    for name in _TOOLCHAINS:
        if _version(name):
            findings.append(_probe(name))
    if not findings:
        findings.append(Finding("tensorrt", "missing", "no TensorRT here", "pip install 'portwright[cpu]'"))
    return findings


def _probe(name: str) -> Finding:
    """Ask the toolchain in its worker process; being installed is not enough."""
    mend = f"pip install --force-reinstall {name}"
    try:
        facts = toolchain.probe(toolchain.resolve(name))
    except RecipeError as error:
        return Finding(name, "missing", error.problems[0].what, error.problems[0].hint)
    except StepError as error:
        return Finding(name, "missing", error.failure.symptom, mend)
    if not facts["ok"]:
        return Finding(name, "missing", facts["errors"][0]["text"], mend)
    targets = f"; builds without a GPU for {', '.join(facts['targets'])}" if facts["targets"] else ""
    return Finding(name, "ok", f"{facts['version']}, answers in a worker process{targets}")


def _gpu() -> Finding:
    usable, why = toolchain.has_gpu()
    detail = "usable" if usable else f"{why}; nothing in this version needs one"
    return Finding("gpu", "ok" if usable else "absent", detail)


def _compiler_tool() -> Finding:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Finding("nvidia driver", "absent", "nvidia-smi is not on the path")
    done = subprocess.run(
        [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    )
    return Finding(
        "nvidia driver", "ok" if done.returncode == 0 else "absent", done.stdout.strip() or "does not answer"
    )
