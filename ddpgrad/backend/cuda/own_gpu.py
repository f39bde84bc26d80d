"""Where a host has several GPUs, an array is computed with on the one that it lies on, whichever is current.

CuPy computes on the calling thread's current GPU, wherever the operands lie, and new threads begin on the first one.
Here kernels, and the operators and methods of CuPy's arrays, which gradient rules and writes in place use, change to the
GPU of their arrays where it is another one, and back. On a host of one GPU nothing is wrapped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import cupy  # pyright: ignore[reportMissingImports]

from ...core.errors import DeviceError

Function = Callable[..., Any]

_current = cupy.cuda.runtime.getDevice
_ndarray = cupy.ndarray

# What launches a kernel or copies; the others make views or say something.
_OPERATORS = "add and floordiv lshift mod mul or pow rshift sub truediv xor"
_METHODS = (
    "__abs__ __bool__ __complex__ __eq__ __float__ __ge__ __getitem__ __gt__ __int__ __invert__ __le__ __lt__ __matmul__ "
    "__ne__ __neg__ __setitem__ all any argmax argmin argsort astype clip conj conjugate copy cumprod cumsum dot fill "
    "flatten get item max mean min nonzero prod put ravel repeat reshape round searchsorted set sort std sum take tolist "
    "trace var"
)


def install() -> None:
    """Let the operators and methods of CuPy's arrays run on the GPU of their array."""
    operators = [f"__{kind}{name}__" for kind in ("", "r", "i") for name in _OPERATORS.split()]
    for name in (*operators, *_METHODS.split()):
        setattr(_ndarray, name, _on_gpu_of_self(getattr(_ndarray, name)))


def _on_gpu_of_self(method: Function) -> Function:
    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        index = self.data.device_id
        return (
            method(self, *args, **kwargs) if index == _current() else on(index, method, self, *args, **kwargs)
        )

    return run


def on_gpu_of_arguments(kernel: Function) -> Function:
    """`kernel`, which runs on the GPU of the arrays among its arguments; `DeviceError` where they are on several."""

    @functools.wraps(kernel, assigned=("__name__", "__doc__"), updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        index = _common(args, None)
        if kwargs:
            index = _common(kwargs.values(), index)
        if index is None or index == _current():
            return kernel(*args, **kwargs)
        return on(index, kernel, *args, **kwargs)

    if hasattr(kernel, "nin"):  # by which in-place ops know a kernel that writes where it is told
        run.__dict__["nin"] = kernel.nin  # type: ignore[attr-defined]
    return run


def _common(values: Iterable[Any], index: int | None) -> int | None:
    """The GPU of all arrays among `values`, and in lists and tuples there; `index`, unless None, is that of others."""
    for value in values:
        kind = value.__class__
        if kind is _ndarray:
            own = value.data.device_id
            if index is None:
                index = own
            elif own != index:
                raise DeviceError(
                    "expected all tensors to be on the same device, but found at least two devices, "
                    f"cuda:{index} and cuda:{own}. Move them with Tensor.to(device) first."
                )
        elif kind is list or kind is tuple:
            index = _common(value, index)
    return index


def on(index: int, function: Function, *args: Any, **kwargs: Any) -> Any:
    """function(*args, **kwargs) with GPU `index` the current one of the calling thread."""
    with cupy.cuda.Device(index):
        return function(*args, **kwargs)
