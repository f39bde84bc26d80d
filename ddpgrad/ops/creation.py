"""Functions that make tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._tensor import Tensor, wrap
from ..backend import device as devices
from ..backend import dtype as dtypes
from ..backend.registry import backend_of, to_device
from ..random import Generator, default_generator


def _finish(array: Any, device: Any, requires_grad: bool) -> Tensor:
    """A leaf around a fresh CPU array, moved to `device`."""
    out = wrap(to_device(array, devices.of(device)) if device is not None else array)
    if requires_grad:
        out.requires_grad = True
    return out


def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A new tensor with a copy of `data`: numbers, nested lists, arrays or a Tensor.

    Python floats become the default dtype; arrays and tensors keep theirs.
    """
    if isinstance(data, Tensor):
        array = data.detach().to("cpu")._array if device is not None else data._array
        array = array.astype(dtypes.numpy_of(dtype)) if dtype is not None else array.copy()
        return _finish(array, device, requires_grad)
    array = _from_data(data, dtype)
    return _finish(array, device, requires_grad)


def _from_data(data: Any, dtype: Any) -> np.ndarray:
    if isinstance(data, (list, tuple)) and _holds_tensors(data):
        data = _lists(data)
    try:
        array = np.array(data) if dtype is None else np.array(data, dtype=dtypes.numpy_of(dtype))
    except ValueError as error:
        raise ValueError(f"tensor(): the nested lists do not have equal lengths: {error}") from None
    if dtype is None and not isinstance(data, (np.ndarray, np.generic)):
        if array.dtype == np.float64:
            array = array.astype(dtypes.get_default_dtype().numpy)
        elif array.dtype == np.complex128:
            array = array.astype(np.complex64)
    if array.dtype not in dtypes.BY_NUMPY:
        raise TypeError(
            f"tensor(): cannot make a tensor of {type(data).__name__} (NumPy gives dtype {array.dtype}); "
            "expected numbers, nested lists of equal lengths, arrays or tensors"
        )
    return array


def _holds_tensors(data: Any) -> bool:
    return any(isinstance(x, Tensor) or (isinstance(x, (list, tuple)) and _holds_tensors(x)) for x in data)


def _lists(data: Any) -> Any:
    if isinstance(data, Tensor):
        return data.tolist()
    return [_lists(x) for x in data] if isinstance(data, (list, tuple)) else data


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor, without copying where dtype and device allow it."""
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype) if dtype is not None or device is not None else data
    if isinstance(data, np.ndarray):
        out = from_numpy(data)
        return out.to(device=device, dtype=dtype) if dtype is not None or device is not None else out
    return tensor(data, dtype=dtype, device=device)


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor that shares memory with a NumPy array."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    if array.dtype not in dtypes.BY_NUMPY:
        known = ", ".join(str(d) for d in dtypes.BY_NUMPY)
        raise TypeError(
            f"can't convert np.ndarray of type {array.dtype}. The only supported types are: {known}."
        )
    return wrap(np.asarray(array))


def _shape(size: Sequence[Any]) -> tuple[int, ...]:
    if len(size) == 1 and isinstance(size[0], (tuple, list)):
        size = size[0]
    shape = tuple(int(n) for n in size)
    if any(n < 0 for n in shape):
        raise RuntimeError(f"Trying to create tensor with negative dimension: {list(shape)}")
    return shape


def full(
    size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of shape `size` filled with one value."""
    if dtype is None:
        dtype = dtypes.result_type([], [dtypes.scalar_category(fill_value)])
    where = devices.of(device)
    array = backend_of(where.type).full(_shape((size,)), fill_value, dtype)
    out = wrap(array)
    if requires_grad:
        out.requires_grad = True
    return out


def zeros(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of zeros."""
    return full(
        _shape(size), 0, dtype=dtype or dtypes.get_default_dtype(), device=device, requires_grad=requires_grad
    )


def ones(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of ones."""
    return full(
        _shape(size), 1, dtype=dtype or dtypes.get_default_dtype(), device=device, requires_grad=requires_grad
    )


def empty(*size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of uninitialised memory."""
    array = np.empty(_shape(size), dtypes.numpy_of(dtype or dtypes.get_default_dtype()))
    return _finish(array, device, requires_grad)


def _like(function: Any) -> Any:
    def like(
        input: Tensor,
        *args: Any,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        **kwargs: Any,
    ) -> Tensor:
        return function(
            tuple(input.shape),
            *args,
            dtype=dtype or input.dtype,
            device=device or input.device,
            requires_grad=requires_grad,
        )

    like.__name__ = f"{function.__name__}_like"
    like.__doc__ = f"`{function.__name__}` with the shape, dtype and device of `input`."
    return like


def arange(
    start: Any,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, … before `end`."""
    if end is None:
        start, end = 0, start
    if dtype is None and any(isinstance(v, float) for v in (start, end, step)):
        dtype = dtypes.get_default_dtype()
    count = int(np.ceil((end - start) / step))
    if count < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    array = (start + np.arange(count) * step).astype(dtypes.numpy_of(dtype or dtypes.int64))
    return _finish(array, device, requires_grad)


def linspace(
    start: float,
    end: float,
    steps: int,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` evenly spaced values from start to end, both included."""
    array = np.linspace(start, end, steps).astype(dtypes.numpy_of(dtype or dtypes.get_default_dtype()))
    return _finish(array, device, requires_grad)


def eye(
    n: int, m: int | None = None, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Ones on the diagonal of an (n, m) matrix."""
    array = np.eye(n, m, dtype=dtypes.numpy_of(dtype or dtypes.get_default_dtype()))
    return _finish(array, device, requires_grad)


# -- random --------------------------------------------------------------------------------


def rand(
    *size: Any,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform numbers in [0, 1)."""
    source = generator or default_generator()
    array = source.uniform(_shape(size), dtypes.numpy_of(dtype or dtypes.get_default_dtype()))
    return _finish(array, device, requires_grad)


def randn(
    *size: Any,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Normal numbers with mean 0 and variance 1."""
    source = generator or default_generator()
    array = source.normal(_shape(size), dtypes.numpy_of(dtype or dtypes.get_default_dtype()))
    return _finish(array, device, requires_grad)


def randint(
    low: int,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Integers in [low, high); `randint(high, size)` starts at 0."""
    if size is None:
        low, high, size = 0, low, high
    array = (generator or default_generator()).integers(low, high, _shape((size,)))
    return _finish(array.astype(dtypes.numpy_of(dtype or dtypes.int64)), device, requires_grad)


def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A random order of 0 … n-1."""
    array = (generator or default_generator()).permutation(n)
    return _finish(array.astype(dtypes.numpy_of(dtype or dtypes.int64)), device, requires_grad)


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Indices drawn with the probabilities that the rows of `input` are proportional to."""
    weights = input.detach().to("cpu")._array
    drawn = (generator or default_generator()).multinomial(weights, num_samples, replacement)
    return _finish(drawn, input.device, False)


zeros_like, ones_like, empty_like = _like(zeros), _like(ones), _like(empty)
full_like, rand_like, randn_like = _like(full), _like(rand), _like(randn)
