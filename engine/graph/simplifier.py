"""The simplifier in a process of its own: it folds in native code, which may crash, hang or eat the memory.

Run as ``python -m engine.graph.simplifier``; engine/process.py has the protocol. The answer is why it failed, or "".
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.process import Limits, run_child
from engine.worker import child
from engine.worker.trt_worker import Channel

SECONDS = 600.0  # MiniLM-L6 takes 3
_UNFOLD_MOST = "1KB"  # larger results of Tile, Expand and ConstantOfShape stay computed
_INSIDE_MOST = 1 << 30  # bytes; larger graphs get their weights into a file, protobuf ends at 2 GiB


def simplified(graph: Path, draft: Path, log: Path) -> str:
    """Write the simplified ``graph`` to ``draft``, large weights beside it. Returns why there is none, or ""."""
    command = [sys.executable, "-P", "-m", "engine.graph.simplifier"]
    request = {"graph": str(graph), "draft": str(draft)}
    outcome = run_child(command, request, log=log, limits=Limits(seconds=SECONDS))
    if outcome.kind == "ok":
        return f"onnxsim failed: {outcome.result}" if outcome.result else ""
    return f"the process running onnxsim {outcome.describe()}"


def _answer(request: Mapping[str, Any], channel: Channel) -> str:
    import onnx
    import onnxsim

    draft = Path(request["draft"])
    try:
        # onnxsim's own "check" flag is no proof (it is true for differing graphs): the step compares.
        model, _ = onnxsim.simplify(request["graph"], check_n=0, tensor_size_threshold=_UNFOLD_MOST)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        return (str(error).strip().splitlines() or [type(error).__name__])[0]
    large = model.ByteSize() > _INSIDE_MOST
    weights = draft.with_suffix(".weights").name
    onnx.save(model, draft, save_as_external_data=large, location=weights if large else None)
    return ""


if __name__ == "__main__":
    child.serve(_answer)
