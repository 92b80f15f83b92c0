"""The mutation test of parity: ``python -m tests.mutants.run``; the share of caught faults is the last line.

Each model goes once up to parity by the product's own route. Then single faults are planted in the graph that
parity compares, and the product's parity step and verdict judge it again. Listed apart and not counted: faults whose
graph ONNX Runtime does not load, and those that change not one number on 20 random inputs at three sizes (an epsilon
of 1e-12, a row that nothing reads). What the comparison of outputs lets pass is then held against the model as the
export step does it (every weight bit for bit, the program's numbers); the share of the comparison alone stands on the
line before the last. Every survivor of both is explained by a run.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.mutants import bench, healthy, models
from tests.mutants.account import Account
from tests.mutants.bench import Bench, Outcome

WANTED = 0.98


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.run")
    parser.add_argument(
        "--faults", type=int, default=300, help="how many are planted and loaded, over all models"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", action="append", choices=[item.name for item in models.MODELS])
    parser.add_argument("--locate", type=int, default=40, help="how many of the caught ones are looked for")
    parser.add_argument(
        "--healthy", action="store_true", help="the false alarms over healthy exports instead"
    )
    parser.add_argument(
        "--work", type=Path, help="folder for the runs; those found in it are taken as they are"
    )
    given = parser.parse_args()
    quiet()
    chosen = [item for item in models.MODELS if not given.model or item.name in given.model]
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.work or Path(temporary)
        if given.healthy:
            return healthy.main(chosen, folder)
        return mutate(chosen, folder, given.faults, given.seed, given.locate)


def quiet() -> None:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"torch(\..*)?|copyreg|transformers(\..*)?|onnxscript(\..*)?")


def mutate(chosen: Sequence[models.Model], folder: Path, wanted: int, seed: int, looked: int) -> int:
    """Plant, judge, explain, print. 0 when enough are caught and every survivor is explained."""
    outcomes: list[Outcome] = []
    wrong: list[str] = []
    shares: list[tuple[int, int]] = []
    for index, model in enumerate(chosen):
        # A model that has too few places leaves its part to those after it.
        share = -(-(wanted - sum(item.counts for item in outcomes)) // (len(chosen) - index))
        made = bench.stand(model, folder)
        wrong += [f"{model.name}, healthy: {text}" for text in bench.complaints(made)]
        found, unexplained = plant(made, share, seed)
        outcomes += found
        wrong += unexplained
        if looked:
            shares.append(look(made, found, max(1, looked // len(chosen)), seed))
    table(outcomes)
    for text in wrong:
        print(f"ERROR {text}")
    if shares:
        near, tried = (sum(part) for part in zip(*shares, strict=True))
        print(f"named within two nodes = {near} / {tried} ({near / max(tried, 1):.0%})")
    counted = [item for item in outcomes if item.counts]
    same = sum(item.state == "same" for item in outcomes)
    compared = sum(item.state == "caught" for item in counted)
    caught = compared + sum(bool(item.account) for item in counted)
    for words, number, whole in (
        ("with those that change no number", caught, len(counted) + same),
        ("by the comparison of outputs alone", compared, len(counted)),
    ):
        print(f"{words} = {number} / {whole} ({number / max(whole, 1):.1%})")
    print(f"caught / planted = {caught} / {len(counted)} ({caught / max(len(counted), 1):.1%})")
    return 0 if counted and caught >= WANTED * len(counted) and not wrong and len(counted) >= wanted else 1


def plant(made: Bench, wanted: int, seed: int) -> tuple[list[Outcome], list[str]]:
    """``wanted`` faults that load, judged; and survivors without an explanation."""
    outcomes: list[Outcome] = []
    wrong: list[str] = []
    checks: Account | None = None
    for kind, index in bench.choose(made, seed):
        fault, path = bench.plant(made, seed, kind, index)
        outcome = bench.judge(made, fault, index, path)
        if outcome.state == "survived":
            checks = checks or Account(made)
            if said := checks.complaint(path):
                outcome = replace(outcome, account=said)
                print(
                    f"  the export step's checks: {kind}, {fault.place}: {' '.join(said.split())[:160]}",
                    flush=True,
                )
        outcomes.append(outcome)
        if outcome.state == "survived" and not outcome.account:
            why, figures = bench.explain(made, path)
            if why == bench.SAME:
                outcome = outcomes[-1] = replace(outcome, state="same")
            print(f"  survived: {kind}, {fault.place}: {why or 'NOT EXPLAINED'}; {figures}", flush=True)
            if not why:
                wrong.append(f"{made.name}: {kind}, {fault.place} survived: {figures}")
        if sum(item.counts for item in outcomes) == wanted:
            break
    return outcomes, wrong


def look(made: Bench, found: Sequence[Outcome], wanted: int, seed: int) -> tuple[int, int]:
    """How many of some caught faults are named within two nodes, of how many."""
    caught = [item for item in found if item.state == "caught" and item.sample]
    picked = np.random.default_rng([seed, 2]).permutation(len(caught))[:wanted]
    reference = bench.Reference(made)
    near = 0
    for place in picked:
        outcome = caught[int(place)]
        fault, path = bench.plant(made, seed, outcome.fault.kind, outcome.index)
        named = reference.named(outcome, path)
        steps = bench.distance(path, named, fault.near) if named else None
        near += steps is not None and steps <= 2
        if steps is None or steps > 2:
            print(
                f"  looked for: {fault.kind}, {fault.place}: named {named or 'nothing'}, {steps} steps away"
            )
    return near, len(picked)


def table(outcomes: Sequence[Outcome]) -> None:
    for title, key in (("model", lambda item: item.model), ("kind", lambda item: item.fault.kind)):
        print(
            f"\n{title:<20} planted  caught  only by hard inputs  only by constants  by export checks"
            "  same numbers  not loaded"
        )
        for name in dict.fromkeys(map(key, outcomes)):
            mine = [item for item in outcomes if key(item) == name]
            states = Counter(item.state for item in mine)
            planted, by_hard = states["caught"] + states["survived"], sum(item.only_hard for item in mine)
            alone = sum(bool(item.constant) for item in mine)
            held = sum(bool(item.account) for item in mine)
            print(
                f"{name:<20} {planted:>7} {states['caught'] + held:>7} {by_hard:>20} {alone:>18} {held:>17}"
                f" {states['same']:>13} {states['load']:>11}"
            )
    print()


if __name__ == "__main__":
    sys.exit(main())
