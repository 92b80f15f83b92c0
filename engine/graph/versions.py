"""Versions of a graph file: IR, opsets, and whether each node may be written in the opset that it has."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import onnx
from onnx import defs

from engine.errors import quoted
from engine.graph.faults import Fault, all_nodes, domain_name, domain_of, function_nodes, who
from engine.values import Issue

_OLDEST_IR = 3  # opset imports came with it
# Words that changed with an opset: op, attribute, the schema's first opset. onnx checks none of them.
_WORDS = {
    ("GridSample", "mode", 16): ("bilinear", "nearest", "bicubic"),
    ("GridSample", "mode", 20): ("linear", "nearest", "cubic"),
    ("GridSample", "mode", 22): ("linear", "nearest", "cubic"),
}
_RUNTIME = "com.microsoft"  # ONNX Runtime's own operators; onnx has no schema for them


def faults(model: onnx.ModelProto) -> Iterator[Fault]:
    """IR version and opset imports first, then every node of the graph and of the local functions."""
    if not _OLDEST_IR <= model.ir_version <= onnx.IR_VERSION:
        yield Fault(
            f"IR version {model.ir_version}; versions {_OLDEST_IR} to {onnx.IR_VERSION} are known"
            f" (onnx {onnx.__version__})",
            "written by a newer tool, or the file is damaged",
            "write the file with an older IR version",
        )
    imports = dict[str, int]()
    for item in model.opset_import:
        domain = domain_of(item.domain)
        if imports.get(domain, item.version) != item.version:
            yield Fault(
                f"two opsets of the domain {domain_name(domain)}: {imports[domain]} and {item.version}",
                fix="keep one of them",
            )
        imports[domain] = item.version
    if not imports:
        yield Fault("the file names no opset", "opset_import is empty; TensorRT would guess one",
                    "write the file again with its opset")  # fmt: skip
        return
    yield from _unknown_versions(imports)
    functions = {(domain_of(item.domain), item.name) for item in model.functions}
    for node in all_nodes(model.graph):
        yield from _node(node, imports, functions)
    for function in model.functions:
        yield from _function(function, imports, functions)


def _unknown_versions(imports: Mapping[str, int]) -> Iterator[Fault]:
    newest = defs.onnx_opset_version()
    version = imports.get("", 1)
    if not 1 <= version <= newest:
        yield Fault(
            f"opset {version}; opsets 1 to {newest} are known (onnx {onnx.__version__})",
            "written by a newer tool, or the file is damaged; TensorRT would take it without a word",
            f"write the file with opset {newest} or lower",
        )


def _function(
    function: onnx.FunctionProto, model: Mapping[str, int], functions: set[tuple[str, str]]
) -> Iterator[Fault]:
    own = {domain_of(item.domain): item.version for item in function.opset_import}
    name = f"function {quoted(f'{function.domain}.{function.name}')}"
    for node in function_nodes(function):
        domain = domain_of(node.domain)
        if (domain, node.op_type) in functions:
            continue
        here, there = own.get(domain), model.get(domain)
        if here is not None and there is not None and here != there and _differs(node, domain, here, there):
            yield Fault(
                f"{name} has opset {here} of domain {domain_name(domain)}, the file {there},"
                f" and {node.op_type} is not the same in both",
                "inlined, the node would mean something else",
                "write function and file with one opset",
            )
        for fault in _node(node, own, functions):
            yield Fault(f"{name}: {fault.symptom}", fault.cause, fault.fix)


def _differs(node: onnx.NodeProto, domain: str, here: int, there: int) -> bool:
    first, second = (_schema(node.op_type, version, domain) for version in (here, there))
    return (first and first.since_version) != (second and second.since_version)


def _node(
    node: onnx.NodeProto, imports: Mapping[str, int], functions: set[tuple[str, str]]
) -> Iterator[Fault]:
    domain = domain_of(node.domain)
    if (domain, node.op_type) in functions:
        return
    version = imports.get(domain)
    if version is None:
        yield Fault(f"{who(node)}: the file imports no opset of the domain {domain_name(domain)}",
                    fix="add it to opset_import")  # fmt: skip
        return
    if domain == _RUNTIME:
        return
    if domain not in _domains():
        yield Fault(
            f"{who(node)}: nobody knows the domain {domain_name(domain)}",
            "neither onnx nor a function in the file defines it",
            "export the model without custom operators, or with their functions in the file",
            "op",
        )
        return
    history = _history(node.op_type, domain)
    schema = _schema(node.op_type, version, domain)
    if not history:
        yield Fault(f"{who(node)}: {domain_name(domain)} has no operator {node.op_type}",
                    fix="replace the node, or put a function of that name into the file", klass="op")  # fmt: skip
    elif schema is None:
        yield Fault(
            f"{who(node)}: {node.op_type} came with opset {history[0].since_version}; the file has {version}",
            "TensorRT would take it without a word",
            f"write the file with opset {history[0].since_version}, if all other nodes allow it",
        )
    elif schema.deprecated:
        yield Fault(
            f"{who(node)}: {node.op_type} is gone since opset {schema.since_version}; the file has {version}",
            fix=f"write the file with opset {schema.since_version - 1} or lower, or replace the node",
        )
    else:
        yield from _attributes(node, schema, history, version)
        yield from _arity(node, schema, history, version)


def _attributes(
    node: onnx.NodeProto, schema: defs.OpSchema, history: tuple[defs.OpSchema, ...], version: int
) -> Iterator[Fault]:
    for attribute in node.attribute:
        if attribute.name in schema.attributes:
            words = _WORDS.get((node.op_type, attribute.name, schema.since_version), ())
            text = attribute.s.decode("utf-8", "replace")
            if words and text not in words:
                yield Fault(f"{who(node)}: {attribute.name} {quoted(text)} is none of {', '.join(words)}"
                            f" (opset {schema.since_version})", "importers take an unknown word for a default",
                            "write the word of the file's opset")  # fmt: skip
            continue
        there = [item.since_version for item in history if attribute.name in item.attributes]
        later = [number for number in there if number > version]
        about = f"{who(node)}: attribute {quoted(attribute.name)}"
        if later:
            yield Fault(
                f"{about} came with opset {later[0]}; the file has {version}",
                "a reader of the file's opset may ignore it in silence",
                f"write the file with opset {later[0]}, or without the attribute",
            )
        elif there:
            gone = next(item.since_version for item in history if item.since_version > there[-1])
            yield Fault(
                f"{about} is gone since opset {gone}; the file has {version}",
                "a reader of the file's opset may ignore it in silence",
                "convert the node to the file's opset",
            )
        else:
            yield Fault(f"{about} is none of {node.op_type}'s", fix="take it out",
                        cause="a misspelt attribute is ignored in silence")  # fmt: skip


def _arity(
    node: onnx.NodeProto, schema: defs.OpSchema, history: tuple[defs.OpSchema, ...], version: int
) -> Iterator[Fault]:
    for what, count, least, most, limit in (
        ("inputs", len(node.input), schema.min_input, schema.max_input, "max_input"),
        ("outputs", len(node.output), schema.min_output, schema.max_output, "max_output"),
    ):
        if count < least:
            yield Fault(f"{who(node)} has {count} {what}, {node.op_type} of opset {version} at least {least}",
                        fix="export the model again")  # fmt: skip
        if count > most:
            later = [item.since_version for item in history
                     if item.since_version > version and getattr(item, limit) >= count]  # fmt: skip
            which = "input" if what == "inputs" else "output"
            yield Fault(
                f"{who(node)}: {which} {count} came with opset {later[0]}; the file has {version}"
                if later
                else f"{who(node)} has {count} {what}, {node.op_type} of opset {version} at most {most}",
                fix=f"write the file with opset {later[0]}" if later else "export the model again",
            )


def foreign(model: onnx.ModelProto, step: str) -> list[Issue]:
    """Operators that only ONNX Runtime has."""
    names = sorted({node.op_type for node in all_nodes(model.graph) if node.domain == _RUNTIME})
    if not names:
        return []
    return [
        Issue(
            step, "op", f"operators of ONNX Runtime's own: {', '.join(names)}",
            cause="onnx has no schema for them, so their types and shapes are not proven; TensorRT may not know them",
            fix="export without ONNX Runtime's optimiser, or replace them by rules", disposition="open",
        )
    ]  # fmt: skip


@functools.cache
def _all() -> dict[tuple[str, str], tuple[defs.OpSchema, ...]]:
    found: dict[tuple[str, str], list[defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), []).append(schema)
    return {key: tuple(sorted(items, key=lambda item: item.since_version)) for key, items in found.items()}


@functools.cache
def _domains() -> frozenset[str]:
    return frozenset(domain for domain, _ in _all())


def _history(op: str, domain: str) -> tuple[defs.OpSchema, ...]:
    return _all().get((domain, op), ())


def _schema(op: str, version: int, domain: str) -> defs.OpSchema | None:
    fitting = [item for item in _history(op, domain) if item.since_version <= version]
    return fitting[-1] if fitting else None
