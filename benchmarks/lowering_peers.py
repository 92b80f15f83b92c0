"""The other converters, each in an environment of its own under ``build/lowering``: what they need differs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "build" / "lowering"
REFUSED = "does not install: "
PACKAGES = {
    "onnxconverter-common": ["onnxconverter-common==1.16.0"],
    "onnxruntime": ["onnxruntime==1.32.0", "onnx==1.23.2"],
    "modelopt-autocast": ["torch==2.13.0", "nvidia-modelopt[onnx]==0.47.0"],
}


def pythons() -> dict[str, str]:
    """The interpreter of each tool, made where it is not there yet; or, after ``REFUSED``, why there is none."""
    return {tool: python_of(tool) for tool in PACKAGES}


def python_of(tool: str) -> str:
    """The interpreter of one tool, as :func:`pythons` gives them."""
    return _python(FOLDER / tool, PACKAGES[tool])


def _python(folder: Path, packages: list[str]) -> str:
    python, ready = folder / "bin" / "python", folder / ".ready"
    wanted = "\n".join(packages)
    if ready.exists() and ready.read_text() == wanted:
        return str(python)
    print(f"installing {', '.join(packages)}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        return f"{REFUSED}{REFUSED}{lines[-1][:150]}"
    ready.write_text(wanted)
    return str(python)
