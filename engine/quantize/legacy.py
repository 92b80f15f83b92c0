"""Calibration caches of TensorRT 10 and older, read as ranges.

The file is text: a first line such as ``TRT-8601-EntropyCalibration2``, then ``TENSOR: HEX`` a line, where HEX is the
scale as a big-endian FP32 number and scale x 127 the largest magnitude. Source: the files that
``IInt8EntropyCalibrator2.write_calibration_cache`` is given.
"""

from __future__ import annotations

import math
import re
import struct
from pathlib import Path

from engine.errors import StepError

_WHERE = "precision.calibration.cache"
_LINE = re.compile(r"(?P<name>.+): (?P<scale>[0-9a-fA-F]{8})$")
_LARGEST = 127.0


def read(path: Path) -> dict[str, float]:
    """Largest magnitude by tensor name. Raises StepError (usage) with the line where the file is something else."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(path, 1, f"cannot be read: {error}") from None
    if not lines or not lines[0].startswith("TRT-"):
        raise _bad(path, 1, "a calibration cache begins with a line such as TRT-8601-EntropyCalibration2")
    found: dict[str, float] = {}
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        match = _LINE.match(line.strip())
        if match is None:
            raise _bad(path, number, "a tensor's name, a colon and eight hexadecimal digits are expected")
        scale = struct.unpack(">f", bytes.fromhex(match["scale"]))[0]
        if not math.isfinite(scale) or scale < 0:
            raise _bad(path, number, f"the scale of {match['name']} is {scale}")
        if match["name"] in found:
            raise _bad(path, number, f"{match['name']} stands twice")
        found[match["name"]] = scale * _LARGEST
    return found


def _bad(path: Path, line: int, what: str) -> StepError:
    return StepError(f"{path.name}:{line}: {what}", where=_WHERE, usage=True)
