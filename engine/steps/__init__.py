"""The steps of the route, in order. This table is the only place that knows them all.

Steps of one group share one process and its imports; the group ``here`` runs in the conductor and
must import nothing heavy. A step's module has ``run(context) -> Done``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal["torch", "graph", "lower", "fused", "bench", "here"]


@dataclass(frozen=True)
class Step:
    """``does`` and ``proves`` are printed by ``portwright plan`` and in the report."""

    name: str
    group: Group
    does: str
    proves: str


STEPS: tuple[Step, ...] = (
    Step("source", "torch", "load the model, make seeded samples, compute references",
         "the model runs, its outputs are finite and repeat exactly"),
    Step("export", "torch", "PyTorch to ONNX", "declared axes are symbolic, inputs and outputs as declared"),
    Step("check", "torch", "full ONNX check and inventory", "the file is valid; oddities are listed"),
    Step("stress", "torch", "make hard inputs for what the graph contains", "nothing: parity compares them"),
    Step("simplify", "torch", "fold and clean up, on probation", "same outputs as before, smaller graph"),
    Step("rewrite", "graph", "apply the named rules", "each application equal on its own subgraph"),
    Step("parity", "graph", "ONNX Runtime against PyTorch, FP32", "accept.onnx at every shape"),
    Step("calibrate", "lower", "ranges of activations, for int8 and fp8", "nothing: the rehearsal does"),
    Step("lower", "lower", "write the precision into the graph", "every override is in the graph; strongly typed"),
    Step("rehearse", "lower", "run the lowered graph on the CPU with real rounding", "accept.engine, rehearsed"),
    Step("build", "here", "TensorRT parses and builds in a worker process", "an engine of the asked types"),
    Step("fused", "fused", "rehearse again, rounding where the engine's fused layers end",
         "accept.engine, rehearsed, where accept.rehearsal is plan"),
    Step("verify", "here", "run the engine on a GPU", "accept.engine, measured"),
    Step("bench", "bench", "latency on the same inputs, interleaved", "nothing: figures of this machine"),
    Step("score", "here", "task metrics on labelled data", "accept.task"),
)  # fmt: skip

# The same steps where the port starts from an ONNX file.
_OF_A_FILE = {
    "source": "open the ONNX file, make seeded samples, compute references with ONNX Runtime",
    "export": "take the ONNX file over as it is",
    "parity": "ONNX Runtime against the ONNX file given, FP32",
}

NAMES: tuple[str, ...] = tuple(step.name for step in STEPS)


def does(step: Step, source: str) -> str:
    """What a step does in a port whose model comes from ``source`` (see PlannedModel)."""
    return _OF_A_FILE.get(step.name, step.does) if source == "onnx" else step.does


def by_name(name: str) -> Step:
    return STEPS[NAMES.index(name)]
