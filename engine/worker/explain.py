"""Say in plain sentences what TensorRT's errors mean: its own text is often the C++ condition that failed.

Takes the worker's result as it came (engine/worker/trt_worker.py) and puts readable errors into it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from engine.worker.trt_worker import PRODUCT

_API_ERROR = re.compile(r"Error Code \d+: (?P<kind>[\w ]+?) ?\((?P<text>.*)\)\s*$", re.DOTALL)
_SOURCE_PLACE = re.compile(r"\s*\bIn \S+ at \S+:\d+\.?")
_MYELIN_PLACE = re.compile(r"^\[(?P<place>\S+:\d+: \w+)\]\s*")
_MYELIN_CHECK = re.compile(r"MyelinCheckException: \S+:\d+: CHECK\(.*?\) failed\.\s*")
_QUOTED = re.compile(r'&& "(?P<text>.+)"\s*$')
_ASSERTION = re.compile(r"Assertion failed: .*?[^:]: (?P<text>.+)")
_SAYS_NOTHING = re.compile(
    r"(true|false|date type|mode than \d+ outputs|Unsupported node)?\.?", re.IGNORECASE
)
_ECHO = re.compile(r"addOptimizationProfile: Error Code 3.*profile->isValid\(\)")  # follows the true reason
_ONNX_LAYER = re.compile(r"\[ONNX Layer: (.*?)(?: \| .*?)?\]")


def explained(result: Mapping[str, Any]) -> dict[str, Any]:
    """The worker's build result with its errors readable.

    Each has code, text, raw, node, op, place and local_function_stack. ``raw`` is TensorRT's own text;
    ``node`` and ``op`` are ONNX names, None where TensorRT gives none.
    """
    product = product_name(result["module"], result.get("version"))
    if not result["errors"]:
        return dict(result)
    nodes = _nodes_of_layers((result["network"] or {}).get("layers", []))
    raw = [error for error in result["errors"] if not _ECHO.search(error["text"])]
    errors = [_parser_error(e, product) if "op" in e else _logged_error(e, nodes) for e in raw]
    return {**result, "errors": errors}


def product_name(module: str, version: str | None) -> str:
    """For example ``TensorRT-RTX 1.7.1``."""
    short = ".".join((version or "").split(".")[:3])
    return f"{PRODUCT.get(module, module)} {short}".strip()


def _parser_error(error: Mapping[str, Any], product: str) -> dict[str, Any]:
    stack = error["local_function_stack"]
    name = " in ".join([error["node"] or "without a name", *reversed(stack)])
    where = f"op {error['op']} (node {name})" if error["op"] else "the model"
    said, lacking = _own_words(error["text"]), error["op"] and not error["op_supported"]
    if "Plugin not found" in error["text"]:
        text = f"{product} has no importer and no plugin for {where}"
    elif _SAYS_NOTHING.fullmatch(said):
        text = f"{product} {'has no importer for' if lacking else 'refuses'} {where}"
    else:
        text = f"{product} refuses {where}: {said}"
    return {
        "code": error["code"],
        "text": text,
        "raw": error["text"],
        "node": error["node"] or None,
        "op": error["op"] or None,
        "place": error["place"],
        "local_function_stack": list(stack),
    }


def _own_words(raw: str) -> str:
    """The part of a parser's text that was written for people, if there is one."""
    lines = [line.strip() for line in raw.split("\n") if not line.startswith("Invalid Node - ")]
    text = " ".join(line for line in lines if line)
    for pattern in (_QUOTED, _ASSERTION, _API_ERROR):
        found = pattern.search(text)
        if found:
            return _SOURCE_PLACE.sub("", found["text"]).strip()
    return text


def _logged_error(error: Mapping[str, Any], nodes: Mapping[str, str]) -> dict[str, Any]:
    """An error that came as a log record; the node is the longest layer name that its text mentions."""
    api = _API_ERROR.search(error["text"])
    text = _MYELIN_CHECK.sub("", _SOURCE_PLACE.sub("", api["text"] if api else error["text"])).strip()
    place = _MYELIN_PLACE.match(text)
    named = [layer for layer in nodes if re.search(rf"(?<![\w.]){re.escape(layer)}(?![\w.])", text)]
    return {
        "code": api["kind"].upper().replace(" ", "_") if api else error["code"],
        "text": text[place.end() :] if place else text,
        "raw": error["text"],
        "node": nodes[max(named, key=len)] if named else None,
        "op": None,
        "place": place["place"] if place else None,
        "local_function_stack": [],
    }


def _nodes_of_layers(layers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    found = {}
    for layer in layers:
        node = _ONNX_LAYER.search(layer["metadata"] or "")
        if layer["name"]:
            found[layer["name"]] = node[1] if node else layer["name"]
    return found
