"""How figures, sizes and names are written, in reports and on terminals."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.plan_inputs import PlannedImage, PlannedInput, PlannedMask


def cell(text: Any) -> str:
    """Text that cannot break a Markdown table."""
    return str(text).replace("|", "\\|").replace("\n", " ").strip()


def number(value: float | None) -> str:
    """Two significant digits for errors, enough for figures close to one, whole numbers as they are."""
    if value is None:
        return "-"
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    if 0.9 < value < 1:
        return f"{value:.6f}" if value < 0.999999 else f"1 - {1 - value:.1e}"
    return f"{value:.2g}"


def values_text(item: PlannedInput) -> str:
    """How the sample values were made, as a reader of the report must know it."""
    text = _kind_text(item)
    return f"{text}; {item.pad:g} where {item.masked_by} drops" if item.masked_by else text


def _kind_text(item: PlannedInput) -> str:
    if item.same_as:
        return f"the same as {item.same_as}"
    if item.file is not None:
        return f"from {Path(item.file.path).name}, array {item.file.key}"
    if item.python is not None:
        return f"by {Path(item.python.file).name}:{item.python.function}"
    if item.mask is not None:
        return _mask_text(item.mask)
    if item.image is not None:
        return _image_text(item.image)
    low, high = (f"{value:g}" for value in (*item.numbers, 0.0, 0.0)[:2])
    texts = {
        "normal": f"normal, mean {low}, standard deviation {high}",
        "uniform": f"uniform from {low} to {high}",
        "integers": f"integers from {low} to {high}",
        "lengths": f"rows of {low} to {high} ones (cut at the size), then zeros",
    }
    counted = "counted along the last axis" + (" from the first kept element" if item.masked_by else "")
    return texts.get(item.kind) or (counted if item.kind == "positions" else f"all {item.kind}")


def _mask_text(mask: PlannedMask) -> str:
    kept = f"rows of {mask.low} to {mask.high or 'all'} kept (cut at the size)"
    sides = {
        "right": "padding on the right",
        "left": "padding on the left",
        "mixed": "padding left or right by chance",
    }
    text = f"{kept}, {sides[mask.padding]}" if mask.padding != "none" else "no padding"
    empty = f"; the last {mask.empty_rows} rows masked as a whole" if mask.empty_rows else ""
    return f"{text}{empty}; keep {mask.keep:g}, drop {mask.drop:g}"


def _image_text(image: PlannedImage) -> str:
    text = f"{image.layout} pixels from {image.low} to {image.high}"
    text += f", divided by {image.scale:g}" if image.scale != 1 else ""
    if image.mean == (0.0,) and image.std == (1.0,):
        return text
    mean, std = (", ".join(f"{value:g}" for value in numbers) for numbers in (image.mean, image.std))
    return f"{text}, mean {mean}, standard deviation {std}"


def sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{axis} {size}" for axis, size in sizes.items()) or "static"


def pattern_of(module: str) -> str:
    """``encoder.layer.3.output`` as ``encoder.layer.*.output``."""
    return re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", module)


def table(rows: Iterable[Mapping[str, str]], columns: Sequence[str]) -> str:
    """A plain-text table for terminals."""
    lines = [list(columns)] + [[row[column] for column in columns] for row in rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
                     for line in lines)  # fmt: skip
