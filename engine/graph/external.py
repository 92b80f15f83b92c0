"""External weight files: every tensor must lie inside its file, before any tool maps it."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx.external_data_helper import ExternalDataInfo, _get_all_tensors, uses_external_data

from engine.errors import StepError


def check(path: Path) -> int:
    """Number of external tensors of the graph at ``path``. Raises StepError at the first that is not whole."""
    count = 0
    for tensor in _get_all_tensors(onnx.load(path, load_external_data=False)):
        if not uses_external_data(tensor):
            continue
        count += 1
        info = ExternalDataInfo(tensor)
        file = path.parent / info.location
        start = int(info.offset or 0)
        end = start + int(info.length or 0)
        size = file.stat().st_size if file.is_file() else -1
        if size < end:
            what = f"{size:,} bytes" if size >= 0 else "not there"
            raise StepError(
                f"external data file {file.name}: {what}, tensor '{tensor.name}' needs bytes [{start:,}, {end:,})",
                klass="tooling",
                cause="a partial copy, or the graph was moved without its weights",
                fix=f"put the whole file beside {path.name}",
                evidence=str(file),
            )
    return count
