"""Kill runs at random moments, fill the disk, flip bits: every rerun must come to the same, and the store be whole.

``make crash-test``; a short form is in the suite (tests/test_crash.py).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.digests import digest_file
from engine.store import care
from engine.store.store import Store
from tests.conftest import ROOT, dedent
from tests.test_reuse import RECIPE, write_model

FLIPS = 50


@dataclass
class Tally:
    """``moments`` are the steps that a kill came upon."""

    tried: int = 0
    recovered: int = 0
    moments: dict[str, int] | None = None

    def __str__(self) -> str:
        return f"{self.tried} / {self.recovered}"


def make(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(dedent(RECIPE))
    write_model(folder / "m.onnx", 0)
    return folder


def start(folder: Path, store: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "engine.cli", "run", str(folder / "recipe.yaml"), "--store", str(store), "--json"]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=0
    )


def finished(folder: Path, store: Path) -> tuple[int, str]:
    process = start(folder, store)
    _, said = process.communicate()
    return process.returncode, said


def faults(folder: Path, store: Path, lock: bytes) -> list[str]:
    """What is wrong after a rerun: its verdict, its lock, its files, the store."""
    code, said = finished(folder, store)
    found = [] if code == 0 else [f"exit code {code}: {said.strip().splitlines()[-1:]}"]
    if (folder / "recipe.lock.yaml").read_bytes() != lock:
        found.append("another lock")
    record = json.loads((folder / "port" / "record.json").read_text())
    for result in record["results"]:
        for item in result["artifacts"].values():
            if digest_file(folder / "port" / item["path"]) != item["digest"]:
                found.append(f"{item['path']} is not what {result['step']} wrote")
    found += [f"half-written: {path}" for path in (folder / "port").rglob("*.part")]
    found += care.verify(Store.open(store))
    found += [f"draft: {path.name}" for path in (store / "drafts").iterdir()]
    return found


def kills(work: Path, count: int, rng: random.Random) -> Tally:
    """Two runs share a new store; one of them is killed with SIGKILL at a random moment of the route, and run again."""
    first = make(work / "one")
    began = time.monotonic()
    code, said = finished(first, work / "reference")
    length = time.monotonic() - began
    if code != 0:
        raise SystemExit(f"the recipe itself is not accepted: {said}")
    lock = (first / "recipe.lock.yaml").read_bytes()
    folders = [first, make(work / "two")]
    tally = Tally(moments={})
    for number in range(count):
        store = work / "store"
        shutil.rmtree(store, ignore_errors=True)
        for folder in folders:
            shutil.rmtree(folder / "port", ignore_errors=True)
            (folder / "recipe.lock.yaml").unlink(missing_ok=True)
        running = [start(folder, store) for folder in folders]
        victim = rng.randrange(2)
        # Two at once take longer than one, and the moments are to reach the end of the route.
        with contextlib.suppress(subprocess.TimeoutExpired):
            running[victim].wait(rng.uniform(0, 1.6 * length))
        alive = running[victim].poll() is None
        running[victim].kill()
        other, said = running[1 - victim], ""
        _, said = other.communicate()
        running[victim].communicate()
        where = _stage(folders[victim]) if alive else "after the end"
        tally.moments[where] = tally.moments.get(where, 0) + 1
        tally.tried += 1
        found = [f"the other run: exit code {other.returncode}: {said[-300:]}"] if other.returncode else []
        for folder in folders:
            found += faults(folder, store, lock)
        tally.recovered += not found
        for fault in found:
            print(f"kill {number + 1} in {where}: {fault}", flush=True)
        if (number + 1) % 20 == 0:
            print(f"{number + 1} kills, {tally.recovered} recovered", flush=True)
    return tally


def _stage(folder: Path) -> str:
    """The last step that the killed run had recorded."""
    try:
        record = json.loads((folder / "port" / "record.json").read_text())
    except FileNotFoundError:
        return "the beginning"
    return f"after {record['results'][-1]['step']}" if record["results"] else "source"


@contextlib.contextmanager
def small_disk(folder: Path, kibibytes: int) -> Iterator[None]:
    """A tmpfs of that size. Raises OSError where it cannot be mounted."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise OSError(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def full_disk(work: Path, sizes: list[int]) -> Tally:
    """The store on a disk of ever more room, from none to enough: the run is accepted, and says once what it misses."""
    folder, tally, full = make(work / "full"), Tally(), 0
    finished(folder, work / "roomy")
    lock = (folder / "recipe.lock.yaml").read_bytes()
    for size in sizes:
        disk = work / f"disk-{size}"
        with small_disk(disk, size):
            tally.tried += 1
            code, said = finished(folder, disk / "store")
            record = json.loads((folder / "port" / "record.json").read_text())
            told = [issue for item in record["results"] for issue in item["issues"] if "No space" in issue["symptom"]]
            full += len(told) == 1
            found = [f"exit code {code}: {said[-300:]}"] if code else []
            found += [f"told {len(told)} times"] if len(told) > 1 else []
            found += care.verify(Store.open(disk / "store"))
            found += faults(folder, disk / "store", lock)
            tally.recovered += not found
            for fault in found:
                print(f"disk of {size} KiB: {fault}", flush=True)
    print(f"  {full} of them were full before the end")
    if not full:
        tally.recovered = 0  # then nothing was tried
    return tally


def flips(work: Path, count: int, rng: random.Random) -> Tally:
    """A bit in each of ``count`` random files of the store: `cache verify` finds each, and a run comes to the same."""
    folder, tally, store = make(work / "flips"), Tally(), work / "flipped"
    finished(folder, store)
    lock = (folder / "recipe.lock.yaml").read_bytes()
    for path in rng.sample(_files(store), min(count, len(_files(store)))):
        kept = work / "copy"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(store, kept)
        _flip(path, rng)
        name = path.relative_to(store)
        tally.tried += 1
        # Once with verify first, and once with a run that comes upon it.
        verified = care.verify(Store.open(store))
        found = [] if verified else [f"{name}: not found by verify"]
        found += faults(folder, store, lock)
        shutil.rmtree(store)
        shutil.copytree(kept, store)
        _flip(path, rng)
        shutil.rmtree(folder / "port")
        code, said = finished(folder, store)
        if code or (folder / "recipe.lock.yaml").read_bytes() != lock:
            found.append(f"{name}: exit code {code}: {said[-300:]}")
        found += faults_after(folder, lock)
        shutil.rmtree(store)
        shutil.copytree(kept, store)
        tally.recovered += not found
        for fault in found:
            print(f"flip in {name}: {fault}", flush=True)
    return tally


def faults_after(folder: Path, lock: bytes) -> list[str]:
    record = json.loads((folder / "port" / "record.json").read_text())
    return [
        f"{item['path']} is not what {result['step']} wrote"
        for result in record["results"]
        for item in result["artifacts"].values()
        if digest_file(folder / "port" / item["path"]) != item["digest"]
    ]


def _files(store: Path) -> list[Path]:
    return sorted(path for path in store.rglob("*") if path.is_file() and path.name != "lock")


def _flip(path: Path, rng: random.Random) -> None:
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--flips", type=int, default=FLIPS)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="portwright-crash-") as name:
        work = Path(name)
        flipped = flips(work, arguments.flips, rng)
        print(f"bits flipped / recovered: {flipped}", flush=True)
        try:
            full = full_disk(work, [4, 8, 32, 64, 128, 200, 256, 320, 400, 512, 1024, 4096])
            print(f"disks too small / recovered: {full}", flush=True)
        except OSError as error:
            full = Tally()
            print(f"full disk: not run: {error}", flush=True)
        killed = kills(work, arguments.kills, rng)
    for moment, count in sorted((killed.moments or {}).items()):
        print(f"  killed {moment}: {count}")
    print(f"killed / recovered: {killed}")
    whole = all(item.tried == item.recovered for item in (flipped, full, killed))
    sys.exit(0 if whole else 1)


if __name__ == "__main__":
    os.environ.pop("PORTWRIGHT_STORE", None)
    main()
