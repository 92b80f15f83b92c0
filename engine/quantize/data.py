"""Calibration data: one batch of inputs after the other, each checked before anything is made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from engine import arrays, samples
from engine.errors import StepError
from engine.plan import Plan, PlannedCalibration
from engine.plan_inputs import PlannedFile
from engine.samples import Array
from engine.values import Issue

SHAPE = "opt"
_FEW = 32  # samples; fewer say little about the range of an activation
_WHERE = "precision.calibration"


@dataclass(frozen=True)
class Data:
    """What the scales will come from: ``samples`` is how many along the first dimension in all, ``own`` the inputs
    with calibration values of their own.
    """

    plan: Plan
    batches: int
    samples: int
    own: tuple[str, ...]
    issues: tuple[Issue, ...]

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        """Inputs by name, batch by batch. Raises StepError (usage) for values that are not finite or do not fit."""
        stored = {
            name: arrays.load(Path(item.file.path), item.file.key)
            for name, item in self.plan.inputs.items() if item.file and item.shape
        }  # fmt: skip
        for index in range(self.batches):
            yield self._batch(index, stored)

    def _batch(self, index: int, stored: Mapping[str, Array]) -> dict[str, Array]:
        made = samples.make(
            self.plan, f"calibration-{index}", self.plan.shapes[SHAPE],
            {name: _slice(name, array, index) for name, array in stored.items()},
        )  # fmt: skip
        for name, values in made.items():
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                spot = [int(place) for place in np.argwhere(~np.isfinite(values))[0]]
                kind = "NaN" if np.isnan(values[tuple(spot)]) else "infinite"
                raise StepError(
                    f"calibration values of '{name}' are not finite: batch {index} is {kind} at {spot}",
                    klass="numeric", where=_WHERE, usage=True,
                )  # fmt: skip
        return made


def _slice(name: str, stored: Array, index: int) -> samples.Change:
    """Of a file, batch after batch: whole ones along the first dimension."""

    def change(_: object, size: samples.Size, __: object, own: Array) -> Array:
        start = index * size[0]
        taken = np.asarray(stored[(slice(start, start + size[0]), *(slice(length) for length in size[1:]))])
        cast: Array = taken.astype(own.dtype)
        if own.dtype.kind != "f" and not np.array_equal(cast, taken):
            what = f"calibration values of '{name}' in batch {index} do not fit into {own.dtype}"
            raise StepError(what, klass="numeric", where=_WHERE, usage=True)
        return cast

    return change


def open_data(plan: Plan, calibration: PlannedCalibration) -> Data:
    """Calibration data of a plan. Raises StepError (usage) for files with too few samples and labels of one class."""
    inputs = {**plan.inputs, **calibration.inputs}
    sizes = plan.shapes[SHAPE]
    first = {
        name: (sizes[item.shape[0]] if isinstance(item.shape[0], str) else item.shape[0])
        for name, item in inputs.items() if item.shape
    }  # fmt: skip
    for name, item in inputs.items():
        if item.file is None or not item.shape:
            continue
        there = arrays.headers(Path(item.file.path))[item.file.key].shape[0]
        needed = first[name] * calibration.batches
        if there < needed:
            where = f"{_WHERE}.values.{name}.file" if name in calibration.inputs else f"inputs.{name}.values.file"
            raise StepError(
                f"'{item.file.key}' in {Path(item.file.path).name} holds {there} samples; calibration takes"
                f" {calibration.batches} batches of {first[name]}",
                fix=f"precision.calibration: {{batches: {max(1, there // first[name])}}}, or a larger file",
                where=where, usage=True,
            )  # fmt: skip
    count = max(first.values(), default=1) * calibration.batches
    real = any(item.file or item.python for item in inputs.values())
    issues = _few(count, real)
    if calibration.labels:
        issues += _labels(calibration.labels, count)
    return Data(replace(plan, inputs=inputs), calibration.batches, count, tuple(calibration.inputs), tuple(issues))


def _few(count: int, real: bool) -> list[Issue]:
    found = []
    if count < _FEW:
        found.append(Issue(
            "calibrate", "numeric", f"only {count} calibration samples", "a range seen in so few may be too narrow",
            f"raise precision.calibration.batches until there are {_FEW} or more", disposition="open",
        ))  # fmt: skip
    if not real:
        found.append(Issue(
            "calibrate", "numeric", "the scales come from the recipe's sample values, not from data of the task",
            "no input takes its values from a file or a function",
            "give real inputs under precision.calibration.values", disposition="open",
        ))  # fmt: skip
    return found


def _labels(labels: PlannedFile, count: int) -> list[Issue]:
    stored = np.asarray(arrays.load(Path(labels.path), labels.key))
    name = Path(labels.path).name
    if len(stored) < count:
        raise StepError(
            f"'{labels.key}' in {name} holds {len(stored)} labels for {count} calibration samples",
            where=f"{_WHERE}.labels", usage=True,
        )  # fmt: skip
    classes, counts = np.unique(stored[:count], return_counts=True)
    if len(classes) == 1:
        raise StepError(
            f"all {count} calibration samples are of one class ({classes[0]}): ranges of the others are not seen",
            klass="numeric", fix="mix the classes; a file sorted by class gives its first ones only",
            where=f"{_WHERE}.labels", usage=True,
        )  # fmt: skip
    missing = sorted(set(np.unique(stored).tolist()) - set(classes.tolist()))
    rare = counts.min() * len(classes) * 10 < count
    if not missing and not rare:
        return []
    what = (
        f"{len(missing)} of {len(missing) + len(classes)} classes are not among the calibration samples"
        if missing
        else f"class {classes[counts.argmin()]} is in {counts.min()} of {count} calibration samples only"
    )
    return [Issue("calibrate", "numeric", what, "ranges that only these classes reach may be cut",
                  "mix the file, or raise precision.calibration.batches", disposition="open")]  # fmt: skip
