"""The exporter that records what the model does with one input. What it cannot record is refused or told."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import StepError
from engine.exporters.exported import Exported, failed
from engine.plan import Plan
from engine.values import Issue

_TO_PYTHON = frozenset({"__bool__", "__int__", "__float__", "__index__", "item", "tolist"})
_SIZES = frozenset({"aten::size", "aten::dim", "aten::numel", "onnx::Shape"})


@dataclass
class Watched:
    """What a trace shows: places that read values of the inputs, places that the tracer warns of with the reason,
    and the parameters that were touched."""

    values: dict[str, str] = field(default_factory=dict)
    baked: dict[str, str] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)


def export(
    port: Any, plan: Plan, arguments: tuple[Any, ...], progress: Callable[[str, int, int], None], raw: Path
) -> Exported:
    """Trace and translate; ``raw`` is a file that may be written and is removed again."""
    import torch

    from engine.graph import files, provenance

    scripted = plan.model.source == "torchscript"
    axes = {
        name: {i: size for i, size in enumerate(item.shape)
               if isinstance(size, str) and plan.axes[size].min < plan.axes[size].max}
        for name, item in plan.inputs.items()
    }  # fmt: skip
    progress("tracing to ONNX (torchscript)", 0, 3)
    try:
        with warnings.catch_warnings(), watching() as watched:
            # The exporter's own tracer does not know scripts inside modules; torch.jit.trace keeps them whole.
            torch.onnx.export(
                _traced(port, arguments) if scripted else port,
                arguments,
                str(raw),
                dynamo=False,
                opset_version=plan.opset,
                input_names=list(plan.inputs),
                output_names=list(plan.outputs),
                dynamic_axes=axes,
            )
    except Exception as error:  # process edge: the exporter and the customer's code may raise anything
        raise failed("the torchscript exporter", error) from error
    _refuse_values(watched)
    model = files.load(raw)
    raw.unlink()
    provenance.condense_torchscript(model, "model.script" if scripted else provenance.WRAPPER)
    issues = [*_baked(watched), *_batch_statistics(model)]
    used = None if scripted else _names(port, watched.touched)
    capture = "torch.jit.trace around the script" if scripted else "traced with one input"
    return Exported("torchscript", model, capture, tuple(issues), used)


@contextmanager
def watching() -> Iterator[Watched]:
    """Watch every call into torch while a model is traced, and the tracer's warnings."""
    import torch
    from torch.overrides import TorchFunctionMode

    seen = Watched()

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(func, "__name__", "")
            if name in _TO_PYTHON and args and _reads_values(args[0]):
                seen.values.setdefault(_place(), name.strip("_"))
            if name != "__get__" and torch._C._get_tracing_state():
                tensors = (item for item in _flat((args, kwargs or {})) if isinstance(item, torch.Tensor))
                seen.touched |= {id(item) for item in tensors if item.is_leaf}
            return func(*args, **(kwargs or {}))

    def note(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        if issubclass(category, torch.jit._trace.TracerWarning):
            seen.baked.setdefault(_place(), str(message).split(". ")[0])

    warnings.simplefilter("always")
    warnings.showwarning = note  # type: ignore[assignment]
    with Watch():
        yield seen


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, dict):
        yield from _flat(tuple(value.values()))
    else:
        yield value


def _reads_values(tensor: Any) -> bool:
    """Whether a traced tensor depends on what the inputs hold, not only on how large they are."""
    import torch

    if not torch._C._get_tracing_state():
        return False
    value = torch._C._get_value_trace(tensor)  # type: ignore[attr-defined]
    waiting, seen = ([value] if value is not None else []), set()
    while waiting:
        node = waiting.pop().node()
        if node in seen or node.kind() in _SIZES:
            continue
        if node.kind() == "prim::Param":
            return True
        seen.add(node)
        waiting.extend(node.inputs())
    return False


def _place() -> str:
    """The innermost line of the model's own code, as ``file.py:line``."""
    import torch

    inside = (str(Path(torch.__file__).parent), __file__, warnings.__file__)
    frames = [frame for frame in traceback.extract_stack() if not frame.filename.startswith(inside)]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown line"


def _refuse_values(watched: Watched) -> None:
    if not watched.values:
        return
    place, how = next(iter(watched.values.items()))
    more = f" and {len(watched.values) - 1} more" if len(watched.values) > 1 else ""
    what = "branches on" if how == "bool" else "makes a Python number of"
    raise StepError(
        f"the model {what} the value of a tensor at {place}{more}",
        klass="export",
        cause="tracing keeps what the export sample did there; for other values the graph is wrong without a sign",
        fix="compute both sides and choose with torch.where, or make the decision outside of the model",
        where="model.python",
        evidence="\n".join(f"{where} ({how})" for where, how in watched.values.items()),
    )


def _names(port: Any, touched: set[int]) -> frozenset[str]:
    both = [
        *port.model.named_parameters(remove_duplicate=False),
        *port.model.named_buffers(remove_duplicate=False),
    ]
    return frozenset(name for name, tensor in both if id(tensor) in touched)


def _baked(watched: Watched) -> list[Issue]:
    """One issue a place at which the tracer turned a size into a Python value."""
    return [
        Issue(
            "export",
            "export",
            f"the tracer took a value at {place} for a constant",
            cause=cause,
            fix="the graph is right only while that size stays the same; try the dynamo exporter",
            evidence="parity at the recipe's own shapes does not prove other sizes",
            disposition="open",
        )
        for place, cause in watched.baked.items()
    ]


def _batch_statistics(model: Any) -> list[Issue]:
    from engine.graph.inventory import training_norms

    found = training_norms(model)
    if not found:
        return []
    return [
        Issue(
            "export",
            "export",
            f"batch statistics in use ({len(found)} batch norms)",
            cause="functional batch_norm with training=True; each row's result depends on the others",
            fix="pass training=self.training if that is not meant",
            evidence=", ".join(found[:3]),
            disposition="open",
        )
    ]


def _traced(port: Any, arguments: tuple[Any, ...]) -> Any:
    import torch

    return torch.jit.trace(port, arguments, check_trace=False)  # type: ignore[no-untyped-call]
