"""Which of many ONNX files does this TensorRT take? One process, one logger, a fresh network for each file.

Run as ``python -I trt_try.py``, like trt_worker.py beside it, from which it takes everything but the loop. The
request names ``module``, ``target``, ``seconds`` for one file, and ``files``, each with ``onnx``, ``build`` and
``profiles``. Each file is answered by a ``tried`` message as soon as it is done, so that a crash costs one file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.worker import trt_worker as worker
else:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # -I leaves it out
    import trt_worker as worker

Json = Any


def attempt(session: worker.Session, request: Mapping[str, Json], file: Mapping[str, Json]) -> Json:
    """How far one file gets: ``stage`` is the last one entered, ``done`` when there would be an engine."""
    session.log.records.clear()
    session.log.counts.clear()
    stage, errors, network = "parse", [], None
    try:
        session.renew()
        worker.parse(session, file["onnx"])
        if file["build"]:
            stage = "profile"
            config = worker.configure(
                session, {"target": request.get("target"), "profiles": file["profiles"]}
            )
            stage = "build"
            worker.serialized(session, config)
            stage = "done"
    except worker.Refused as refused:
        errors = refused.errors
        if stage == "profile" and errors[0]["code"] != "PROFILE":
            stage = "build"
        if stage == "build":
            network = {"layers": layers(session)}  # their metadata names the nodes that errors speak of
    return {"stage": stage, "ok": not errors, "errors": errors, "network": network}


def layers(session: worker.Session) -> list[Json]:
    found = (session.network.get_layer(index) for index in range(session.network.num_layers))
    return [{"name": layer.name, "metadata": layer.metadata} for layer in found]


def main() -> None:
    channel = worker.Channel()
    request = json.load(sys.stdin)
    value: Json = {"module": request["module"], "errors": [], "version": None}
    try:
        session = worker.Session(request, channel)
        value["version"] = session.trt.__version__
        for file in request["files"]:
            signal.alarm(
                request.get("seconds") or 0
            )  # its default end is ours: nothing in C++ can hold it up
            channel.send("tried", file=file["onnx"], **attempt(session, request, file))
    except worker.Refused as exc:
        value["errors"] = exc.errors
    signal.alarm(0)
    channel.send("result", value=value)


if __name__ == "__main__":
    main()
