"""The child's side of the worker protocol, for children that run in our own interpreter."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from engine.worker.trt_worker import Channel


def serve(answer: Callable[[Mapping[str, Any], Channel], Any]) -> None:
    """Read the request from stdin, and send what ``answer`` returns as the result."""
    channel = Channel()
    request = json.load(sys.stdin)
    channel.send("result", value=answer(request, channel))
