"""Run a small model on the CPU with nothing optimised: ONNX Runtime, else ONNX's reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import onnx
import onnx_ir as ir

from engine.rules.constants import Array

# ONNX Runtime's kernels of these add pairs of products in 16 bits on CPUs without VNNI, and cut what does not fit.
_CUT = frozenset({"MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"})
INLINE_ELEMENTS = 16384  # larger constants are fed instead of being copied into the model


class CannotRunError(Exception):
    """The model does not run on these inputs; the text is the runtime's own reason."""


class Runs(Protocol):
    """What can be called with inputs by name; ``runtime`` names what computes."""

    @property
    def runtime(self) -> str: ...

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]: ...


class Evaluator:
    """One loaded model; with ``reference`` on ONNX's own evaluator where it can. ``runtime`` names what runs it."""

    def __init__(self, model: ir.Model, reference: bool = False) -> None:
        proto, self.constants = _with_fed_constants(model)
        self.outputs = [output.name for output in proto.graph.output]
        self.inputs = {value.name for value in proto.graph.input}
        self.session: Any
        cut = any(node.op_type in _CUT for node in model.graph.all_nodes())
        first, second = (_reference, _onnx_runtime) if reference or cut else (_onnx_runtime, _reference)
        try:
            self.session, self.runtime = first(proto)
        except CannotRunError as refusal:
            if cut:
                raise
            self.session, self.runtime = second(proto, f"{refusal}; ")

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name. Raises CannotRunError when the inputs do not fit."""
        given = {name: array for name, array in {**feeds, **self.constants}.items() if name in self.inputs}
        try:
            with np.errstate(all="ignore"):  # the reference evaluator computes in numpy
                found = self.session.run(self.outputs, given)
        except _run_errors() as error:
            raise CannotRunError(_first_line(error)) from None
        return dict(zip(self.outputs, (np.asarray(array) for array in found), strict=True))


def _with_fed_constants(model: ir.Model) -> tuple[onnx.ModelProto, dict[str, Array]]:
    fed: dict[str, Array] = {}
    proto = ir.to_proto(model)
    for tensor in list(proto.graph.initializer):
        constant = model.graph.initializers[tensor.name].const_value
        assert constant is not None
        if constant.size > INLINE_ELEMENTS:
            fed[tensor.name] = constant.numpy()
            info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            proto.graph.input.append(info)
            proto.graph.initializer.remove(tensor)
        elif tensor.data_location == onnx.TensorProto.EXTERNAL:
            tensor.CopyFrom(ir.to_proto(ir.Tensor(constant.numpy(), dtype=constant.dtype, name=tensor.name)))
    return proto, fed


def _onnx_runtime(proto: onnx.ModelProto, also: str = "") -> tuple[Any, str]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except _run_errors() as error:
        raise CannotRunError(f"{also}{_first_line(error)}") from None
    return session, f"onnxruntime {ort.__version__}"


def _reference(proto: onnx.ModelProto, also: str = "") -> tuple[Any, str]:
    from onnx.reference import ReferenceEvaluator

    invalid = (onnx.checker.ValidationError, onnx.shape_inference.InferenceError)
    caught: tuple[type[Exception], ...] = (*_run_errors(), *invalid)
    try:
        onnx.checker.check_model(proto, full_check=True)
        return ReferenceEvaluator(proto), f"onnx.reference {onnx.__version__}"
    except caught as error:
        raise CannotRunError(f"{also}{_first_line(error)}") from None


def _run_errors() -> tuple[type[Exception], ...]:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    runtime: tuple[type[Exception], ...] = (
        state.Fail,
        state.InvalidArgument,
        state.InvalidGraph,
        state.InvalidProtobuf,
        state.NotImplemented,
        state.RuntimeException,
    )
    plain = (
        RuntimeError,
        ValueError,
        TypeError,
        IndexError,
        KeyError,
        AttributeError,
        ZeroDivisionError,
        ImportError,
    )
    return runtime + plain


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
