"""What computes `torch.ops.aten.<name>`: the function here of that name, or one that takes PyTorch's arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from ...core.tensor import Tensor
from ...ops.dispatch.tensor_function import FUNCTIONS
from ...ops.dispatch.vocabulary import OPS, VOCABULARY
from .names import listed
from .owned import OWN, ROOT, functional, own


@cache
def of(name: str, overload: str) -> Callable[..., Any]:
    """What computes an op; AttributeError where nothing does."""
    for key in (f"{name}.{overload}", name):
        if key in OWN:
            return OWN[key]
    if name.endswith("_backward"):
        return _backward_of(name.removesuffix("_backward"), overload)
    root = import_module(ROOT)
    import_module(f"{ROOT}.ops").load_all()
    places: list[tuple[Any, str]] = [(root, name), (Tensor, name), (functional(), name)]
    for prefix in ("special", "linalg", "fft"):
        if name.startswith(f"{prefix}_"):
            places.insert(0, (import_module(f"{ROOT}.{prefix}"), name.removeprefix(f"{prefix}_")))
    if name.endswith("_"):
        places.insert(0, (Tensor, name))
    if name in FUNCTIONS:
        return FUNCTIONS[name].call
    for place, known in places:
        found = getattr(place, known, None)
        if callable(found):
            return found
    if name in OPS:
        return OPS[name].call

    def missing(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"torch.ops.aten.{name}.{overload}: ddpgrad has no function of that name")

    return missing


def _backward_of(name: str, overload: str) -> Callable[..., Any]:
    """The gradients of what computes `name`, in the tensors among its arguments that need one."""

    def backward(grads: Any, *args: Any, output_mask: Sequence[bool], **kwargs: Any) -> Any:
        from .nodes import gradients

        return gradients(of(name, overload), listed(grads), output_mask, args, kwargs)

    return backward


# -- conversions and views ------------------------------------------------------------------------


@own
def _to_copy(
    self: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
    non_blocking: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    out = self.to(device=device, dtype=dtype, memory_format=memory_format)
    return out.clone() if out is self else out


@own
def alias(self: Tensor) -> Tensor:
    return VOCABULARY.alias(self)


@own
def _unsafe_view(self: Tensor, size: Any) -> Tensor:
    return self.reshape(size)


@own
def slice_of(
    self: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    dim = dim % self.ndim
    end = None if end is not None and end >= self.shape[dim] else end
    return self[(slice(None),) * dim + (slice(start, end, step),)]


@own
def index(self: Tensor, indices: Sequence[Any]) -> Tensor:
    return VOCABULARY.index_by(self, tuple(slice(None) if i is None else i for i in indices))


@own
def view(self: Tensor, size: Any) -> Tensor:
    return self.view(size)


@own
def lift_fresh(self: Tensor) -> Tensor:
    return self


@own
def _local_scalar_dense(self: Tensor) -> Any:
    return self.item()


@own
def _pin_memory(self: Tensor, device: Any = None) -> Tensor:
    return self.pin_memory()


@own
def scalar_tensor(
    s: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Tensor:
    return import_module(ROOT).tensor(s, dtype=dtype, device=device)


@own
def diagonal_copy(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    return self.diagonal(offset, dim1, dim2).clone()


OWN["fill_"] = lambda self, value: self.fill_(value)
OWN["new_empty_strided"] = lambda self, size, stride, **options: self.new_empty_strided(
    size, stride, **options
)


# -- arithmetic and reductions --------------------------------------------------------------------


OWN["__lshift__"] = lambda self, other: VOCABULARY.bitwise_left_shift(self, other)
OWN["__rshift__"] = lambda self, other: VOCABULARY.bitwise_right_shift(self, other)
OWN["_conj"] = lambda self: VOCABULARY.conj(self)


@own
def _softmax(self: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    return VOCABULARY.softmax(self, dim)


@own
def _log_softmax(self: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    return VOCABULARY.log_softmax(self, dim)


@own
def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    return VOCABULARY.softmax_backward(grad_output, output, dim).to(input_dtype)


@own
def _log_softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    return (grad_output - output.exp() * grad_output.sum(dim, keepdim=True)).to(input_dtype)


@own
def threshold_backward(grad_output: Tensor, self: Tensor, threshold: Any) -> Tensor:
    return grad_output * (self > threshold)


OWN["max.dim"] = lambda self, dim, keepdim=False: import_module(ROOT).max(self, dim, keepdim)
OWN["min.dim"] = lambda self, dim, keepdim=False: import_module(ROOT).min(self, dim, keepdim)


def _statistic(name: str) -> Callable[..., Any]:
    def statistic(self: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
        return getattr(import_module(ROOT), name)(
            self, dim, correction=1 if correction is None else correction, keepdim=keepdim
        )

    return statistic


OWN |= {f"{name}.correction": _statistic(name) for name in ("var", "std", "var_mean", "std_mean")}


# -- numbers ----


@own
def empty_of(size: Any, *, memory_format: Any = None, **options: Any) -> Tensor:
    return import_module(ROOT).empty(size, memory_format=memory_format, **options)


OWN["arange.start"] = OWN["arange.start_step"] = OWN["arange.default"] = lambda *args, **kwargs: (
    import_module(ROOT).arange(*args, **kwargs)
)
OWN["normal.float_float"] = lambda mean, std, size, **kwargs: import_module(ROOT).normal(
    mean, std, size, **kwargs
)
OWN["polygamma"] = lambda n, self: import_module(ROOT).polygamma(n, self)
OWN["where.self"] = lambda condition, self, other: VOCABULARY.where(condition, self, other)
OWN["div.Tensor_mode"] = lambda self, other, *, rounding_mode: import_module(ROOT).div(
    self, other, rounding_mode=rounding_mode
)
OWN["pow.Scalar"] = lambda self, exponent: VOCABULARY.pow(self, exponent)
OWN["rsub"] = lambda self, other, alpha=1: other - self * alpha if alpha != 1 else other - self
OWN["isin"] = lambda elements, test, **kwargs: import_module(ROOT).isin(elements, test, **kwargs)
OWN["expand"] = lambda self, size, *, implicit=False: self.expand(size)
OWN["_convert_indices_from_coo_to_csr"] = lambda self, size, *, out_int32=False: import_module(
    ROOT
)._convert_indices_from_coo_to_csr(self, size, out_int32=out_int32)
