"""Sample values: one kind each, of numbers that the type can hold, with files and neighbours that fit."""

from __future__ import annotations

from collections.abc import Iterator

from engine.checks import files, sizes
from engine.errors import Problem, quoted
from engine.recipe import KINDS, PAIRS, Image, Input, LoadedRecipe, Values
from engine.schema import nearest

FLOATS = {"float32", "float16"}
FARTHEST = 8  # standard deviations from the mean: a normal value farther out is not met in practice
RANGES = {
    "int64": (-(2**63), 2**63 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int8": (-128, 127),
    "uint8": (0, 255),
    "bool": (0, 1),
    "float16": (-65504, 65504),
    "float32": (-3.4028234e38, 3.4028234e38),
}
LARGEST_PIXEL = 2**31 - 1
Found = Iterator[Problem]


def problems(loaded: LoadedRecipe) -> Found:
    """Every problem of every input's ``values``."""
    for name, item in loaded.recipe.inputs.items():
        values = item.values
        if isinstance(values, Values):
            yield from _one(loaded, name, item, values)
        elif values is not None:
            yield from _word(loaded, name, item, values)


def _word(loaded: LoadedRecipe, name: str, item: Input, word: str) -> Found:
    at, where = loaded.document.problem, ("inputs", name, "values")
    if word == "normal" and item.dtype not in FLOATS:
        yield at(where, f"'normal' values need a float input; {name} is {item.dtype}")
    if word == "positions":
        yield from _positions(loaded, name, item, False)


def _one(loaded: LoadedRecipe, name: str, item: Input, values: Values) -> Found:
    at, where = loaded.document.problem, ("inputs", name, "values")
    kinds = values.kinds
    if len(kinds) != 1:
        what = f"{name}: names {len(kinds)} kinds of values" + (f": {', '.join(kinds)}" if kinds else "")
        hint = f"exactly one of: {', '.join(KINDS)}"
        yield at((*where, kinds[1]) if kinds else where, what, hint, key=True)
        return
    kind = kinds[0]
    if kind in PAIRS:
        yield from _pair(loaded, name, item, kind, getattr(values, kind))
    elif kind == "mask":
        yield from _mask(loaded, name, item, values)
    elif values.image is not None:
        yield from _image(loaded, name, item, values.image)
    elif kind == "positions":
        yield from _positions(loaded, name, item, True)
    elif values.file is not None:
        yield from _file(loaded, name, item, values)
    elif values.python is not None:
        yield from files.python(loaded, (*where, "python"), values.python)
    yield from _neighbours(loaded, name, item, values)
    for key, needs in (("key", "file"), ("pad", "masked_by")):
        if getattr(values, key) is not None and getattr(values, needs) is None:
            yield at(
                (*where, key), f"{name}: '{key}' does nothing without '{needs}'", "leave it out", key=True
            )


def _pair(loaded: LoadedRecipe, name: str, item: Input, kind: str, pair: tuple[float, ...]) -> Found:
    at, where = loaded.document.problem, ("inputs", name, "values", kind)
    if kind in ("normal", "uniform") and item.dtype not in FLOATS:
        yield at(where, f"'{kind}' values need a float input; {name} is {item.dtype}", key=True)
    if kind == "normal" and pair[1] < 0:
        yield at((*where, 1), f"{name}: the standard deviation {pair[1]:g} is negative")
    elif (
        kind == "normal"
        and item.dtype in FLOATS
        and abs(pair[0]) + FARTHEST * pair[1] > RANGES[item.dtype][1]
    ):
        what = f"{name}: values {FARTHEST} standard deviations from the mean do not fit into {item.dtype}"
        yield at(where, what, f"which holds up to {RANGES[item.dtype][1]:g}")
    if kind != "normal" and pair[0] > pair[1]:
        yield at(where, f"{name}: the low end {pair[0]} is above the high end {pair[1]}")
    whole = all(number == int(number) for number in pair)
    if kind in ("integers", "lengths") and not whole:
        yield at(where, f"{name}: '{kind}' takes whole numbers")
    if kind == "lengths" and not item.shape:
        yield at(where, f"{name}: 'lengths' needs at least one axis in 'shape'", key=True)
    if kind == "lengths" and pair[0] < 0:
        yield at(where, f"{name}: a row cannot hold {pair[0]:g} ones")
    if kind == "lengths" and item.shape:
        yield from _never_masks(loaded, (*where, 0), name, item, pair[0])
    if kind in ("integers", "uniform") and (kind == "integers" or item.dtype in FLOATS):
        yield from _fits(loaded, where, name, item, pair)


def _fits(
    loaded: LoadedRecipe, where: tuple[str | int, ...], name: str, item: Input, numbers: tuple[float, ...]
) -> Found:
    low, high = RANGES[item.dtype]
    for number in numbers:
        if not low <= number <= high:
            what = f"{name}: {number:g} does not fit into {item.dtype}, which holds {low:g} to {high:g}"
            yield loaded.document.problem(where, what)
            return
        if item.dtype not in FLOATS and number != int(number) and where[-1] not in PAIRS:
            yield loaded.document.problem(
                where, f"{name}: {number:g} is no whole number; {name} is {item.dtype}"
            )
            return


def _mask(loaded: LoadedRecipe, name: str, item: Input, values: Values) -> Found:
    at, where, mask = loaded.document.problem, ("inputs", name, "values", "mask"), values.mask
    assert mask is not None
    if not item.shape:
        yield at(where, f"{name}: 'mask' needs at least one axis in 'shape'", key=True)
    if mask.low is not None and mask.high is not None and mask.low > mask.high:
        yield at((*where, "low"), f"{name}: the low end {mask.low} is above the high end {mask.high}")
    if mask.low is not None and item.shape:
        yield from _never_masks(loaded, (*where, "low"), name, item, mask.low)
    for key in ("low", "high"):
        if mask.padding == "none" and getattr(mask, key) is not None:
            yield at(
                (*where, key), f"{name}: '{key}' does nothing with 'padding: none'", "leave it out", key=True
            )
    keep, drop = (1.0 if mask.keep is None else mask.keep), (0.0 if mask.drop is None else mask.drop)
    if keep == drop:
        key = "keep" if mask.drop is None else "drop"
        yield at((*where, key), f"{name}: in 'mask' 'keep' is {keep} and 'drop' is {drop}: it masks nothing")
    for key in ("keep", "drop"):
        if getattr(mask, key) is not None:
            yield from _fits(loaded, (*where, key), name, item, (getattr(mask, key),))


def _never_masks(
    loaded: LoadedRecipe, where: tuple[str | int, ...], name: str, item: Input, low: float
) -> Found:
    width = sizes.largest(loaded, item.shape[-1:])
    if width and low > width[0]:
        what = f"{name}: a row holds {width[0]} at most, so that {low:g} kept ones mask nothing"
        yield loaded.document.problem(where, what, "lower it, or use 'ones' for a mask that drops nothing")


def _image(loaded: LoadedRecipe, name: str, item: Input, image: Image) -> Found:
    at, where = loaded.document.problem, ("inputs", name, "values", "image")
    low, high = image.range or (0, 255)
    if low > high:
        yield at((*where, "range"), f"{name}: the low end {low:g} is above the high end {high:g}")
    elif low != int(low) or high != int(high):
        yield at((*where, "range"), f"{name}: pixels are whole numbers")
    elif max(abs(low), abs(high)) > LARGEST_PIXEL:
        yield at((*where, "range"), f"{name}: a pixel is at most {LARGEST_PIXEL} away from 0")
    elif item.dtype in FLOATS:
        yield from _image_fits(loaded, where, name, item, image)
    if len(item.shape) < 3:
        what = f"{name}: an image has at least three dimensions, this input has {len(item.shape)}"
        yield at((*where, "layout"), what)
        return
    changed = [key for key in ("scale", "mean", "std") if getattr(image, key) is not None]
    if item.dtype not in FLOATS:
        if changed:
            what = f"{name}: '{changed[0]}' needs a float input; {name} is {item.dtype}"
            yield at((*where, changed[0]), what, "leave it out for raw pixels", key=True)
        elif image.range or item.dtype != "uint8":
            yield from _fits(loaded, (*where, "range"), name, item, (low, high))
    channels = item.shape[-3] if image.layout == "chw" else item.shape[-1]
    for key in ("mean", "std"):
        numbers = getattr(image, key)
        if numbers and len(numbers) not in (1, channels):
            what = f"{name}: '{key}' has {len(numbers)} numbers, the {image.layout} image {channels} channels"
            yield at((*where, key), what, "one number, or one a channel")
    if image.std and any(number <= 0 for number in image.std):
        yield at((*where, "std"), f"{name}: a standard deviation must be more than 0")


def _image_fits(
    loaded: LoadedRecipe, where: tuple[str | int, ...], name: str, item: Input, image: Image
) -> Found:
    """The values that a float input gets are (pixel / scale - mean) / std."""
    bound = RANGES[item.dtype][1]
    if any(std <= 0 for std in image.std or ()) or _farthest(image) <= bound:
        return
    alone = (key for key in ("range", "scale", "mean", "std")
             if _farthest(Image(image.layout, **{key: getattr(image, key)})) > bound)  # fmt: skip
    key = next(alone, None)
    what = f"{name}: these values do not fit into {item.dtype}, which holds up to {bound:g}"
    yield loaded.document.problem(
        (*where, key) if key else where, what, "they are (pixel / scale - mean) / std"
    )


def _farthest(image: Image) -> float:
    """The largest distance from 0 that a value of the image can have."""
    pixels = [pixel / (image.scale or 1.0) for pixel in image.range or (0.0, 255.0)]
    spans = (abs(pixel - mean) for pixel in pixels for mean in image.mean or (0.0,))
    return max(spans) / min(image.std or (1.0,))


def _positions(loaded: LoadedRecipe, name: str, item: Input, mapping: bool) -> Found:
    where = ("inputs", name, "values", "positions") if mapping else ("inputs", name, "values")
    at = loaded.document.problem
    if not item.shape:
        yield at(where, f"{name}: 'positions' needs at least one axis in 'shape'", key=mapping)
        return
    last = sizes.largest(loaded, (item.shape[-1],))
    if last and last[0] - 1 > RANGES[item.dtype][1]:
        what = f"{name}: positions up to {last[0] - 1} do not fit into {item.dtype}"
        yield at(where, what, key=mapping)


def _file(loaded: LoadedRecipe, name: str, item: Input, values: Values) -> Found:
    from engine import arrays

    at, where = loaded.document.problem, ("inputs", name, "values", "file")
    missing = list(files.present(loaded, where, str(values.file)))
    if missing:
        yield from missing
        return
    path, key = loaded.beside(*where) / str(values.file), values.key or name
    try:
        there = arrays.headers(path)
    except (OSError, ValueError) as error:
        yield at(where, f"{name}: {quoted(str(values.file))[1:-1]} cannot be read: {error}")
        return
    spot = (*where[:-1], "key") if values.key else where
    if key not in there:
        hint = nearest(key, there) or f"there are: {', '.join(list(there)[:8]) or 'none'}"
        yield at(spot, f"{name}: {values.file} holds no '{key}'", hint)
        return
    largest = sizes.largest(loaded, item.shape)
    reason = arrays.misfit(there[key], item.dtype, largest) if len(largest) == len(item.shape) else ""
    if reason:
        yield at(spot, f"{name}: '{key}' in {values.file} does not fit: {reason}")


def _neighbours(loaded: LoadedRecipe, name: str, item: Input, values: Values) -> Found:
    at, where, inputs = loaded.document.problem, ("inputs", name, "values"), loaded.recipe.inputs
    for key in ("same_as", "masked_by"):
        other = getattr(values, key)
        if other is None:
            continue
        if other not in inputs or other == name:
            hint = nearest(other, [word for word in inputs if word != name])
            yield at((*where, key), f"{name}: '{other}' is no other input", hint)
            continue
        theirs = inputs[other].values
        follows = isinstance(theirs, Values) and (theirs.same_as or (key == "masked_by" and theirs.masked_by))
        if follows:
            what = f"{name}: '{other}' itself follows another input"
            yield at((*where, key), what, "name the input at the end of the chain")
        shape = inputs[other].shape
        if key == "same_as" and shape != item.shape:
            yield at((*where, key), f"{name}: '{other}' has another shape")
        if key == "masked_by" and item.shape[: len(shape)] != shape:
            own, mask = (", ".join(map(str, axes)) for axes in (item.shape, shape))
            what = f"{name}: its first axes are not those of '{other}': [{own}] and [{mask}]"
            yield at((*where, key), what)
    if values.same_as and values.masked_by:
        yield at(
            (*where, "masked_by"),
            f"{name}: 'same_as' takes the other input as it is",
            "leave it out",
            key=True,
        )
    if values.masked_by and values.pad is not None:
        yield from _fits(loaded, (*where, "pad"), name, item, (values.pad,))
