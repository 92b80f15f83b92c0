"""Finds types, ranks and sizes with which the model runs: try, see which layer refuses, mend that input, try again."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch.utils import _pytree as pytree

from engine.errors import StepError
from engine.initial.attempts import Attempt, Bench, Trial, describe
from engine.initial.signature import Guess, Signature, starting_shape
from engine.initial.watch import Unmet

_KINDS = {"float": "float32", "int": "int64", "bool": "bool"}
_SIZES = (32, 64, 28, 224, 16, 8, 128, 256, 96, 112, 384, 512, 1024, 4096, 16000)
_LARGEST_SQUARE = 512
_MOST_ELEMENTS = 2**23  # of one input; a layer's activations may be a hundred times that
_MENDS = 40  # of one starting point
_MOST = 600  # attempts altogether


def find(
    bench: Bench, signature: Signature, axis_sizes: Mapping[str, int]
) -> tuple[dict[str, Trial], Attempt]:
    """Trials with which the model runs, and that run. Raises StepError saying what was tried."""
    required = {name: guess for name, guess in signature.guesses.items() if name not in signature.companions}
    starts: Iterable[dict[str, Trial]] = (
        [dict(signature.start)] if signature.start is not None else _starts(required, axis_sizes)
    )
    for start in starts:
        found = _mend(bench, start) or _resize(bench, start)
        if found is not None:
            found = _bounded(bench, *_same_rank(bench, found))
            return _with_companions(bench, signature, _with_masks(bench, *found))
        if bench.count > _MOST:
            break
    shown = list(dict.fromkeys(bench.history))
    listed = "\n".join(f"        {line}" for line in dict.fromkeys([*shown[:3], *shown[-3:]]))
    raise StepError(
        f"no inputs were found with which {bench.name} runs ({bench.count} attempts)",
        klass="shape",
        cause=f"the first and the last of them:\n{listed}",
        fix="say what it takes with --input NAME:DTYPE:SHAPE",
    )


def _same_rank(bench: Bench, found: tuple[dict[str, Trial], Attempt]) -> tuple[dict[str, Trial], Attempt]:
    """Give float inputs of fewer axes the three that another has, where the model runs so too.

    A sequence without its batch axis often runs by broadcasting, which is hardly what forward is meant for.
    """
    trials, attempt = found
    floats = {name: trial for name, trial in trials.items() if trial.dtype.startswith("float")}
    if max((len(trial.shape) for trial in floats.values()), default=0) != 3:
        return found
    for name, trial in floats.items():
        if len(trial.shape) < 3 and not trial.settled and not trial.named:
            raised = trials | {name: Trial(trial.dtype, starting_shape((), 3, {}))}
            trials, attempt = _mend(bench, raised) or (trials, attempt)
    return trials, attempt


def _bounded(bench: Bench, trials: dict[str, Trial], attempt: Attempt) -> tuple[dict[str, Trial], Attempt]:
    """Let index inputs take every value that the layers which look them up take, where the model runs so."""
    wider = copy.deepcopy(trials)
    for name, trial in wider.items():
        bounds = [need.below for need in attempt.met.get(name, ()) if need.below is not None]
        if bounds and trial.below is None:
            trial.below = min(bounds)
    return _mend(bench, wider) or (trials, attempt)


def _with_masks(bench: Bench, trials: dict[str, Trial], attempt: Attempt) -> tuple[dict[str, Trial], Attempt]:
    """Take whole-numbered inputs for masks, by name or because zeros and ones by chance give no finite outputs."""
    for name, trial in trials.items():
        if len(trial.shape) < 2 or trial.below is not None or trial.dtype.startswith("float"):
            continue
        if "mask" not in name.lower() and _finite(attempt):
            continue
        for sense in ("keeps", "drops"):
            masked = trials | {name: replace(trial, mask=sense)}
            # Not watched: torch's own attention takes another path then, which hides rows that are masked whole.
            tried = bench.run(masked, watched=False)
            if not tried.error and _finite(tried):
                trials, attempt = masked, replace(attempt, returned=tried.returned)
                break
    return trials, attempt


def _finite(attempt: Attempt) -> bool:
    leaves = [leaf for leaf in pytree.tree_leaves(attempt.returned) if isinstance(leaf, torch.Tensor)]
    return all(bool(torch.isfinite(leaf).all()) for leaf in leaves)


def _with_companions(
    bench: Bench, signature: Signature, found: tuple[dict[str, Trial], Attempt]
) -> tuple[dict[str, Trial], Attempt]:
    """Add each optional companion, shaped like the first input, when the model also runs with it."""
    trials, attempt = found
    for name in signature.companions:
        first = next(iter(trials.values()))
        mask = Trial("int64", list(first.shape), named=dict(first.named), mask="keeps")
        more = trials | {name: mask}
        ordered = {key: more[key] for key in signature.guesses if key in more}
        tried = bench.run(ordered)
        if not tried.error:
            trials, attempt = ordered, tried
    return trials, attempt


def _starts(guesses: Mapping[str, Guess], axis_sizes: Mapping[str, int]) -> Iterator[dict[str, Trial]]:
    """Starting points, the likely ones first: type and rank of each input."""
    choices = [list(_choices(guess)) for guess in guesses.values()]
    combined = itertools.product(*(range(len(item)) for item in choices))
    # Few inputs far from their first guess come before many.
    for picks in sorted(itertools.islice(combined, 4096), key=lambda picks: (sum(picks), max(picks))):
        start = {}
        for (name, guess), options, pick in zip(guesses.items(), choices, picks):
            dtype, rank = options[pick]
            trial = Trial(dtype, starting_shape(guess.shape, rank, axis_sizes))
            trial.named = {i: size for i, size in enumerate(guess.shape) if isinstance(size, str)}
            trial.settled = guess.fixed
            trial.sized = guess.fixed and bool(guess.shape)
            if trial.sized:
                trial.fixed = {i: "as given" for i, size in enumerate(guess.shape) if isinstance(size, int)}
            start[name] = trial
        yield start


def _choices(guess: Guess) -> Iterator[tuple[str, int]]:
    ranks = (len(guess.shape),) if guess.shape else (2, 3, 4, 1, 5, 0)
    others = () if guess.fixed else ("int64", "float32", "bool")
    for dtype in dict.fromkeys((guess.dtype, *others)):
        for rank in ranks:
            yield dtype, rank
    if guess.shape and not guess.fixed:  # a docstring may be wrong
        for rank in (2, 3, 4):
            yield guess.dtype, rank


def _mend(bench: Bench, start: Mapping[str, Trial]) -> tuple[dict[str, Trial], Attempt] | None:
    """Run, mend what a layer refuses, run again, until the model runs or no mend is known."""
    trials = copy.deepcopy(dict(start))
    seen: set[str] = set()
    for _ in range(_MENDS):
        attempt = bench.run(trials)
        if not attempt.error:
            return trials, attempt
        if attempt.unmet is None or not mended(trials[attempt.unmet.root], attempt.unmet):
            return None
        state = describe(trials) + str([trial.below for trial in trials.values()])
        if state in seen:
            return None
        seen.add(state)
    return None


def mended(trial: Trial, unmet: Unmet) -> bool:
    """Change ``trial`` so that it may meet the need; False when it is not known how, or the user has spoken."""
    need = unmet.need
    if need.dtype and need.dtype in unmet.what.split(",")[0]:
        if trial.settled or _KINDS[need.dtype] == trial.dtype:
            return False
        trial.dtype = _KINDS[need.dtype]
        return True
    if need.below is not None:
        below = need.below if trial.below is None or trial.below > need.below else trial.below // 2
        trial.below = below
        return below > 0
    if unmet.what.startswith("takes more axes") or (need.rank is not None and len(unmet.shape) != need.rank):
        return _change_rank(trial, (need.rank or len(unmet.shape) + 1) - len(unmet.shape))
    return _change_size(trial, unmet)


def _change_rank(trial: Trial, change: int) -> bool:
    rank = len(trial.shape) + change
    if trial.sized or not 0 <= rank <= 5:
        return False
    trial.shape, trial.fixed, trial.named = starting_shape((), rank, {}), {}, {}
    return True


def _change_size(trial: Trial, unmet: Unmet) -> bool:
    """Give the axis that ends up as the refused one the size that is asked."""
    size = unmet.need.sizes.get(unmet.axis, unmet.need.sizes.get(unmet.axis - len(unmet.shape)))
    if list(unmet.shape) == trial.shape:
        places = [unmet.axis]
    else:
        places = [axis for axis, there in enumerate(trial.shape) if there == unmet.shape[unmet.axis]]
    if size is None or len(places) != 1 or places[0] in trial.fixed:
        return False
    trial.shape[places[0]] = size
    trial.fixed[places[0]] = f"{unmet.need.by} takes {size}"
    return True


def _resize(bench: Bench, start: Mapping[str, Trial]) -> tuple[dict[str, Trial], Attempt] | None:
    """Try usual sizes on the axes that nothing has fixed, after as many mends as are known."""
    trials = copy.deepcopy(dict(start))
    for _ in range(_MENDS):
        attempt = bench.run(trials)
        if attempt.unmet is None or not mended(trials[attempt.unmet.root], attempt.unmet):
            break
    names = [attempt.unmet.root] if attempt.unmet is not None else list(trials)
    for size in _SIZES:
        for name in _resizable(trials, names):
            tried = copy.deepcopy(trials)
            for axis in _free(tried[name]):
                _set(tried, name, axis, size)
            if _too_large(tried[name].shape) or bench.count > _MOST:
                continue
            bench.say(f"trying {describe(tried)}")
            found = _mend(bench, tried)
            if found is not None:
                return found
    return None


def _resizable(trials: Mapping[str, Trial], names: Sequence[str]) -> list[str]:
    return [name for name in names if _free(trials[name])]


def _free(trial: Trial) -> list[int]:
    return [axis for axis in range(1, len(trial.shape)) if axis not in trial.fixed]


def _set(trials: Mapping[str, Trial], name: str, axis: int, size: int) -> None:
    """Give an axis its size, and every other one that has its symbol."""
    trials[name].shape[axis] = size
    symbol = trials[name].tied.get(axis)
    for trial in trials.values() if symbol else ():
        for other, there in trial.tied.items():
            trial.shape[other] = size if there == symbol else trial.shape[other]


def _too_large(shape: Sequence[int]) -> bool:
    return math.prod(shape) > _MOST_ELEMENTS or (len(shape) >= 4 and max(shape[2:]) > _LARGEST_SQUARE)
