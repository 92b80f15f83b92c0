"""``portwright check`` against the bare imports it cannot do without, alternately; the ratio last."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BARE = [sys.executable, "-c", "import yaml, jsonschema"]
CHECK = [sys.executable, "-m", "engine.cli", "check", "recipes/minilm-l6"]
ROUNDS = 21


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    pairs = [(seconds(CHECK), seconds(BARE)) for _ in range(ROUNDS)]
    ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"check {ours:.3f} s, bare imports {bare:.3f} s")
    print(f"{statistics.median(a / b for a, b in pairs):.2f} x")


if __name__ == "__main__":
    main()
