"""One conversion to FP16, as a process of its own: ``python lowering_convert.py TOOL IN OUT``.

Runs in the tool's own environment, so that nothing of Portwright is imported unless it is the tool.
"""

from __future__ import annotations

import sys
from pathlib import Path


def portwright(source: Path, target: Path) -> None:
    """What the step ``lower`` does, its check of the written file included."""
    from engine.graph import files
    from engine.precision import lower, selectors, verify

    model = files.load(source)
    lower.lower(model, selectors.resolve(model, "fp16", ()))
    files.save(model, target, target.with_suffix(".weights").name)
    verify.check_file(target)


def onnxconverter_common(source: Path, target: Path) -> None:
    import onnx
    from onnxconverter_common import float16

    if source.with_suffix(".weights").stat().st_size > 1 << 31:
        model = float16.convert_float_to_float16_model_path(str(source), keep_io_types=True)
    else:
        model = float16.convert_float_to_float16(onnx.load(source), keep_io_types=True)
    save(model, target)


def onnxruntime(source: Path, target: Path) -> None:
    import onnx
    from onnxruntime.transformers import float16

    large = source.with_suffix(".weights").stat().st_size > 1 << 31  # past 2 GiB it takes a path only
    model = str(source) if large else onnx.load(source)
    save(float16.convert_float_to_float16(model, keep_io_types=True), target)


def autocast(source: Path, target: Path) -> None:
    from modelopt.onnx.autocast import convert_to_mixed_precision

    save(convert_to_mixed_precision(str(source), low_precision_type="fp16", keep_io_types=True), target)


def save(model: object, target: Path) -> None:
    import onnx

    onnx.save(model, target, save_as_external_data=True, location=target.with_suffix(".weights").name)


TOOLS = {
    "portwright": portwright,
    "onnxconverter-common": onnxconverter_common,
    "onnxruntime": onnxruntime,
    "modelopt-autocast": autocast,
}

if __name__ == "__main__":
    TOOLS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
