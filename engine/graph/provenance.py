"""Where a node came from: module path, module class, source line and rewriting rule, kept on the node.

The exporter's own metadata is long and names its wrappers; it is condensed once, after export, into
these keys. They must survive every later step.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping

import onnx_ir as ir

MODULE = "portwright.module"  # dotted PyTorch module path, "" for the root
CLASS = "portwright.class"  # class of that module, dotted
SOURCE = "portwright.source"  # file:line of the model's code that produced the node
RULE = "portwright.rule"  # name of the rewrite rule that made the node
ORIGIN = (MODULE, CLASS, SOURCE)
KEYS = (*ORIGIN, RULE)

_EXPORTER_KEYS = ("namespace", "pkg.torch.")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
WRAPPER = "model"


def condense_dynamo(model: ir.Model, wrapper: str = WRAPPER) -> None:
    """Replace the dynamo exporter's metadata by ours and drop the wrapper's name from paths and weights."""
    for node in model.graph.all_nodes():
        raw = dict(node.metadata_props)
        scopes = _strings(raw.get("pkg.torch.onnx.name_scopes", ""))
        classes = _strings(raw.get("pkg.torch.onnx.class_hierarchy", ""))
        for key in raw:
            if key.startswith(_EXPORTER_KEYS):
                del node.metadata_props[key]
        if not scopes:
            continue
        # The last scope is the op itself; the one before is the innermost module.
        modules = [scope for scope in scopes[:-1] if not scope.startswith("_empty_nn_module_stack")]
        node.metadata_props[MODULE] = _unwrapped(modules[-1], wrapper) if modules else ""
        if len(classes) >= 2 and modules:
            node.metadata_props[CLASS] = classes[-2]
        frames = _FRAME.findall(raw.get("pkg.torch.onnx.stack_trace", ""))
        source = _model_frame(frames)
        if source:
            node.metadata_props[SOURCE] = source
    _unwrap_weights(model, wrapper)
    model.metadata_props.clear()
    model.graph.metadata_props.clear()


def condense_torchscript(model: ir.Model, wrapper: str = WRAPPER) -> None:
    """Module paths out of the node names that the torchscript exporter writes (``/encoder/layer.0/MatMul``)."""
    for node in model.graph.all_nodes():
        parts = (node.name or "").strip("/").split("/")
        if (node.name or "").startswith("/") and len(parts) > 1:
            node.metadata_props[MODULE] = _unwrapped(_joined(parts[:-1]), wrapper)
    _unwrap_weights(model, wrapper)


def _unwrap_weights(model: ir.Model, wrapper: str) -> None:
    for value in list(model.graph.initializers.values()):
        if wrapper and value.name and value.name.startswith(f"{wrapper}."):
            name = value.name.removeprefix(f"{wrapper}.")
            if name not in model.graph.initializers:
                value.name = name


def _joined(parts: Iterable[str]) -> str:
    """``layer`` followed by ``layer.0`` names the same module list once, not twice."""
    path: list[str] = []
    for part in parts:
        if path and part.startswith(f"{path[-1].split('.')[-1]}."):
            path[-1] = ".".join([*path[-1].split(".")[:-1], part])
        else:
            path.append(part)
    return ".".join(path)


def _strings(text: str) -> list[str]:
    if not text:
        return []
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return []
    return [str(item) for item in found]


def _unwrapped(path: str, wrapper: str) -> str:
    return "" if path == wrapper else path.removeprefix(f"{wrapper}.") if wrapper else path


def _model_frame(frames: list[tuple[str, str]]) -> str:
    """The innermost frame outside torch itself, as ``folder/file.py:line``."""
    for file, line in reversed(frames):
        parts = file.replace("\\", "/").split("/")
        if "torch" not in parts:
            return "/".join(parts[-2:]) + f":{line}"
    return ""


def modules(model: ir.Model) -> dict[str, int]:
    """Number of nodes of each module path."""
    counts: dict[str, int] = {}
    for node in model.graph.all_nodes():
        path = node.metadata_props.get(MODULE)
        if path is not None:
            counts[path] = counts.get(path, 0) + 1
    return counts


def snapshot(model: ir.Model) -> dict[str, dict[str, str]]:
    """Provenance by output value name and by ``node:NAME``, to be put back by :func:`restore`."""
    found: dict[str, dict[str, str]] = {}
    for node in model.graph.all_nodes():
        ours = {key: node.metadata_props[key] for key in KEYS if key in node.metadata_props}
        for output in node.outputs:
            if output.name:
                found[output.name] = ours
        if node.name:
            found.setdefault(f"node:{node.name}", ours)
    return found


def restore(model: ir.Model, before: Mapping[str, Mapping[str, str]]) -> int:
    """Put provenance back after a tool that drops it; return how many nodes still have none.

    By output name, then node name; a new node between nodes of one module takes that module.
    """
    lost = []
    for node in model.graph.all_nodes():
        names = [output.name for output in node.outputs if output.name] + [f"node:{node.name}"]
        ours = next((before[name] for name in names if name in before), None)
        if ours is None:
            lost.append(node)
        else:
            node.metadata_props.update(ours)
    still = 0
    for node in lost:
        around = _neighbours(node)
        if len(around) == 1:
            node.metadata_props[MODULE] = around.pop()
        else:
            still += 1
    return still


def _neighbours(node: ir.Node) -> set[str]:
    near = [user for output in node.outputs for user in output.consumers()]
    producers = [value.producer() for value in node.inputs if value is not None]
    found = {other.metadata_props.get(MODULE) for other in near if other is not None}
    if len(found) != 1:
        found = {other.metadata_props.get(MODULE) for other in producers if other is not None}
    return {path for path in found if path is not None}
