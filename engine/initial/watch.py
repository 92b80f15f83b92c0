"""Watches a forward pass: which input each tensor comes from, and what the first operators and modules ask of it.

A layer with weights says by them what it takes: a convolution its channels, an embedding its largest index.
Where a tensor that comes from an input does not meet that, :class:`Unmet` is raised before the operator is, so
that the input can be mended instead of an error text being read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

_ROOTS = "_portwright_roots"


@dataclass(frozen=True)
class Need:
    """What one operator asks of one tensor: kind of type, rank, sizes by axis, indices below ``below``.

    ``batch`` is the axis that the module takes for the batch, where it says so.
    """

    by: str
    dtype: str = ""
    rank: int | None = None
    sizes: Mapping[int, int] = field(default_factory=dict)
    below: int | None = None
    batch: int | None = None


class Unmet(BaseException):
    """An input does not meet a need. A BaseException: a model that catches Exception must not swallow it."""

    def __init__(self, root: str, need: Need, tensor: torch.Tensor, what: str, axis: int = 0) -> None:
        super().__init__(f"{need.by} {what}")
        self.root, self.need, self.what, self.axis = root, need, what, axis
        self.shape = tuple(tensor.shape)


class NoTensor(BaseException):
    """The model looks up a word in an input: it takes a mapping. A BaseException for the same reason."""

    def __init__(self, root: str, key: str) -> None:
        super().__init__(root, key)
        self.root, self.key = root, key


class Watch(TorchFunctionMode):
    """Use as a context around one call of the model. ``met`` lists, by input, the needs in order of use."""

    def __init__(self, model: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.met: dict[str, list[Need]] = {name: [] for name in inputs}
        self._names = {id(module): name for name, module in model.named_modules()}
        self._stack: list[str] = []
        self._hooks = ExitStack()
        for name, tensor in inputs.items():
            setattr(tensor, _ROOTS, frozenset([name]))

    def __enter__(self) -> Watch:
        self._hooks.callback(register_module_forward_pre_hook(self._enter_module).remove)
        self._hooks.callback(register_module_forward_hook(self._leave_module, always_call=True).remove)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)  # type: ignore[no-untyped-call]
        self._hooks.close()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__getitem__" and isinstance(args[1], str) and (roots := _roots(args[0])):
            raise NoTensor(sorted(roots)[0], args[1])
        ask = _OPERATORS.get(name)
        if ask is not None:
            for tensor, need in ask(self._where(name), args, kwargs):
                self._require(tensor, need)
        returned = func(*args, **kwargs)
        if not isinstance(returned, torch.Tensor | tuple | list):
            return returned
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        roots = frozenset(root for leaf in given for root in _roots(leaf))
        for leaf in pytree.tree_leaves(returned) if roots else ():
            if isinstance(leaf, torch.Tensor):
                setattr(leaf, _ROOTS, roots)
        return returned

    def _where(self, function: str) -> str:
        module = self._stack[-1] if self._stack else ""
        return f"{module} ({function})" if module else function

    def _enter_module(self, module: torch.nn.Module, args: Any) -> None:
        self._stack.append(self._names.get(id(module), ""))
        if isinstance(module, torch.nn.RNNBase) and args:
            batch = 0 if module.batch_first else 1
            sizes = {2: module.input_size}
            need = Need(self._where(type(module).__name__), "float", 3, sizes, batch=batch)
            self._require(args[0], need)
        elif isinstance(module, torch.nn.MultiheadAttention):
            batch = 0 if module.batch_first else 1
            widths = (module.embed_dim, module.kdim, module.vdim)
            for tensor, width in zip(args, widths, strict=False):
                by = self._where("MultiheadAttention")
                self._require(tensor, Need(by, "float", 3, {2: width}, batch=batch))

    def _leave_module(self, module: torch.nn.Module, args: Any, returned: Any) -> None:
        if self._stack:
            self._stack.pop()

    def _require(self, tensor: Any, need: Need) -> None:
        if not isinstance(tensor, torch.Tensor) or not (roots := _roots(tensor)):
            return
        root = sorted(roots)[0]
        if len(roots) == 1:
            self.met[root].append(need)
        if need.dtype and need.dtype != _kind(tensor):
            raise Unmet(root, need, tensor, f"takes {need.dtype}, got {_kind(tensor)}")
        if need.rank is not None and tensor.ndim != need.rank:
            raise Unmet(root, need, tensor, f"takes {need.rank} axes, got {tensor.ndim}")
        for axis, size in need.sizes.items():
            if axis >= tensor.ndim or -axis > tensor.ndim:
                raise Unmet(root, need, tensor, f"takes more axes than {tensor.ndim}")
            if tensor.shape[axis] != size:
                what = f"takes size {size} on axis {axis % tensor.ndim}, got {tensor.shape[axis]}"
                raise Unmet(root, need, tensor, what, axis % tensor.ndim)
        if need.below is not None and tensor.numel() and int(tensor.detach().max()) >= need.below:
            raise Unmet(root, need, tensor, f"takes indices below {need.below}")


def _roots(tensor: torch.Tensor) -> frozenset[str]:
    found: frozenset[str] = getattr(tensor, _ROOTS, frozenset())
    return found


def _kind(tensor: torch.Tensor) -> str:
    if tensor.dtype == torch.bool:
        return "bool"
    return "float" if tensor.is_floating_point() else "int"


Asks = list[tuple[Any, Need]]


def _argument(args: tuple[Any, ...], kwargs: Mapping[str, Any], index: int, name: str) -> Any:
    return args[index] if len(args) > index else kwargs.get(name)


def _linear(by: str, args: Any, kwargs: Any) -> Asks:
    tensor, weight = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 1, "weight")
    return [(tensor, Need(by, "float", None, {-1: weight.shape[1]}))]


def _conv(by: str, args: Any, kwargs: Any) -> Asks:
    tensor, weight = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 1, "weight")
    groups = _argument(args, kwargs, 6, "groups") or 1
    return [(tensor, Need(by, "float", weight.ndim, {1: weight.shape[1] * groups}, batch=0))]


def _conv_transposed(by: str, args: Any, kwargs: Any) -> Asks:
    tensor, weight = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 1, "weight")
    return [(tensor, Need(by, "float", weight.ndim, {1: weight.shape[0]}, batch=0))]


def _embedding(by: str, args: Any, kwargs: Any) -> Asks:
    tensor, weight = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 1, "weight")
    return [(tensor, Need(by, "int", below=weight.shape[0]))]


def _layer_norm(by: str, args: Any, kwargs: Any) -> Asks:
    tensor, sizes = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 1, "normalized_shape")
    wanted = {index - len(sizes): int(size) for index, size in enumerate(sizes)}
    return [(tensor, Need(by, "float", None, dict(sorted(wanted.items(), reverse=True))))]


def _batch_norm(by: str, args: Any, kwargs: Any) -> Asks:
    tensor, mean = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 1, "running_mean")
    return [] if mean is None else [(tensor, Need(by, "float", None, {1: mean.numel()}, batch=0))]


def _matmul(by: str, args: Any, kwargs: Any) -> Asks:
    tensor, other = _argument(args, kwargs, 0, "input"), _argument(args, kwargs, 1, "other")
    if isinstance(other, torch.nn.Parameter) and other.ndim == 2:
        return [(tensor, Need(by, "float", None, {-1: other.shape[0]}))]
    return []


def _masked_fill(by: str, args: Any, kwargs: Any) -> Asks:
    return [(_argument(args, kwargs, 1, "mask"), Need(by, "bool"))]


def _where(by: str, args: Any, kwargs: Any) -> Asks:
    return [(_argument(args, kwargs, 0, "condition"), Need(by, "bool"))]


_OPERATORS: Mapping[str, Callable[[str, Any, Any], Asks]] = {
    "linear": _linear,
    "conv1d": _conv,
    "conv2d": _conv,
    "conv3d": _conv,
    "conv_transpose1d": _conv_transposed,
    "conv_transpose2d": _conv_transposed,
    "conv_transpose3d": _conv_transposed,
    "embedding": _embedding,
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "matmul": _matmul,
    "__matmul__": _matmul,
    "masked_fill": _masked_fill,
    "masked_fill_": _masked_fill,
    "where": _where,
}
