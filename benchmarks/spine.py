"""Portwright against the plain script for the same port: wall time and peak memory, run alternately.

    python benchmarks/spine.py [--rounds 3]

Both go from PyTorch to a TensorRT-RTX engine of MiniLM-L6. Memory is the sum of resident memory over
the whole process tree, sampled; pages shared by two processes count twice, which is to Portwright's
disadvantage. The rehearsal and the half-precision references that belong to it are counted apart: the
plain script does neither. The two ratios are printed last.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Figure:
    seconds: float
    peak_mib: float
    apart_seconds: float = 0.0


def tree_bytes(process: psutil.Process) -> int:
    total = 0
    for member in [process, *process.children(recursive=True)]:
        try:
            total += member.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def measure(command: list[str], log: Path) -> Figure:
    start, peak = time.perf_counter(), 0
    with log.open("w") as sink, subprocess.Popen(command, cwd=ROOT, stdout=sink, stderr=sink) as child:
        process = psutil.Process(child.pid)
        while child.poll() is None:
            try:
                peak = max(peak, tree_bytes(process))
            except psutil.NoSuchProcess:
                break
            time.sleep(0.05)
        code = child.wait()
    if code != 0:
        sys.exit(f"{' '.join(command)} ended with {code}:\n{log.read_text()[-2000:]}")
    return Figure(time.perf_counter() - start, peak / 2**20)


def portwright(out: Path) -> Figure:
    command = [
        sys.executable,
        "-m",
        "engine.cli",
        "run", "--no-store",
        "recipes/minilm-l6",
        "--until",
        "build",
        "--out",
        str(out),
    ]
    figure = measure(command, out.with_suffix(".log"))
    results = {item["step"]: item for item in json.loads((out / "record.json").read_text())["results"]}
    apart = results["rehearse"]["seconds"] + results["source"]["measurements"]["more_references_seconds"]
    return Figure(figure.seconds, figure.peak_mib, apart)


def plain(out: Path) -> Figure:
    return measure([sys.executable, "benchmarks/plain_script.py", str(out)], out.with_suffix(".log"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    ours: list[Figure] = []
    theirs: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        for index in range(rounds):
            ours.append(portwright(Path(folder) / f"ours{index}"))
            theirs.append(plain(Path(folder) / f"plain{index}"))
            for name, item in (("portwright", ours[-1]), ("plain script", theirs[-1])):
                apart = f", of which {item.apart_seconds:.1f} s rehearsal" if item.apart_seconds else ""
                print(f"{name:<13} {item.seconds:6.1f} s{apart}  {item.peak_mib:6.0f} MiB", flush=True)
    whole = statistics.median(a.seconds / b.seconds for a, b in zip(ours, theirs, strict=True))
    same = statistics.median(
        (a.seconds - a.apart_seconds) / b.seconds for a, b in zip(ours, theirs, strict=True)
    )
    memory = statistics.median(a.peak_mib / b.peak_mib for a, b in zip(ours, theirs, strict=True))
    print(f"wall time with rehearsal {whole:.2f} x")
    print(f"wall time {same:.2f} x")
    print(f"peak memory {memory:.2f} x")


if __name__ == "__main__":
    main()
