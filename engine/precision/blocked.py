"""Large weights of a shadow widened block by block, so that the wide copy never leaves the processor's cache.

A shadow casts every narrow weight to FP32 where it is used. Whole, that writes and reads twice the bytes of the file
through memory, which is most of what a rehearsal costs beside a plain run. Here a product with a large weight is a sum
of products with blocks of its rows. The sum is in FP32, as within the one product; its last bits differ as between two
CPU kernels.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import onnx_ir as ir

from engine.graph import files
from engine.graph.fresh import Names
from engine.precision.shadow import ROUND, build_shadow

BLOCK = 1 << 20  # values of a block: 4 MiB in FP32, half as many are no faster
_LEAST = 2 * BLOCK  # smaller weights stay whole
_BYTES = 2  # of a value in FP16 or BF16


def write(lowered: ir.Model, path: Path, unrounded: Collection[str] = ()) -> None:
    """Write the shadow of ``lowered`` (see :func:`build_shadow`) to ``path``, which must lie beside its weights."""
    files.save(split(build_shadow(lowered, unrounded)), path)


def split(shadow: ir.Model) -> ir.Model:
    """Split the products with large weights of ``shadow``, in place; values keep their names."""
    names = Names(shadow)
    for node in list(shadow.graph):
        weight = _weight(node)
        if weight is not None:
            _split(shadow.graph, node, weight, names)
    return shadow


def _weight(node: ir.Node) -> ir.ExternalTensor | None:
    """The stored matrix behind the second operand, where that is widened for this product alone."""
    if node.op_type != "MatMul" or node.domain:
        return None
    value = node.inputs[1]
    cast = value.producer() if value is not None else None
    if value is None or cast is None or cast.metadata_props.get(ROUND) != "weight" or len(value.uses()) != 1:
        return None
    stored = cast.inputs[0]
    if stored is None or len(stored.uses()) != 1 or value.is_graph_output():
        return None
    tensor = stored.const_value
    if not isinstance(tensor, ir.ExternalTensor) or len(tensor.shape) != 2 or tensor.size < _LEAST:
        return None
    return tensor if tensor.offset is not None and tensor.dtype.itemsize == _BYTES else None


def _split(graph: ir.Graph, node: ir.Node, tensor: ir.ExternalTensor, names: Names) -> None:
    rows, width = tensor.shape.numpy()
    step = max(1, BLOCK // width)
    sizes = [min(step, rows - start) for start in range(0, rows, step)]
    if len(sizes) < 2:
        return
    left, cast, result = node.inputs[0], node.inputs[1].producer(), node.outputs[0]  # type: ignore[union-attr]
    assert left is not None
    assert cast is not None
    stored = cast.inputs[0]
    assert stored is not None
    lengths = _constant(graph, names.fresh(f"{node.name}.rows"), ir.tensor(sizes, dtype=ir.DataType.INT64))
    parts = ir.Node("", "Split", [left, lengths], {"axis": ir.AttrInt64("axis", -1)}, num_outputs=len(sizes),
                    name=names.fresh(f"{node.name}.split"))  # fmt: skip
    made: list[ir.Node] = [parts]
    total: ir.Value | None = None
    start = 0
    for part, size in zip(parts.outputs, sizes, strict=True):
        part.name, part.type = names.fresh(f"{node.name}.part"), ir.TensorType(ir.DataType.FLOAT)
        name = names.fresh(f"{stored.name}.rows")
        offset = (tensor.offset or 0) + start * width * _BYTES
        block = ir.ExternalTensor(
            tensor.location, offset, size * width * _BYTES, tensor.dtype,
            shape=ir.Shape((size, width)), name=name, base_dir=tensor.base_dir,
        )  # fmt: skip
        narrow = _constant(graph, name, block)
        wide = ir.Node("", "Cast", [narrow], {"to": ir.AttrInt64("to", ir.DataType.FLOAT.value)},
                       name=names.fresh(f"{name}.wide"), metadata_props=dict(cast.metadata_props))  # fmt: skip
        product = ir.Node("", "MatMul", [part, wide.outputs[0]], name=names.fresh(f"{node.name}.product"))
        made += [wide, product]
        if total is not None:
            made.append(ir.Node("", "Add", [total, product.outputs[0]], name=names.fresh(f"{node.name}.sum")))
        total = made[-1].outputs[0]
        start += size
        for maker in made[-3:]:
            for value in maker.outputs:
                value.name = value.name or names.fresh(f"{node.name}.block")
                value.type = ir.TensorType(ir.DataType.FLOAT)
    assert total is not None
    graph.insert_before(node, made)
    kept = result.name
    total.shape = result.shape
    result.replace_all_uses_with(total, replace_graph_outputs=True)
    graph.remove([node, cast], safe=True)
    graph.initializers.pop(stored.name or "")
    total.name = kept


def _constant(graph: ir.Graph, name: str, tensor: ir.TensorProtocol) -> ir.Value:
    tensor.name = name
    shape = ir.Shape(tensor.shape.numpy())
    value = ir.Value(name=name, shape=shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(value)
    return value
