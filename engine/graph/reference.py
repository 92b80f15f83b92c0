"""ONNX's own evaluator, slow and without rounding tricks. What it cannot compute is a StepError, whatever it raised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from engine.errors import StepError


class Reference:
    """A graph as the evaluator takes it; ``ops`` stand in for the evaluator's own."""

    def __init__(self, proto: onnx.ModelProto, ops: Sequence[type[OpRun]] = ()) -> None:
        try:
            self._evaluator = ReferenceEvaluator(proto, new_ops=list(ops))
        except Exception as error:  # process edge: the evaluator raises anything for what it does not know
            raise _not_taken(error) from error
        self.inputs: Sequence[str] = self._evaluator.input_names

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs by name."""
        try:
            with np.errstate(all="ignore"):
                values: Any = self._evaluator.run(None, dict(feeds))
        except Exception as error:  # process edge: see above
            raise _not_taken(error) from error
        return {
            name: np.asarray(value) for name, value in zip(self._evaluator.output_names, values, strict=True)
        }


def _not_taken(error: Exception) -> StepError:
    lines = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
    return StepError(f"the ONNX reference evaluator cannot compute the graph: {what}", klass="tooling")
