"""Read and write ONNX files with weights by reference.

All graphs of a run lie in one folder, so that several small graph files can point at one weight
file (ONNX forbids ``..`` in an external location). A weight file is written once, whole, under a
temporary name, and never appended to.
"""

from __future__ import annotations

import os
from pathlib import Path

import onnx_ir as ir

from engine.graph import defaults

INLINE_LIMIT = 1024  # bytes; smaller tensors stay inside the graph file


def load(path: Path) -> ir.Model:
    """Load a graph; external weights stay on disk and are memory-mapped when touched."""
    model = ir.load(path)
    defaults.write_out(model)
    return model


def save(model: ir.Model, path: Path, weights: str | None = None, extra: str | None = None) -> None:
    """Write ``model`` to ``path`` so that it appears whole or not at all.

    With ``weights`` (a file name beside ``path``) every tensor over INLINE_LIMIT goes to that new file.
    Without it, references to existing weight files are kept; with ``extra``, tensors over INLINE_LIMIT
    that are in no file yet go to the new file of that name.
    """
    draft = path.with_name(f".{path.name}.part")
    if weights is None:
        if extra is not None:
            _put_out(model, path.parent, extra)
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


def _put_out(model: ir.Model, folder: Path, name: str) -> None:
    """Move tensors that are only in memory to the new file ``name``."""
    values = [
        value
        for value in all_initializers(model)
        if value.const_value is not None
        and not isinstance(value.const_value, ir.ExternalTensor)
        and value.const_value.nbytes > INLINE_LIMIT
    ]
    if not values:
        return
    part = f".{name}.part"
    (folder / part).unlink(missing_ok=True)
    tensors = [value.const_value for value in values if value.const_value is not None]
    stored = ir.external_data.convert_tensors_to_external(tensors, folder, part)
    os.replace(folder / part, folder / name)
    for value, tensor in zip(values, stored, strict=True):
        value.const_value = _moved(tensor, name)


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
