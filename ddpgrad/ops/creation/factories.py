"""Functions that make tensors of given values: `zeros`, `full`, `arange`, `eye` … (data: `data.py`, draws: `draws.py`)."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backend import device as devices
from ...backend import dtype as dtypes
from ...backend.cpu.threads import expect
from ...backend.elementary.shape import strided_view
from ...backend.layout import order_like, placed
from ...backend.registry import SparseArray, backend_for, backend_of, to_device
from ...core.errors import must_be_tensor
from ...core.modes import mapping, uninitialised
from ...core.overrides import asking_modes, overridable
from ...core.size import SPARSE, require_strided
from ...core.taping import now, taping
from ...core.tensor import Tensor, wrap
from ...core.upcalls import room_for_examples, sparse_zeros
from ...random import source
from ..dispatch.out import resize_out, write_out


def finish(array: Any, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A leaf around a fresh array, moved to `device` (the default device when None)."""
    where = devices.of(device if device is not None else devices.default())
    if where is devices.CPU and array.__class__ is np.ndarray:
        out = wrap(expect(array))
    else:  # NumPy makes numbers of arrays without dimensions
        out = wrap(to_device(expect(np.asarray(array) if isinstance(array, np.generic) else array), where))
    return out.requires_grad_() if requires_grad else out


def no_numpy_type(array: Any) -> TypeError | ValueError:
    """The error for an array of a dtype that no tensor has."""
    if not array.dtype.isnative:
        return ValueError(
            "given numpy array has byte order different from the native byte order. Conversion between byte orders is "
            f"currently not supported. Use array.astype({array.dtype.newbyteorder('=').name!r})."
        )
    known = ", ".join(str(d) for d in dtypes.BY_NUMPY)
    return TypeError(
        f"can't convert np.ndarray of type {array.dtype}. The only supported types are: {known}."
    )


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor that shares memory with a NumPy array; writing to one made of a read-only array fails."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    if array.dtype not in dtypes.BY_NUMPY:
        raise no_numpy_type(array)
    if any(step % array.itemsize for step in array.strides):
        raise ValueError(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy array to reallocate the memory."
        )
    if any(step < 0 for step in array.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not "
            "currently supported. (You can probably work around this by making a copy of your array with array.copy().)"
        )
    return wrap(expect(np.asarray(array)))


def factory(function: Callable[..., Any]) -> Callable[..., Tensor]:
    """Make a public function of one that returns a raw array: `device`, `requires_grad` and `out` are handled here.

    `pin_memory` and `memory_format` are taken, and change nothing. `out` of another shape is resized without a
    warning, but for `_COUNTED`.
    """
    name = function.__name__
    parameters = inspect.signature(function).parameters

    @asking_modes
    @functools.wraps(function)
    def call(
        *args: Any, device: Any = None, requires_grad: bool = False, out: Tensor | None = None, layout: Any = None,
        pin_memory: bool | None = None, memory_format: Any = None, **kwargs: Any,
    ) -> Tensor:  # fmt: skip
        if out is not None:
            kwargs["dtype"] = dtype_of_out(kwargs.get("dtype"), out)
            made = finish(on(out.device, *args, **kwargs), out.device)
            if name in _COUNTED and out.numel() == made.numel():
                made._array = made._array.reshape(out._array.shape)
            return write_out(name, out, made, warns=name == "arange")
        require_strided(name, layout)
        where = devices.of(device if device is not None else devices.default())
        return finish(on(where, *args, **kwargs), where, requires_grad)

    def on(where: devices.Device, *args: Any, **kwargs: Any) -> Any:
        if where.type == "cpu":
            return function(*args, **kwargs)
        backend = backend_of(where.type)
        if "generator" in parameters:  # nothing is computed on the host for it
            kwargs["generator"] = source(kwargs.get("generator"), where)
        if "xp" in parameters:
            kwargs["xp"] = backend.library
        return backend.on(where, functools.partial(function, **kwargs), *args)

    return call


# Functions whose number of elements counts: `out` of as many keeps its shape.
_COUNTED = frozenset({"arange", "linspace", "logspace"})


def dtype_of_out(dtype: Any, out: Tensor) -> dtypes.DType:
    """The dtype of `out`; `RuntimeError` where the argument `dtype` is given and is another."""
    if dtype is not None and dtypes.of(dtype) is not out.dtype:
        raise RuntimeError(
            f"dtype {dtypes.of(dtype).name} does not match dtype of out parameter ({out.dtype.name})"
        )
    return out.dtype


def shape_of(name: str, size: Sequence[Any]) -> tuple[int, ...]:
    """Sizes given one by one or as one sequence, as a tuple; the errors of a wrong size."""
    plain = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
    for n in plain:
        if n.__class__ is not int or n < 0:
            break
    else:
        return tuple(plain)
    if len(size) == 1 and not isinstance(size[0], (int, np.integer)) and not _is_number(size[0]):
        size = size[0]
        if not isinstance(size, (tuple, list)):
            raise TypeError(
                f"{name}(): argument 'size' (position 1) must be tuple of ints, not {type(size).__name__}"
            )
    for i, n in enumerate(size):
        if not isinstance(n, (int, np.integer)) and not _is_number(n):
            raise TypeError(
                f"{name}(): argument 'size' must be tuple of ints, but found element of type {type(n).__name__} at pos {i}"
            )
    shape = tuple([int(n) for n in size])
    if any(n < 0 for n in shape):
        raise RuntimeError(f"{name}(): Trying to create tensor with negative dimension: {list(shape)}")
    return shape


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1 and value.dtype.category == 1


def number(value: Any) -> Any:
    """A Python number from a number or a tensor of one element."""
    return value.item() if isinstance(value, (Tensor, np.generic)) else value


def default_of(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype for `dtype`, the default floating-point type when None."""
    return dtypes.numpy_of(dtype) if dtype is not None else dtypes.get_default_dtype().numpy


def _filled(
    name: str, size: Sequence[Any], value: Any, dtype: Any, device: Any, requires_grad: bool
) -> Tensor:
    """Memory is made, and filled, on the device itself."""
    where = devices.of(device if device is not None else devices.default())
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.of(dtype)
    backend, shape = backend_of(where.type), shape_of(name, size)
    if value is None and uninitialised.get().filled:
        value = telltale(kind.numpy)
    make = backend.empty if value is None else backend.full
    given = (shape, kind) if value is None else (shape, as_element(value, kind), kind)
    call = make if taping.now is None else functools.partial(now, make)
    out = wrap(expect(call(*given)) if where.index is None else backend.on(where, make, *given))
    return out.requires_grad_() if requires_grad else out


def telltale(kind: np.dtype[Any]) -> Any:
    """What memory that nothing is written to holds, where it is to be seen."""
    return math.nan if kind.kind not in "iub" else kind.kind == "b" or int(np.iinfo(kind).max)


def _uninitialised(xp: Any, size: Any, kind: np.dtype[Any]) -> Any:
    return xp.full(size, telltale(kind), kind) if uninitialised.get().filled else xp.empty(size, kind)


def as_element(value: Any, kind: dtypes.DType) -> Any:
    """A number as elements of `kind` hold it: cut to an integer, negative ints wrapped round for unsigned types.

    `RuntimeError` for what does not fit, such as nan or 300 in a uint8, or 1e9 in a float16. Infinities fit into floats.
    """
    if (value.__class__ is float or value.__class__ is int) and 0 <= value <= 127:  # which fits everywhere
        return value if kind.category != 1 else int(value)
    if isinstance(value, complex) and 0 < kind.category < 3 and value.imag:
        raise RuntimeError(f"value cannot be converted to type {kind.name} without overflow")
    number: Any = value.real if isinstance(value, complex) and kind.category < 3 else value
    if kind.category != 1:
        limit = dtypes.largest(kind) if kind.category else math.inf
        for part in (number.real, number.imag):
            if not -limit <= part <= limit and abs(part) != math.inf and part == part:
                raise RuntimeError(f"value cannot be converted to type {kind.name} without overflow")
        return value if kind.category != 2 else number
    top, bottom = int(np.iinfo(kind.numpy).max), int(np.iinfo(kind.numpy).min)
    if isinstance(number, int):
        bottom = -top - 1
    if not bottom - 1 < number < top + 1:  # nor nan
        raise RuntimeError(f"value cannot be converted to type {kind.name} without overflow")
    return int(number) % (top + 1) if not kind.is_signed else int(number)


def _constant(name: str, value: Any, doc: str) -> Callable[..., Tensor]:
    def make(
        *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, out: Tensor | None = None,
        layout: Any = None, pin_memory: bool | None = None, memory_format: Any = None, **kwargs: Any,
    ) -> Tensor:  # fmt: skip
        if "size" in kwargs:
            size = (kwargs.pop("size"),)
        if kwargs:
            raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(kwargs))}'")
        if not size:
            raise TypeError(f'{name}() missing 1 required positional arguments: "size"')
        if out is not None:
            made = _filled(name, size, value, dtype_of_out(dtype, out), out.device, False)
            if value is None:  # nothing is written to memory that is not initialised
                resize_out(name, out, tuple(made.shape), warns=False)
                return out
            return write_out(name, out, made, warns=False)
        if layout is not None and not value and layout in SPARSE.values():
            return sparse_zeros(shape_of(name, size), layout, dtype, device).requires_grad_(requires_grad)
        require_strided(name, layout)
        if memory_format is not None and memory_format.order is not None:
            shape = shape_of(name, size)
            options = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
            return placed(make, shape, memory_format.order(len(shape)), **options)
        return _filled(name, size, value, dtype, device, requires_grad)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = doc
    return asking_modes(make)


zeros = _constant("zeros", 0, "A tensor of zeros.")
ones = _constant("ones", 1, "A tensor of ones.")
empty = _constant("empty", None, "A tensor of uninitialised memory.")


@asking_modes
def full(
    size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    out: Tensor | None = None, layout: Any = None, pin_memory: bool | None = None, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """A tensor of shape `size` filled with one value, whose kind of number decides the dtype."""
    value = number(fill_value)
    if dtype is None and out is None:
        dtype = dtypes.result_type([], [dtypes.scalar_category(value)])
    if out is not None:
        made = _filled("full", (size,), value, dtype_of_out(dtype, out), out.device, False)
        return write_out("full", out, made, warns=False)
    require_strided("full", layout)
    return _filled("full", (size,), value, dtype, device, requires_grad)


def like(function: Any) -> Any:
    """`<function>_like`: the function with the shape, dtype and device of a tensor."""

    @overridable
    def make(
        input: Tensor, *args: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, layout: Any = None,
        pin_memory: bool | None = None, memory_format: Any = None, **kwargs: Any,
    ) -> Tensor:  # fmt: skip
        if not isinstance(input, Tensor):
            raise must_be_tensor(make.__name__, "input", 0, input)
        kind, where = input.dtype if dtype is None else dtype, input.device if device is None else device
        if input.__class__ is not Tensor and (filled := getattr(input, "_filled_like", None)) is not None:
            return filled(make, args, kwargs, kind, where, requires_grad)  # of which a rank has a part
        if layout is None and isinstance(input._array, SparseArray):
            of_ones = function is ones and input._array.layout != "sparse_coo"  # whose stored elements are 1
            if function in (zeros, empty) or of_ones:
                out: Any = wrap(backend_for(input._array).full_like(input._array, int(of_ones)))
                return out.to(where, kind).requires_grad_(requires_grad)
            layout = SPARSE[input._array.layout]
        kwargs |= {"dtype": kind, "device": where, "requires_grad": requires_grad, "layout": layout}
        order = None if isinstance(input._array, SparseArray) else order_like(input._array, memory_format)
        made = placed(function, tuple(input.shape), order, *args, **kwargs)
        return room_for_examples(made, input) if mapping else made

    make.__name__ = make.__qualname__ = f"{function.__name__}_like"
    make.__doc__ = f"`{function.__name__}` with the shape, dtype, device and order in memory of `input`."
    return make


zeros_like, ones_like, empty_like, full_like = like(zeros), like(ones), like(empty), like(full)


@factory
def empty_strided(size: Any, stride: Any, *, dtype: Any = None, xp: Any = np) -> np.ndarray:
    """Uninitialised memory seen with sizes and steps, in elements."""
    size, stride = tuple(size), tuple(stride)
    if len(size) != len(stride):
        raise RuntimeError(
            f"empty_strided(): dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)})"
        )
    kind = default_of(dtype)
    extent = 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    return strided_view(_uninitialised(xp, extent, kind), size, stride, 0)


@factory
def empty_permuted(size: Any, physical_layout: Any, *, dtype: Any = None, xp: Any = np) -> np.ndarray:
    """Uninitialised memory whose dimensions lie in the order `physical_layout`, the slowest first."""
    if len(physical_layout) != len(size):
        raise RuntimeError(
            f"empty_permuted(): Number of dimensions in size does not match the length of the physical_layout; i.e. "
            f"len(size) = {len(size)} is not equal to len(physical_layout) = {len(physical_layout)}"
        )
    if sorted(physical_layout) != list(range(len(size))):
        outside = [d for d in physical_layout if not 0 <= d < len(size)]
        reason = f"Dimension out of range: {outside[0]}" if outside else "Duplicate dim not allowed"
        raise RuntimeError(
            f"empty_permuted(): {reason}: physical_layout {tuple(physical_layout)} must be a permutation of the "
            f"dimensions of {tuple(size)}"
        )
    memory = _uninitialised(xp, [size[d] for d in physical_layout], default_of(dtype))
    return memory.transpose(np.argsort(physical_layout))


@asking_modes
def scalar_tensor(s: Any, **options: Any) -> Tensor:
    """A tensor without dimensions, of the default floating-point type."""
    if not isinstance(s, (int, float, complex, np.generic, Tensor)) or (isinstance(s, Tensor) and s.ndim):
        raise TypeError(f"scalar_tensor(): argument 's' (position 1) must be Number, not {type(s).__name__}")
    options.setdefault("dtype", dtypes.get_default_dtype())
    return full((), s, **options)


_PIECE = 1 << 14  # elements


@factory
def arange(
    start: Any = None, end: Any = None, step: Any = None, *, dtype: Any = None, xp: Any = np
) -> np.ndarray:
    """start, start + step, … before `end`."""
    if end is None or start is None:  # one of them is the end
        missing = (
            'required positional arguments: "end"' if start is end else "argument: step needs start and end"
        )
        if start is end or step is not None:
            raise TypeError(f"arange() missing 1 {missing}")
        start, end = 0, start if end is None else end
    if start.__class__ is end.__class__ is int and step is dtype is None and start <= end:
        return xp.arange(start, end)
    start, end, step = number(start), number(end), number(1 if step is None else step)
    if dtype is None:
        fraction = any(isinstance(v, float) for v in (start, end, step))
        dtype = dtypes.get_default_dtype() if fraction else dtypes.int64
    if step == 0 or not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}, step must be nonzero: {step}")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    kind = dtypes.of(dtype)
    if kind.category in (0, 3):
        raise NotImplementedError(f"arange(): not implemented for '{kind.scalar_type}'")
    if kind is dtypes.int64:
        start, end, step = int(start), int(end), int(step)
        if not step:
            raise ValueError("step must be nonzero: it is less than 1, and the dtype an integer")
    count = math.ceil((end - start) / step)
    if kind.category == 1:
        start, step = int(start), int(step)
    if kind is dtypes.int64:
        return xp.arange(start, start + count * step, step)
    wide = np.dtype(np.float64 if isinstance(start, float) or isinstance(step, float) else np.int64)
    return evenly(xp.empty(count, kind.numpy), start, step, wide, xp)


def evenly(out: Any, start: Any, step: Any, wide: Any, xp: Any, first: int = 0) -> Any:
    """Write start + step * k for k = first, first + 1, … to the vector `out`, computed as `wide`.

    On a CPU in pieces that stay in the cache.
    """
    piece = _PIECE if xp is np else max(len(out), 1)
    places = xp.arange(min(piece, len(out)), dtype=wide)
    for begin in range(0, len(out), piece):
        part = out[begin : begin + piece]
        values = places[: len(part)] + (first + begin)
        if step != 1:
            values *= step
        if start != 0:
            values += start
        part[...] = values
    return out


@factory
def eye(n: int, m: int | None = None, *, dtype: Any = None, xp: Any = np) -> np.ndarray:
    """Ones on the diagonal of an (n, m) matrix."""
    for name, size in (("n", n), ("m", m)):
        if size is not None and size < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {size}")
    return xp.eye(n, m, dtype=default_of(dtype))
