"""Col2Im as a transposed convolution whose kernels put each element of a block in its place."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from engine.rules.python_rule import Captured
from engine.rules.refuse import RefusedError
from engine.rules.surgeon import Part


def apply(graph: gs.Graph, match: Captured) -> None:
    image, block = match.constants.get("image_shape"), match.constants.get("block_shape")
    if image is None or block is None:
        raise RefusedError("image_shape or block_shape is not a constant")
    image, block = [int(size) for size in image], [int(size) for size in block]
    count, given = len(image), match.attributes
    if count > 3:
        raise RefusedError(f"the image has {count} axes; TensorRT convolves over up to three")
    rows = match.shapes["input"][1]
    if not isinstance(rows, int):
        raise RefusedError(f"axis 1 of input is dynamic ({rows}), and with it the number of channels")
    strides, dilations = given["strides"] or [1] * count, given["dilations"] or [1] * count
    pads = given["pads"] or [0] * 2 * count
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, block, strict=True)]
    room = [image[i] + pads[i] + pads[i + count] - reach[i] for i in range(count)]
    windows = [free // stride + 1 for free, stride in zip(room, strides, strict=True)]
    channels = rows // int(np.prod(block))
    add = Part(graph)
    columns = add("Reshape", graph.nodes[0].inputs[0], np.array([-1, rows, *windows]))
    result = add(
        "ConvTranspose",
        columns,
        _kernels(block, dilations, reach, channels).astype(match.dtypes["input"]),
        group=channels,
        pads=pads,
        strides=strides,
        output_padding=[free % stride for free, stride in zip(room, strides, strict=True)],
    )
    add.finish({"output": result})


def _kernels(block: list[int], dilations: list[int], reach: list[int], channels: int) -> np.ndarray:
    """[channels * elements of a block, 1, *reach]; dilation as zeros, for TensorRT has none with strides."""
    kernels = np.zeros((int(np.prod(block)), *reach))
    for number, place in enumerate(np.ndindex(*block)):
        kernels[(number, *(p * d for p, d in zip(place, dilations, strict=True)))] = 1
    return np.tile(kernels[:, None], (channels, *[1] * (len(block) + 1)))
