"""The gauntlet: public breakages, each run through the command line; ``python -m tests.gauntlet.run [CASE ...]``.

The cases lie outside the repository (``--from``, by default ``../shared/gauntlet``). What each must come to is in
``cases.yaml``. A port that is accepted is checked once more by code of its own: the graph that went on against PyTorch,
on the inputs that the case itself brings.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
DEFAULT = ROOT.parent / "shared" / "gauntlet"
MODEL = ("dynamo", "torchscript")
DAMAGE = ("missing", "truncated", "padded", "padded-unpinned")
BATCHES = (1, 2, 3, 5)
SECONDS = 900


@dataclass(frozen=True)
class Ended:
    """``how`` is ported, rejected or WRONG (accepted although the graph differs); ``words`` is all that was said."""

    how: str
    words: str
    short: str


@dataclass(frozen=True)
class Row:
    case: str
    way: str
    expected: str
    got: Ended
    fault: str
    owes: str


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gauntlet", description=__doc__)
    parser.add_argument("cases", nargs="*", help="Only these; a part of the name is enough.")
    parser.add_argument("--from", dest="source", type=Path, default=DEFAULT)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    options = parser.parse_args(arguments)
    if not options.source.is_dir():
        print(f"there are no cases in {options.source}; name their folder with --from")
        return 2
    jobs = list(wanted(options.source, options.cases))
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda job: judged(*job), jobs))
    print(table(rows))
    bad = [row for row in rows if row.fault]
    for row in bad:
        print(f"\n{row.case} {row.way}: {row.fault}\n{row.got.words[-1500:]}")
    wrong = sum(row.got.how == "WRONG" for row in rows)
    owed = sum(bool(row.owes) for row in rows)
    print(f"accepted while wrong: {wrong}; rejected clearly but a port is owed: {owed}")
    print(f"as expected = {len(rows) - len(bad)} / {len(rows)}")
    return 1 if bad else 0


def wanted(source: Path, names: list[str]) -> Iterator[tuple[Path, str, str, dict[str, Any]]]:
    """Folder, case, way and settings of every run; every folder must have its entry in cases.yaml."""
    settings = yaml.safe_load((HERE / "cases.yaml").read_text())
    there = sorted(path.name for path in source.iterdir() if (path / "case.yaml").is_file())
    missing = set(there) ^ set(settings)
    if missing:
        raise SystemExit(f"cases.yaml and {source} differ: {', '.join(sorted(missing))}")
    for case in there:
        if not names or any(name in case for name in names):
            for way in settings[case]["ways"]:
                yield source / case, case, way, settings[case]


def judged(folder: Path, case: str, way: str, setting: Mapping[str, Any]) -> Row:
    """Run one case and hold it against what is written in cases.yaml."""
    asked = setting["ways"][way]
    with tempfile.TemporaryDirectory(prefix=f"gauntlet-{case}-") as scratch:
        got = ended(folder, way, setting, Path(scratch))
    fault = ""
    if got.how != asked["ends"]:
        fault = f"expected {asked['ends']}, got {got.how}"
    elif not re.search(asked.get("says", ""), got.words, re.S):
        fault = f"{got.how}, but not with the words '{asked['says']}'"
    return Row(case, way, asked["ends"], got, fault, asked.get("owes", ""))


def ended(folder: Path, way: str, setting: Mapping[str, Any], scratch: Path) -> Ended:
    if way == "provider":
        return _provider(folder, scratch)
    case = yaml.safe_load((folder / "case.yaml").read_text())
    _write(folder, way, case, setting, scratch)
    command = [sys.executable, "-m", "engine.cli", "run", "recipe.yaml", "--until", "build", "--no-store"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=scratch, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    words, short = _said(scratch, done.stdout + done.stderr)
    if done.returncode == 0:
        different = _differs(folder, way, scratch)
        return Ended("WRONG" if different else "ported", f"{different}\n{words}", different or short)
    if done.returncode not in (1, 2, 3):
        return Ended(f"exit {done.returncode}", words, short)
    return Ended("rejected", words, short)


def _write(
    folder: Path, way: str, case: Mapping[str, Any], setting: Mapping[str, Any], scratch: Path
) -> None:
    for file in folder.glob("*.py"):
        (scratch / file.name).write_text(file.read_text())
    (scratch / "values.py").write_text(
        "import numpy as np\n\n\ndef make(name, shape, dtype, rng):\n"
        "    low = rng.uniform(-4, 14, (shape[0], 2))\n"
        "    high = low + rng.uniform(1, 12, (shape[0], 2))\n"
        "    return np.concatenate([low, high], 1).astype(dtype)\n"
    )
    inputs = {name: dict(item) for name, item in case["inputs"].items()}
    for name, values in setting.get("values", {}).items():
        inputs[name]["values"] = values
    axes = {name: {"min": axis["min"], "opt": (axis["min"] + axis["max"]) // 2, "max": axis["max"]}
            for name, axis in case.get("axes", {}).items()}  # fmt: skip
    _wrap(scratch, list(inputs))
    recipe: dict[str, Any] = {"portwright": 1, "name": "gauntlet", "model": {"python": "named.py:load"}}
    recipe |= {"axes": axes, "inputs": inputs, "outputs": setting.get("outputs", ["y"])}
    if way in MODEL:
        recipe["export"] = {"opset": setting.get("opset", 18), "exporter": way}
    else:
        module = _module(scratch / "make_onnx.py")
        recipe["model"] = {"onnx": "model.onnx"} | _save(module.build(), scratch, way)
    recipe["precision"] = {"base": setting.get("base", "fp32")}
    recipe["build"] = {"target": "sm89"}
    recipe["accept"] = {"onnx": setting.get("accept_onnx", {"max_abs": 1e-5}),
                        "engine": {"max_abs": 2e-2 if "base" in setting else 1e-5}}  # fmt: skip
    rules = setting["ways"][way].get("rewrites", ())
    if rules:
        recipe["rewrites"] = [{"rule": rule} for rule in rules]
    (scratch / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))


def _wrap(scratch: Path, names: list[str]) -> None:
    """The case's model under the names that its inputs have in the graph."""
    given = ", ".join(names)
    (scratch / "named.py").write_text(
        "import torch\nimport model\n\n\nclass Named(torch.nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.inner = model.load()\n\n"
        f"    def forward(self, {given}):\n        return self.inner({given})\n\n\n"
        "def load():\n    return Named().eval()\n"
    )


def _save(model: Any, scratch: Path, way: str) -> dict[str, Any]:
    """Write the ONNX file; returns keys of the recipe that pin it.

    For damaged ones the weights lie in w.bin, and the damage is done after the pin was taken.
    """
    import onnx

    if way not in DAMAGE:
        onnx.save(model, scratch / "model.onnx")
        return {}
    onnx.save(model, scratch / "model.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    file = scratch / "w.bin"
    data = file.read_bytes()
    if way == "missing":
        file.unlink()
    else:
        half = data[: len(data) // 2]
        file.write_bytes(half if way == "truncated" else half + bytes(len(data) - len(half)))
    pins = {
        "sha256": _sha256((scratch / "model.onnx").read_bytes()),
        "external_sha256": {"w.bin": _sha256(data)},
    }
    return pins if way == "padded" else {}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _module(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"gauntlet_{file.parent.name}_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _said(scratch: Path, printed: str) -> tuple[str, str]:
    """Everything that the run said, and the first line of why."""
    file = scratch / "port" / "record.json"
    if not file.is_file():
        return printed, printed.strip().splitlines()[-1] if printed.strip() else "nothing"
    data = json.loads(file.read_text())
    claims = [f"{claim['name']} {claim['where']} {claim['why']}" for claim in data.get("verdict", {}).get("claims", [])
              if claim["status"] == "fail"]  # fmt: skip
    issues = [
        issue["symptom"]
        for result in data["results"]
        for issue in result["issues"]
        if issue["disposition"] == "open"
    ]
    short = data["failure"]["symptom"] if data["failure"] else (claims or ["accepted"])[0]
    return "\n".join([printed, *claims, *issues]), short


def _differs(folder: Path, way: str, scratch: Path) -> str:
    """The graph that went on to lowering against PyTorch (or the ONNX file) on the case's own inputs."""
    import onnxruntime as ort
    import torch
    from onnx.reference import ReferenceEvaluator

    graphs = [scratch / "port" / "onnx" / f"{step}.onnx" for step in ("rewrite", "simplify", "export")]
    graph = next(path for path in graphs if path.is_file())
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    module = _module(scratch / ("model.py" if way in MODEL else "make_onnx.py"))
    reference = module.load() if way in MODEL else ReferenceEvaluator(str(scratch / "model.onnx"))
    for batch in BATCHES:
        made = {name: np.asarray(value) for name, value in module.inputs(batch).items()}
        if way in MODEL:
            with torch.no_grad():
                wanted = reference(*(torch.from_numpy(value) for value in made.values())).numpy()
        else:
            wanted = reference.run(None, made)[0]
        got = session.run(None, made)[0]
        if got.shape != wanted.shape:
            return f"batch {batch}: shape {got.shape}, expected {wanted.shape}"
        if not np.allclose(got, wanted, rtol=1e-4, atol=1e-4, equal_nan=True):
            return f"batch {batch}: off by {np.nanmax(np.abs(got.astype(np.float64) - wanted.astype(np.float64))):.3g}"
    return ""


def _provider(folder: Path, scratch: Path) -> Ended:
    """Ask for a provider that this machine cannot start."""
    import onnx

    from engine import runtime
    from engine.errors import StepError

    onnx.save(_module(folder / "make_onnx.py").build(), scratch / "model.onnx")
    try:
        runtime.session(scratch / "model.onnx", ("TensorrtExecutionProvider", "CPUExecutionProvider"))
    except StepError as error:
        return Ended("rejected", str(error), error.failure.symptom)
    return Ended("ported", "", "a session on the provider that was asked for")


def table(rows: list[Row]) -> str:
    lines = ["| case | way | expected | got | |", "|---|---|---|---|---|"]
    for row in rows:
        mark = f"**{row.fault}**" if row.fault else f"owed: {row.owes}" if row.owes else ""
        short = " ".join(row.got.short.split())[:110].replace("|", "/")
        lines.append(f"| {row.case} | {row.way} | {row.expected} | {row.got.how}: {short} | {mark} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
