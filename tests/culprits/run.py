"""Diagnose every planted model through the command line; exact / planted last."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.culprits.plants import REAL, SYNTHETIC, Plant, Real, write, write_real


def portwright(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "engine.cli", *arguments]
    return subprocess.run(command, text=True, capture_output=True, check=False)


def judge(plant: Plant | Real, folder: Path) -> dict[str, Any]:
    """Diagnose, apply, run again. What was named, beside what was planted."""
    from engine.graph import files, provenance

    recipe = write(plant, folder) if isinstance(plant, Plant) else write_real(plant, folder)
    ran = portwright("diagnose", str(recipe), "--json", "--apply")
    if ran.returncode not in (0, 1):
        return {"state": "broke", "why": (ran.stderr or ran.stdout)[-600:]}
    found = json.loads(ran.stdout)["facts"]
    takes, wanted = set(found.get("takes", [])), plant.wanted()
    nodes = {node.name: node for node in files.load(folder / "port/onnx/export.onnx").graph}
    named = [
        (module, "product" if (module, "product") in wanted and op in ("Gemm", "MatMul", "Conv") else op)
        for name in takes
        if name in nodes
        for module, op in [(nodes[name].metadata_props.get(provenance.MODULE, ""), nodes[name].op_type)]
    ]
    exact = set(named) == wanted and len(named) == len(wanted)
    again = portwright("run", str(recipe), "--until", "rehearse", "-q", "--no-store")
    k, n = len(wanted), max(2, found.get("of", 2))
    return {
        "state": "exact" if exact else "other", "verdict": found.get("verdict"), "named": sorted(named),
        "wanted": sorted(wanted), "size": len(takes), "rehearsals": found.get("rehearsals"),
        "most": 4 * k * math.log2(n), "again": again.returncode, "overrides": found.get("overrides"),
        "before": found.get("before"), "after": found.get("after"), "ranked": found.get("ranked"),
        "why": found.get("why", ""),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these models")
    parser.add_argument("--details", action="store_true")
    args = parser.parse_args()
    plants = [plant for plant in (*SYNTHETIC, *REAL) if not args.names or plant.name in args.names]
    exact = passed = within = 0
    largest = 0.0
    for plant in plants:
        with tempfile.TemporaryDirectory() as folder:
            got = judge(plant, Path(folder))
        exact += got["state"] == "exact"
        passed += got.get("again") == 0
        few = got["state"] != "broke" and got["rehearsals"] <= got["most"]
        within += few
        if got["state"] != "broke":
            largest = max(largest, got["size"] / len(plant.wanted()))
        text = f"{plant.name:24} {got['state']:6} {got.get('verdict', '')!s:12}"
        text += (
            f" {got.get('rehearsals')} rehearsals (most {got.get('most', 0):.0f})  exit {got.get('again')}"
        )
        print(text, flush=True)
        if args.details or got["state"] != "exact" or got.get("again") != 0:
            print(json.dumps(got, indent=None)[:1500], flush=True)
    print(f"every patch applied, run again: {passed} of {len(plants)} with exit 0")
    print(f"largest answer: {largest:.2f} x the planted nodes")
    print(f"rehearsals within 4 k log2(n): {within} of {len(plants)}")
    print(f"exact / planted = {exact} / {len(plants)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
