"""What a rerun of MiniLM-L6 costs after an edit, as a part of the whole run; beside the same edits in microsoft Olive.

    python benchmarks/cache.py [--rounds 3] [--other tensorrt-rtx==1.4.0.76] [--no-olive]

Every run is a process of its own with its imports. The whole run has a new store; a round edits the recipe and runs
again: nothing, a threshold, an override, the toolchain (where another one is installed; its build alone is timed
beside it). Olive converts the same model to ONNX and to FP16: of the edits it knows nothing and the last pass's. It is
installed into an environment of its own under ``build/cache``. Wall seconds are medians; the ratios are printed last.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RECIPE = ROOT / "recipes" / "minilm-l6"
FOLDER = ROOT / "build" / "cache"
OLIVE = [
    "olive-ai==0.13.0", "torch==2.13.0", "transformers", "onnx", "onnxruntime", "onnxscript", "onnxconverter-common",
    "requests",  # it imports it and does not ask for it
]  # fmt: skip


@dataclass(frozen=True)
class Figure:
    seconds: float
    mib: float


def timed(command: list[str], cwd: Path, env: dict[str, str] | None = None) -> Figure:
    """Wall seconds, and the peak resident memory of the largest process of the run."""
    script = (
        "import resource, subprocess, sys, time\n"
        "start = time.perf_counter()\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)\n"
        "print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, done.returncode)\n"
        "print(done.stdout[-3000:])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command], cwd=cwd, env=os.environ | (env or {}), capture_output=True, text=True
    )
    head, _, rest = done.stdout.partition("\n")
    seconds, kibibytes, code = head.split()
    if code != "0":
        raise SystemExit(f"{' '.join(command)} ended with exit code {code}:\n{rest}")
    return Figure(float(seconds), int(kibibytes) / 1024)


def ours(folder: Path) -> Figure:
    """One run of the recipe in ``folder``."""
    command = [sys.executable, "-m", "engine.cli", "run", str(folder), "-q", "--store", str(folder / "store")]
    return timed(command, ROOT)


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "recipe.yaml"
    text = path.read_text()
    if old not in text:
        raise SystemExit(f"{path} has no {old!r}")
    path.write_text(text.replace(old, new))


def steps(folder: Path) -> dict[str, float]:
    """Seconds of each step that the last run did not reuse."""
    record = json.loads((folder / "port" / "record.json").read_text())
    return {item["step"]: item["seconds"] for item in record["results"] if not item["reused"] and item["seconds"]}


def portwright(work: Path, rounds: int, other: str) -> dict[str, list[Figure]]:
    found: dict[str, list[Figure]] = {}
    folder = work / "recipe"
    shutil.copytree(RECIPE, folder, ignore=shutil.ignore_patterns("port", "*.md"))
    found["whole run"] = [ours(folder)]
    for number in range(rounds):
        found.setdefault("nothing changed", []).append(ours(folder))
        edit(folder, "cosine: 0.9999", f"cosine: 0.99{80 + number}")
        found.setdefault("a threshold", []).append(ours(folder))
        edit(folder, f"cosine: 0.99{80 + number}", "cosine: 0.9999")
        edit(folder, 'module: "**.LayerNorm"', f'module: "encoder.layer.{number}.**.LayerNorm"')
        found.setdefault("an override", []).append(ours(folder))
        if number == 0:
            print(f"an override: {steps(folder)}", flush=True)
        edit(folder, f'module: "encoder.layer.{number}.**.LayerNorm"', 'module: "**.LayerNorm"')
    if other:
        edit(folder, "build: {", f"build: {{toolchain: {other}, ")
        found["another toolchain"] = [ours(folder)]
        took = steps(folder)
        rest = found["another toolchain"][0].seconds - took["build"]
        print(f"another toolchain ({other}): build {took['build']:.1f} s, the rehearsal by its plan"
              f" {took.get('fused', 0.0):.1f} s of the rest of {rest:.1f} s", flush=True)  # fmt: skip
    return found


CONFIG = {
    "input_model": {
        "type": "PyTorchModel",
        "model_loader": "load",
        "model_script": "olive_model.py",
        "io_config": {
            "input_names": ["input_ids", "attention_mask"],
            "input_shapes": [[2, 16], [2, 16]],
            "input_types": ["int64", "int64"],
            "output_names": ["last_hidden_state", "pooler_output"],
            "dynamic_axes": {"input_ids": {"0": "batch", "1": "seq"}, "attention_mask": {"0": "batch", "1": "seq"}},
        },
    },
    "passes": {
        "export": {"type": "OnnxConversion", "target_opset": 18},
        "half": {"type": "OnnxFloatToFloat16", "keep_io_types": True},
    },
    "log_severity_level": 2,
    "cache_dir": "cache",
    "output_dir": "out",
}
LOADER = """\
import sys
from pathlib import Path
sys.path.insert(0, {recipe!r})
from model import load as loaded


def load(*ignored, **options):
    return loaded(Path({weights!r}))
"""


def olive(work: Path, rounds: int) -> dict[str, list[Figure]] | str:
    """Olive's figures, or why there are none."""
    python = installed()
    if isinstance(python, str):
        return python
    from engine.intake import make_plan

    _, plan = make_plan(RECIPE / "recipe.yaml")
    folder = work / "olive"
    folder.mkdir()
    (folder / "olive_model.py").write_text(LOADER.format(recipe=str(RECIPE), weights=str(plan.model.weights)))

    def run(keep: bool) -> Figure:
        CONFIG["passes"]["half"]["keep_io_types"] = keep  # type: ignore[index]
        (folder / "config.json").write_text(json.dumps(CONFIG))
        shutil.rmtree(folder / "out", ignore_errors=True)
        figure = timed([str(python), "-m", "olive", "run", "--config", "config.json"], folder)
        if not list((folder / "out").rglob("*.onnx")):
            raise SystemExit("olive wrote no model, with exit code 0")
        return figure

    found = {"whole run": [run(True)]}
    for number in range(rounds):
        found.setdefault("nothing changed", []).append(run(True))
        if number == 0:
            found["an override"] = [run(False)]  # the last pass
    return found


def installed() -> Path | str:
    folder = FOLDER / "olive"
    python, ready = folder / "bin" / "python", folder / ".ready"
    if ready.exists() and ready.read_text() == "\n".join(OLIVE):
        return python
    print(f"installing {', '.join(OLIVE)}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    quiet = ["--quiet", "--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]
    done = subprocess.run([str(python), "-m", "pip", "install", *quiet, *OLIVE], capture_output=True, text=True)
    if done.returncode:
        return f"olive does not install: {(done.stderr.strip().splitlines() or ['pip failed'])[-1][:200]}"
    ready.write_text("\n".join(OLIVE))
    return python


def shown(tool: str, found: dict[str, list[Figure]]) -> None:
    whole = found["whole run"][0]
    for edit_of, figures in found.items():
        seconds = statistics.median(figure.seconds for figure in figures)
        mib = max(figure.mib for figure in figures)
        print(f"{tool:<11} {edit_of:<18} {seconds:8.2f} s {seconds / whole.seconds:7.3f} x {mib:8.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--other", default="tensorrt-rtx==1.4.0.76")
    parser.add_argument("--no-olive", action="store_true")
    arguments = parser.parse_args()
    from engine import toolchain
    from engine.errors import RecipeError

    other = arguments.other
    try:
        toolchain.resolve(other)
    except RecipeError:
        print(f"{other} is not installed (portwright toolchain add {other}): another toolchain is not run", flush=True)
        other = ""
    with tempfile.TemporaryDirectory(prefix="portwright-cache-") as name:
        work = Path(name)
        mine = portwright(work, arguments.rounds, other)
        theirs = "not asked for" if arguments.no_olive else olive(work, arguments.rounds)
    shown("portwright", mine)
    if isinstance(theirs, str):
        print(f"olive       not run: {theirs}")
    else:
        shown("olive", theirs)


if __name__ == "__main__":
    main()
