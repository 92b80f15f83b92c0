"""ONNX Runtime on CPU with everything off that would change what a graph computes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import StepError

Arrays = Mapping[str, np.ndarray[Any, Any]]


def open_session(path: Path, threads: int = 0) -> Any:
    """A session without graph optimisation and without prepacked copies of the weights.

    ``threads`` 0 lets the runtime choose. Raises StepError with the runtime's words if it cannot load.
    """
    import onnxruntime as ort
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except (state.Fail, state.InvalidGraph, state.InvalidArgument, state.NotImplemented) as error:
        raise StepError(f"ONNX Runtime cannot load {path.name}: {error}", klass="op") from error


def run(path: Path, feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    """Outputs by name; feeds are converted to the types that the graph declares for floats."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    session = open_session(path)
    names = [output.name for output in session.get_outputs()]
    try:
        return dict(zip(names, session.run(names, _typed(session, feeds)), strict=True))
    except (state.RuntimeException, state.Fail, state.InvalidArgument) as error:
        raise StepError(f"ONNX Runtime failed on {path.name}: {error}", klass="op") from error


def _typed(session: Any, feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    wanted = {item.name: item.type for item in session.get_inputs()}
    missing = sorted(wanted.keys() - feeds.keys())
    if missing:
        raise StepError(f"no value for graph input {', '.join(missing)}", klass="tooling")
    return {
        name: feeds[name].astype(kinds[kind], copy=False) if kind in kinds else feeds[name]
        for name, kind in wanted.items()
    }
