"""Read and write ONNX files with weights by reference.

All graphs of a run lie in one folder, so that several small graph files can point at one weight
file (ONNX forbids ``..`` in an external location). A weight file is written once, whole, under a
temporary name, and never appended to.
"""

from __future__ import annotations

import os
from pathlib import Path

import onnx_ir as ir

INLINE_LIMIT = 1024  # bytes; smaller tensors stay inside the graph file


def load(path: Path) -> ir.Model:
    """Load a graph; external weights stay on disk and are memory-mapped when touched."""
    return ir.load(path)


def save(model: ir.Model, path: Path, weights: str | None = None) -> None:
    """Write ``model`` to ``path`` so that it appears whole or not at all.

    With ``weights`` (a file name beside ``path``) every tensor over INLINE_LIMIT that is in memory
    or in another file goes to that new file. Without it, references to existing weight files are kept.
    """
    draft = path.with_name(f".{path.name}.part")
    if weights is None:
        ir.save(model, draft)
        os.replace(draft, path)
        return
    part = f".{weights}.part"
    (path.parent / part).unlink(missing_ok=True)
    ir.save(model, draft, external_data=part, size_threshold_bytes=INLINE_LIMIT)
    written = ir.load(draft)
    for value in all_initializers(written):
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor) and tensor.location == part:
            value.const_value = _moved(tensor, weights)
    draft.unlink()
    if (path.parent / part).exists():
        os.replace(path.parent / part, path.parent / weights)
    save(written, path)


def _moved(tensor: ir.ExternalTensor, location: str) -> ir.ExternalTensor:
    return ir.ExternalTensor(
        location,
        tensor.offset,
        tensor.length,
        tensor.dtype,
        shape=tensor.shape,
        name=tensor.name or "",
        base_dir=tensor.base_dir,
    )


def all_initializers(model: ir.Model) -> list[ir.Value]:
    """Every initializer of the main graph and of all subgraphs."""
    return [value for graph in model.graphs() for value in graph.initializers.values()]
