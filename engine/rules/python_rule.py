"""Rules whose replacement is a Python function: ``apply(graph, match)`` in the file beside the rule.

The function gets the matched part alone, as an onnx-graphsurgeon graph whose tensors carry the names of
the pattern, and edits it in place. What is left of it takes the place of the match.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx_ir as ir

from engine import customer
from engine.errors import RecipeError
from engine.rules import fragment
from engine.rules.constants import Array, dims_of, element_type, tensor_of
from engine.rules.match import Match
from engine.rules.refuse import RefusedError


@dataclass(frozen=True)
class Captured:
    """What a rule's function may read besides the graph; everything goes by the names of the pattern.

    ``attributes`` are the captured ones (None: not set); ``constants`` arrays; ``shapes`` sizes per axis
    (a number, a symbol or None); ``dtypes`` numpy type names; ``opset`` of the default domain.
    """

    attributes: Mapping[str, Any]
    constants: Mapping[str, Array]
    shapes: Mapping[str, tuple[int | str | None, ...] | None]
    dtypes: Mapping[str, str]
    opset: int


def replacement(match: Match, before: ir.Model) -> ir.Model:
    """The fragment that the rule's function makes of ``before``. Raises RefusedError where it refuses."""
    import onnx_graphsurgeon as gs
    from onnx_graphsurgeon.logger import G_LOGGER

    G_LOGGER.severity = G_LOGGER.CRITICAL  # it writes thousands of lines otherwise
    function = _function(match)
    if any(value.type is None for value in before.graph.outputs):
        fragment.infer(before)
        untyped = [value.name or "" for value in before.graph.outputs if value.type is None]
        if untyped:
            raise RefusedError(
                f"the element type of {', '.join(untyped)} is unknown; run shape inference first"
            )
    graph = gs.import_onnx(ir.to_proto(_in_memory(before)))
    captured = _captured(match, before)

    def edit() -> RefusedError | None:
        try:
            function(graph, captured)
        except RefusedError as refusal:
            return refusal
        return None

    refusal = customer.call(f"rule {match.rule.name}: apply at {match.root.name} raised", "rewrites", edit)
    if refusal is not None:
        raise refusal
    graph.cleanup().toposort()
    wanted = [output.name for output in before.graph.outputs]
    if [tensor.name for tensor in graph.outputs] != wanted:
        raise RecipeError(f"rule {match.rule.name}: apply changed the outputs; they must stay {wanted}")
    after: ir.Model = ir.from_proto(gs.export_onnx(graph))
    _check_inputs(match, before, after)
    return after


def _check_inputs(match: Match, before: ir.Model, after: ir.Model) -> None:
    known = {value.name for value in before.graph.inputs}
    added = [value.name for value in after.graph.inputs if value.name not in known]
    if added:
        raise RecipeError(
            f"rule {match.rule.name}: apply added inputs {added}; a rule can only use what it matched"
        )


def _in_memory(model: ir.Model) -> ir.Model:
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor):
            value.const_value = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=value.name)
    return model


def _captured(match: Match, before: ir.Model) -> Captured:
    values = {name: value for name, value in match.values.items() if value is not None}
    constants = {name: t.numpy() for name, value in values.items() if (t := tensor_of(value)) is not None}
    types = {name: str(d.numpy()) for name, value in values.items() if (d := element_type(value)) is not None}
    shapes = {name: dims_of(value) for name, value in values.items()}
    return Captured(match.attributes, constants, shapes, types, before.opset_imports[""])


def _function(match: Match) -> Callable[[Any, Captured], None]:
    path = match.rule.apply
    assert path is not None
    return _loaded(match.rule.name, path, path.stat().st_mtime_ns)


@functools.cache
def _loaded(name: str, path: Path, changed: int) -> Callable[[Any, Captured], None]:
    """The function of a rule's file as it was at ``changed``: it is asked at every match."""
    spec = importlib.util.spec_from_file_location(f"portwright_rule_{name.replace('-', '_')}", path)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    customer.call(f"rule {name}: importing {path.name} raised", "rewrites", spec.loader.exec_module, module)
    function: Callable[[Any, Captured], None] = module.apply  # there, by engine.checks.rules
    return function
