"""Portwright's lowering to FP16 against other converters, run alternately, each run a process of its own.

    python benchmarks/lowering.py [--rounds 3] [--only minilm,resnet] [--rehearse]

Three models: MiniLM-L6 with its real weights, a net of ResNet-50's shape, and a decoder of 1.1 billion parameters
(4.4 GB beside its graph). Every tool keeps FP32 inputs and outputs and is timed from its start to its end: imports,
loading, converting, saving, and for Portwright its check of the written file. Memory is the kernel's own peak of
resident memory, and the largest anonymous part seen. Casts are those of the result less those of the model. The error
is that of the result's shadow, in which every FP16 tensor is really rounded, against the FP32 model in ONNX Runtime:
the root of the mean square, and the largest. A tool that needs more than --memory or --seconds is ended. The ratios to
the best tool whose result is valid and loads come last.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import lowering_models
import lowering_peers

HERE = Path(__file__).resolve().parent
OURS = "portwright"
MODELS: dict[str, Callable[[Path], None]] = {
    "minilm": lowering_models.minilm,
    "resnet": lowering_models.residual,
    "decoder": lambda path: lowering_models.decoder(path, lowering_models.Decoder()),
}
GOAL_TIME, GOAL_MEMORY = 1 / 5, 1 / 15  # for the decoder
GOAL_REHEARSAL, GOAL_SECONDS, GOAL_MIB = 1.4, 3.0, 700.0


@dataclass(frozen=True)
class Run:
    """One process: seconds, CPU seconds, MiB; ``fault`` says why it gave nothing."""

    wall: float
    cpu: float
    resident: float
    anonymous: float
    fault: str = ""


@dataclass
class Row:
    """All runs of one tool on one model, and what its result is worth."""

    tool: str
    runs: list[Run] = field(default_factory=list)
    fault: str = ""
    casts: int = 0
    error: float = 0.0
    largest: float = 0.0
    checker: str = ""
    loads: str = ""

    @property
    def works(self) -> bool:
        return not (self.fault or self.checker or self.loads)

    def middle(self, name: str) -> float:
        return statistics.median(getattr(run, name) for run in self.runs)


def measure(command: list[str], log: Path, memory: float, seconds: float) -> Run:
    """Run one command to its end, or until it has taken more than ``memory`` MiB or ``seconds``."""
    start, resident, anonymous, fault = time.perf_counter(), 0.0, 0.0, ""
    environment = os.environ | {"PYTHONPATH": str(HERE.parent) if command[0] == sys.executable else ""}
    with log.open("w") as sink, subprocess.Popen(command, stdout=sink, stderr=sink, env=environment) as child:
        before = os.times()
        while child.poll() is None:
            resident = max(resident, _status(child.pid, "VmHWM"))
            anonymous = max(anonymous, now := _status(child.pid, "RssAnon"))
            taken = time.perf_counter() - start
            if now > memory or taken > seconds:
                fault = (
                    f"needs more than {memory / 1024:.0f} GiB"
                    if now > memory
                    else f"needs more than {seconds:.0f} s"
                )
                child.kill()
                break
            time.sleep(0.01)
        code = child.wait()
    wall, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Run(wall, cpu, resident, anonymous, fault or (_last_line(log) if code else ""))


def _status(pid: int, key: str) -> float:
    try:
        found = re.search(rf"^{key}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"fails: {lines[-1][:150]}" if lines else "fails without a word"


def convert(row: Row, python: str, model: Path, out: Path, given: argparse.Namespace, judged: bool) -> None:
    """One more run of ``row``'s tool; the result of the first is judged, and none is kept."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    log, target = out.with_suffix(".log"), out / "result.onnx"
    command = [python, str(HERE / "lowering_convert.py"), row.tool, str(model), str(target)]
    run = measure(command, log, given.memory * 1024, given.seconds)
    row.runs.append(run)
    row.fault = run.fault
    if not row.fault and judged:
        verdict = subprocess.run(
            [sys.executable, str(HERE / "lowering_judge.py"), str(model), str(target)],
            capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(HERE.parent)},
        )  # fmt: skip
        if verdict.returncode:
            raise SystemExit(f"the result of {row.tool} could not be judged:\n{verdict.stderr[-2000:]}")
        for name, value in json.loads(verdict.stdout.splitlines()[-1]).items():
            setattr(row, name, value)
    shutil.rmtree(out)


def table(name: str, rows: Iterable[Row]) -> None:
    head = (
        f"{'wall s':>7} {'CPU s':>7} {'RSS MiB':>8} {'anon':>7} {'casts':>6} {'RMS error':>10} {'largest':>9}"
    )
    print(f"\n{name:<22} {head}  result")
    for row in rows:
        if row.fault:
            print(f"{row.tool:<22} {row.fault}")
            continue
        sizes = {"wall": "7.1f", "cpu": "7.1f", "resident": "8.0f", "anonymous": "7.0f"}
        figures = " ".join(f"{row.middle(key):{size}}" for key, size in sizes.items())
        error = f"{row.error:10.2e} {row.largest:9.2e}" if row.error >= 0 else f"{'-':>10} {'-':>9}"
        said = {"checker": row.checker, "ONNX Runtime": row.loads}
        words = "; ".join(f"{who}: {text}" for who, text in said.items() if text)
        print(f"{row.tool:<22} {figures} {row.casts:6} {error}  {words or 'valid, loads'}", flush=True)


def ratios(name: str, rows: list[Row]) -> list[str]:
    """One line against the best peer in each figure."""
    ours, peers = rows[0], [row for row in rows[1:] if row.works]
    if not ours.works:
        return [f"{name}: Portwright's own result does not work"]
    if not peers:
        return [f"{name}: no other tool gives a result that works"]
    time_, cpu, memory = (
        ours.middle(key) / min(row.middle(key) for row in peers) for key in ("wall", "cpu", "resident")
    )
    goal = f" (goals {GOAL_TIME:.2f}, {GOAL_MEMORY:.3f})" if name == "decoder" else ""
    casts, error = min(row.casts for row in peers), min(row.error for row in peers)
    return [
        f"{name}: wall time {time_:.2f} x, CPU time {cpu:.2f} x, memory {memory:.3f} x the best peer's{goal};"
        f" casts {ours.casts} against {casts}, RMS error {ours.error:.2e} against {error:.2e}"
    ]


def rehearse(model: Path, folder: Path, given: argparse.Namespace) -> str:
    """The rehearsal of the decoder: its run against a plain FP32 run, and the whole process."""
    lowered, log = model.with_name("lowered.onnx"), folder / "rehearse.log"

    def once(script: str, *arguments: str) -> tuple[float, Run]:
        command = [sys.executable, str(HERE / script), *arguments, str(model), str(lowered)]
        run = measure(command, log, given.memory * 1024, given.seconds)
        if run.fault:
            raise SystemExit(f"{script} {' '.join(arguments)}: {run.fault}")
        words = log.read_text().split()
        return (float(words[-1]) if words else 0.0), run

    once("lowering_convert.py", OURS)
    pairs = [
        [once("lowering_rehearse.py", part) for part in ("rehearse", "plain")] for _ in range(max(3, given.rounds))
    ]
    ratio = statistics.median(ours[0] / plain[0] for ours, plain in pairs)
    keys = ("wall", "cpu", "resident", "anonymous")
    wall, cpu, peak, anonymous = (
        statistics.median(getattr(ours[1], key) for ours, _ in pairs) for key in keys
    )
    return (
        f"rehearsal of the decoder: {ratio:.2f} x a plain FP32 run (goal {GOAL_REHEARSAL}); whole process"
        f" {wall:.1f} s, {cpu:.1f} s of CPU, RSS {peak:.0f} MiB, anonymous {anonymous:.0f} MiB"
        f" (goals {GOAL_SECONDS:g} s, {GOAL_MIB:g} MiB)"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(MODELS), help="models, with commas between them")
    parser.add_argument("--rehearse", action="store_true", help="the rehearsal of the decoder as well")
    parser.add_argument("--memory", type=float, default=16, help="GiB that a tool may take")
    parser.add_argument("--seconds", type=float, default=900, help="that a tool may take")
    parser.add_argument("--scratch", type=Path, help="folder for the models (10 GB); they stay there")
    given = parser.parse_args()
    names = given.only.split(",")
    if unknown := sorted(set(names) - set(MODELS)):
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(MODELS)}")
    pythons = {OURS: sys.executable} | lowering_peers.pythons()
    with tempfile.TemporaryDirectory(prefix="lowering-") as temporary:
        folder, lines = Path(temporary), []
        for name in names:
            model = (given.scratch or folder) / name / "model.onnx"
            if not model.exists():
                model.parent.mkdir(parents=True, exist_ok=True)
                MODELS[name](model)
            rows = [Row(tool) for tool in pythons]
            for index in range(given.rounds):
                for row in rows:
                    refused = pythons[row.tool].removeprefix(lowering_peers.REFUSED)
                    if refused != pythons[row.tool]:
                        row.fault = refused
                    if not row.fault:
                        convert(row, pythons[row.tool], model, folder / row.tool, given, judged=index == 0)
            table(name, rows)
            lines += ratios(name, rows)
            if given.rehearse and name == "decoder":
                lines.append(rehearse(model, folder, given))
            if not given.scratch:
                shutil.rmtree(model.parent)
    print("\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
