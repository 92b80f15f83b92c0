"""How figures, sizes and names are written, in reports and on terminals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.plan import PlannedInput


def cell(text: Any) -> str:
    """Text that cannot break a Markdown table."""
    return str(text).replace("|", "\\|").replace("\n", " ").strip()


def number(value: float | None) -> str:
    """Two significant digits for errors, enough for figures close to one, whole numbers as they are."""
    if value is None:
        return "-"
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    if 0.9 < value < 1:
        return f"{value:.6f}" if value < 0.999999 else f"1 - {1 - value:.1e}"
    return f"{value:.2g}"


def values_text(item: PlannedInput) -> str:
    """How the sample values were made, as a reader of the report must know it."""
    low, high = (f"{value:g}" for value in (*item.numbers, 0.0, 0.0)[:2])
    texts = {
        "normal": f"normal, mean {low}, standard deviation {high}",
        "uniform": f"uniform from {low} to {high}",
        "integers": f"integers from {low} to {high}",
        "lengths": f"rows of {low} to {high} ones (cut at the size), then zeros",
    }
    return texts.get(item.kind, f"all {item.kind}")


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
