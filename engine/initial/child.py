"""The child process that imports and runs the customer's model. Protocol: see :mod:`engine.process`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from engine.errors import Failure, StepError
from engine.initial.asked import Asked
from engine.plain import from_plain, to_plain
from engine.worker import child
from engine.worker.trt_worker import Channel


def serve(request: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Explore the model asked for; ``{"findings": ...}`` or ``{"failure": ...}``."""
    warnings.simplefilter("ignore")
    try:
        from engine.initial import explore, subject

        asked: Asked = from_plain(Asked, request["asked"])
        channel.send("progress", text="loading the model")
        found = explore.explore(subject.load(asked), asked, lambda text: channel.send("progress", text=text))
        return {"findings": to_plain(found)}
    except StepError as error:
        return {"failure": error.failure.to_plain()}
    except MemoryError:
        return {"failure": Failure("the model ran out of memory").to_plain()}


if __name__ == "__main__":
    child.serve(serve)
