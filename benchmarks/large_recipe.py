"""``portwright check`` on a recipe of more than 5,000 lines, as a user runs it; the median in seconds last."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SMALL = ROOT / "tests" / "recipes" / "accept" / "small.yaml"
OVERRIDES = 5000
ROUNDS = 7


def large() -> str:
    """The smallest recipe with 5,000 overrides, one a line, no two alike."""
    head = SMALL.read_text(encoding="utf-8") + "precision:\n  base: fp16\n  overrides:\n"
    line = "    - {{module: encoder.layer.{0}.output.LayerNorm, type: fp32, because: large values in layer {0}}}\n"
    return head + "".join(line.format(number) for number in range(OVERRIDES))


def seconds(recipe: Path) -> float:
    start = time.perf_counter()
    command = [sys.executable, "-m", "engine.cli", "check", str(recipe)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "recipe.yaml"
        text = large()
        recipe.write_text(text, encoding="utf-8")
        shutil.copy(SMALL.parent / "model.py", folder)
        times = [seconds(recipe) for _ in range(ROUNDS)]
    print(
        f"{len(text.splitlines()):,} lines, {len(text):,} bytes, {ROUNDS} runs: {min(times):.2f} to {max(times):.2f} s"
    )
    print(f"{statistics.median(times):.2f} s")


if __name__ == "__main__":
    main()
