"""One run of the decoder, plain in FP32 or rehearsed: ``python lowering_rehearse.py plain|rehearse FP32 FP16``.

The seconds of the run itself are printed last; a first run before it warms nothing, because the step has none either.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from engine import runtime
from engine.graph import files


def main(part: str, model: Path, lowered: Path) -> None:
    with np.load(model.with_name("feeds.npz")) as stored:
        feeds = {name: stored[name] for name in stored.files}
    path = model
    if part == "rehearse":
        from engine.precision import blocked

        path = lowered.with_name("shadow.onnx")
        blocked.write(files.load(lowered), path)
    opened = runtime.session(path, prepack=False)
    start = time.perf_counter()
    runtime.run(opened, feeds)
    print(time.perf_counter() - start)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
