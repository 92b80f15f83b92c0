"""ONNX Runtime as a judge that cannot lie: named providers only, graph optimisation off by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import StepError
from engine.samples import Array

if TYPE_CHECKING:
    import onnxruntime

CPU = ("CPUExecutionProvider",)
_WEIGHTS_IN = "session.model_external_initializers_file_folder_path"


def session(
    path: Path,
    providers: Sequence[str] = CPU,
    optimise: bool = False,
    prepack: bool = True,
    as_written: bool = False,
) -> onnxruntime.InferenceSession:
    """Open a graph on exactly ``providers``.

    ONNX Runtime drops a provider that it cannot start, with at most a warning; here that is a
    StepError. ``optimise=False`` keeps it from fusing or reordering what is to be judged, and products of 8-bit
    integers from being cut. ``as_written`` runs the nodes in the order of the file, so that a tensor lives no longer
    than the file lets it; otherwise what leads to no other node may come last.
    """
    import onnxruntime as ort

    from engine.graph import uncut

    options = ort.SessionOptions()
    options.log_severity_level = 3
    # In the file's order. The default runs what depends on weights alone first: it widened all of them before any use.
    options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimise else level.ORT_DISABLE_ALL
    if not prepack:
        options.add_session_config_entry("session.disable_prepacking", "1")
    if as_written:
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    missing = [name for name in providers if name not in ort.get_available_providers()]
    if missing:
        raise _fell_back(providers, ort.get_available_providers())
    graph: bytes | str = (None if optimise else uncut.shifted(path)) or str(path)
    if isinstance(graph, bytes):
        options.add_session_config_entry(_WEIGHTS_IN, str(path.parent))
    try:
        opened = ort.InferenceSession(graph, options, providers=list(providers))
    except Exception as error:  # process edge: the runtime's own exception types are not public
        raise StepError(
            f"ONNX Runtime cannot load {path.name}: {_first_line(error)}",
            klass="op",
            evidence=str(error)[:2000],
        ) from error
    if list(opened.get_providers())[: len(providers)] != list(providers):
        raise _fell_back(providers, opened.get_providers())
    return opened


def _fell_back(asked: Sequence[str], got: Sequence[str]) -> StepError:
    return StepError(
        f"asked ONNX Runtime for {', '.join(asked)}, got {', '.join(got)}",
        klass="tooling",
        cause="the provider is not in this build, or its libraries or driver are missing",
        fix="install onnxruntime-gpu with matching CUDA, or do not ask for this provider",
    )


def run(opened: onnxruntime.InferenceSession, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Run a session on the inputs it has (others in ``feeds`` are left out); outputs by name.

    Constants that are inputs as well take another value when ``feeds`` has one.
    """
    takes = [*opened.get_inputs(), *opened.get_overridable_initializers()]
    wanted = {item.name: np.asarray(feeds[item.name]) for item in takes if item.name in feeds}
    names = [item.name for item in opened.get_outputs()]
    try:
        values = opened.run(names, wanted)
    except Exception as error:  # process edge: see session
        raise StepError(
            f"ONNX Runtime failed while running: {_first_line(error)}",
            klass="shape",
            evidence=str(error)[:2000],
        ) from error
    return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:400] if lines else type(error).__name__
