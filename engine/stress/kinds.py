"""How the values of each kind are made, for which inputs, and when they are inside what the recipe declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from engine.plan import PlannedInput
from engine.samples import Change, Size

Takes = Literal["float", "integer", "index", "mask", "opaque"]
_OUT = 8.0  # standard deviations
_CURVES = (
    "Erf", "Gelu", "Tanh", "Sigmoid", "Exp", "Softmax", "LogSoftmax", "Softplus", "Elu", "Celu", "Selu", "Mish",
    "HardSigmoid", "HardSwish", "Swish", "LSTM", "GRU", "RNN", "Pow",
)  # fmt: skip
_QUOTIENTS = (
    "Div", "Reciprocal", "Sqrt", "Log", "Pow", "LayerNormalization", "BatchNormalization", "RMSNormalization",
    "GroupNormalization", "InstanceNormalization", "LpNormalization", "ReduceL2", "ReduceL1", "LogSoftmax",
)  # fmt: skip
_SIGNED = (
    "Relu", "LeakyRelu", "PRelu", "Abs", "Clip", "Max", "Min", "Sign", "Where", "Sqrt", "Log", "Pow", "Elu", "Celu",
    "Selu", "ThresholdedRelu", "Floor", "Ceil", "Mod", "Greater", "Less", "GreaterOrEqual", "LessOrEqual",
)  # fmt: skip
_PLACES = (
    "Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "Resize",
    "Pad", "GridSample", "RoiAlign", "DepthToSpace", "SpaceToDepth", "Slice", "CumSum", "LSTM", "GRU", "RNN",
)  # fmt: skip
_ORDERED = (
    "TopK",
    "ArgMax",
    "ArgMin",
    "Unique",
    "NonMaxSuppression",
    "MaxPool",
    "CumSum",
    "ReduceMax",
    "ReduceMin",
)


@dataclass(frozen=True)
class Kind:
    """``ops``: made only when the graph contains one of these (always, when empty).

    ``ties``: values are alike, so that an op that picks among them may pick any; not judged where there is one.
    """

    name: str
    takes: tuple[Takes, ...]
    make: Change
    ops: tuple[str, ...] = ()
    within: Callable[[PlannedInput], bool] = lambda item: True
    ties: bool = False


def bounds(item: PlannedInput, size: Size) -> tuple[Any, Any] | None:
    """Smallest and largest declared value, each to be broadcast over the input; None where nothing is declared."""
    if item.kind == "uniform":
        return item.numbers[0], item.numbers[1]
    if item.kind == "normal":
        return -np.inf, np.inf
    if item.image is not None:
        image = item.image
        spread = (-1, 1, 1) if image.layout == "chw" else (-1,)
        mean, std = (np.asarray(numbers).reshape(spread) for numbers in (image.mean, image.std))
        return (image.low / image.scale - mean) / std, (image.high / image.scale - mean) / std
    return None


def _spread(item: PlannedInput, size: Size) -> tuple[Any, Any]:
    """The numbers between which values reach far out."""
    if item.kind == "normal":
        mean, std = item.numbers
        return mean - _OUT * std, mean + _OUT * std
    found = bounds(item, size)
    assert found is not None
    return found


def _fit(make: Callable[[PlannedInput, Size, np.random.Generator, Any], Any]) -> Change:
    """Values cut to what the recipe declares."""

    def change(item: PlannedInput, size: Size, rng: np.random.Generator, own: Any) -> Any:
        values, found = make(item, size, rng, own), bounds(item, size)
        return values if found is None else np.clip(values, *found)

    return change


def _row_axis(size: Size) -> int:
    """The axis whose elements are called rows: the first that has more than one."""
    return next((axis for axis, length in enumerate(size[:-1]) if length > 1), 0)


def _zero_rows(item: PlannedInput, size: Size, rng: np.random.Generator, own: Any) -> Any:
    values, axis = own.copy(), _row_axis(size)
    if size:
        values[(slice(None),) * axis + (slice(0, max(1, size[axis] // 2)),)] = 0
    return values


def _constant_rows(item: PlannedInput, size: Size, rng: np.random.Generator, own: Any) -> Any:
    return own if not size else np.broadcast_to(own[..., :1], size)


def _same_rows(item: PlannedInput, size: Size, rng: np.random.Generator, own: Any) -> Any:
    axis = _row_axis(size)
    return own if not size else np.broadcast_to(np.take(own, [0], axis), size)


def _wide(item: PlannedInput, size: Size, rng: np.random.Generator, own: Any) -> Any:
    low, high = _spread(item, size)
    return low + (high - low) * rng.random(size)


def _halves(item: PlannedInput, size: Size, rng: np.random.Generator, own: Any) -> Any:
    return rng.integers(-32, 32, size) / 8


def _ramp(item: PlannedInput, size: Size, rng: np.random.Generator, own: Any) -> Any:
    low, high = _spread(item, size)
    count = int(np.prod(size))
    return low + (high - low) * (rng.permutation(count).reshape(size) + 0.5) / max(1, count)


def _spike(item: PlannedInput, size: Size, rng: np.random.Generator, own: Any) -> Any:
    values = np.zeros(size)
    if values.size:
        flat = values.reshape(size[0], -1)
        flat[np.arange(size[0]), rng.integers(0, flat.shape[1], size[0])] = np.max(_spread(item, size)[1])
    return values


def _not_finite(item: PlannedInput, size: Size, rng: np.random.Generator, own: Any) -> Any:
    values = own.copy()
    if values.size:
        values.reshape(-1)[0] = np.nan
        values.reshape(-1)[-1] = np.inf
    return values


def _whole(pick: Callable[[int, int, Size, np.random.Generator], Any]) -> Change:
    def change(item: PlannedInput, size: Size, rng: np.random.Generator, own: Any) -> Any:
        low, high = (int(number) for number in item.numbers)
        return pick(low, high, size, rng)

    return change


def _ends(low: int, high: int, size: Size, rng: np.random.Generator) -> Any:
    return np.where(np.indices(size).sum(0) % 2, low, high)


def _repeated(low: int, high: int, size: Size, rng: np.random.Generator) -> Any:
    return np.full(size, low + (high - low) // 3)


def _ascending(low: int, high: int, size: Size, rng: np.random.Generator) -> Any:
    return low + np.arange(int(np.prod(size))).reshape(size) % min(high - low + 1, 2**62)


def _masked(keep: Callable[[Any, Size], Any]) -> Change:
    """A mask from where it keeps: ``keep(lengths, size)`` with lengths from the declared to the whole width."""

    def change(item: PlannedInput, size: Size, rng: np.random.Generator, own: Any) -> Any:
        low = min(max(1, _shortest(item)), size[-1])
        lengths = low + np.arange(int(np.prod(size[:-1]))).reshape(size[:-1]) * 2 % (size[-1] - low + 1)
        kept = keep(lengths[..., None], size)
        on, off = (item.mask.keep, item.mask.drop) if item.mask else (1.0, 0.0)
        return np.where(kept, on, off)

    return change


def _shortest(item: PlannedInput) -> int:
    """Number of elements that a row of a mask keeps at least."""
    if item.kind == "lengths":
        return int(item.numbers[0])
    return item.mask.low if item.mask else 1


def _no_first_row(lengths: Any, size: Size) -> Any:
    kept = np.ones(size, bool)
    kept.reshape(-1, size[-1])[0] = False
    return kept


def _padding(*allowed: str) -> Callable[[PlannedInput], bool]:
    """Does the recipe declare masks that pad on such a side?"""

    def within(item: PlannedInput) -> bool:
        if item.mask is not None:
            return item.mask.padding in allowed
        return item.kind == "integers" or (item.kind == "lengths" and "right" in allowed)

    return within


def _single(item: PlannedInput) -> bool:
    return _padding("right", "mixed")(item) and _shortest(item) <= 1


def _full(item: PlannedInput) -> bool:
    return item.mask is None or item.mask.high is None


def _empty(item: PlannedInput) -> bool:
    return item.kind == "integers" or (item.mask is not None and item.mask.empty_rows > 0)


_FLOAT: tuple[Takes, ...] = ("float",)
_WHOLE: tuple[Takes, ...] = ("integer", "index")
_MASK: tuple[Takes, ...] = ("mask",)
KINDS: tuple[Kind, ...] = (
    Kind("zeros", _FLOAT, _fit(lambda item, size, rng, own: np.zeros(size)), ties=True),
    Kind("zero-rows", _FLOAT, _fit(_zero_rows), ties=True),
    Kind("constant-rows", _FLOAT, _fit(_constant_rows), ties=True),
    Kind("same-rows", ("opaque", "index"), _same_rows),
    Kind("tiny", _FLOAT, _fit(lambda item, size, rng, own: own * 1e-6), _QUOTIENTS),
    Kind("wide", _FLOAT, _fit(_wide), _CURVES),
    Kind("negative", _FLOAT, _fit(lambda item, size, rng, own: -np.abs(own)), _SIGNED),
    Kind("positive", _FLOAT, _fit(lambda item, size, rng, own: np.abs(own)), _SIGNED),
    Kind("halves", _FLOAT, _fit(_halves), ("Round", "Floor", "Ceil", "Mod", "QuantizeLinear")),
    Kind("ramp", _FLOAT, _fit(_ramp), _ORDERED),
    Kind("spike", _FLOAT, _fit(_spike), _PLACES, ties=True),
    Kind("large", _FLOAT, lambda item, size, rng, own: own * 1e4, within=lambda item: False),
    Kind("not-finite", _FLOAT, _not_finite, ("IsNaN", "IsInf"), within=lambda item: False),
    Kind("low", _WHOLE, _whole(lambda low, high, size, rng: np.full(size, low)), ties=True),
    Kind("high", _WHOLE, _whole(lambda low, high, size, rng: np.full(size, high)), ties=True),
    Kind("ends", _WHOLE, _whole(_ends), ties=True),
    Kind("repeated", ("index",), _whole(_repeated), ties=True),
    Kind("ascending", _WHOLE, _whole(_ascending)),
    Kind("mask-right", _MASK, _masked(lambda lengths, size: np.arange(size[-1]) < lengths),
         within=_padding("right", "mixed")),
    Kind("mask-left", _MASK, _masked(lambda lengths, size: np.arange(size[-1]) >= size[-1] - lengths),
         within=_padding("left", "mixed")),
    Kind("mask-one", _MASK, _masked(lambda lengths, size: np.broadcast_to(np.arange(size[-1]) < 1, size)),
         within=_single),
    Kind("mask-none", _MASK, _masked(lambda lengths, size: np.ones(size, bool)), within=_full),
    Kind("mask-rows", _MASK, _masked(_no_first_row), within=_empty),
)  # fmt: skip


def takes(name: str, item: PlannedInput, inputs: Mapping[str, PlannedInput], index: bool) -> Takes | None:
    """What an input is to the kinds; None for one that they leave as it is."""
    if item.same_as or item.kind == "positions":
        return None
    masks = {other.masked_by for other in inputs.values()}
    binary = item.kind == "integers" and item.numbers == (0.0, 1.0) and not index
    if item.kind in ("mask", "lengths") or name in masks or (item.dtype == "bool" and item.shape) or binary:
        return "mask" if item.shape else None
    if item.kind in ("file", "python"):
        return "opaque"
    if item.dtype.startswith("float"):
        return "float" if bounds(item, ()) is not None else None
    return ("index" if index else "integer") if item.kind == "integers" else None
