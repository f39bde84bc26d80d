"""Tensors from data: numbers, nested lists, NumPy arrays, buffers, DLPack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backend import device as devices
from ...backend import dtype as dtypes
from ...core.errors import warn_program
from ...core.modes import mapping
from ...core.overrides import asking_modes, overridable
from ...core.size import sparse_coo
from ...core.tensor import Size, Tensor, wrap
from ...core.upcalls import room_for_examples, sparse_coo_tensor
from .factories import arange, finish, from_numpy, no_numpy_type, shape_of

_NUMBERS = {bool: 0, int: 1, float: 2, complex: 3}


def elements_of(data: Any) -> np.ndarray:
    """The elements of a tensor of any class, an array or a list, on the host."""
    return Tensor.numpy(data, force=True) if isinstance(data, Tensor) else np.asarray(data)


@asking_modes
def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """A new tensor with a copy of `data`: numbers, nested lists, arrays or a Tensor.

    Python floats become the default dtype; arrays and tensors keep theirs.
    """
    if isinstance(data, Tensor):
        warn_program(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor)."
        )
        where = device if device is not None else devices.chosen() or data.device
        if data.is_meta:
            copied = data.detach().clone() if dtype is None else data.detach().to(dtype, copy=True)
            return copied.to(where).requires_grad_(requires_grad)
        array = data.detach().to("cpu")._array
        array = array.astype(dtypes.numpy_of(dtype)) if dtype is not None else array.copy()
        return finish(array, where, requires_grad)
    return finish(_from_data(data, dtype), device, requires_grad)


def _from_data(data: Any, dtype: Any) -> np.ndarray:
    if isinstance(data, (np.ndarray, np.generic)):
        if data.dtype not in dtypes.BY_NUMPY:
            raise no_numpy_type(data)
        return np.array(data) if dtype is None else np.array(data).astype(dtypes.numpy_of(dtype))
    if dtype is not None and hasattr(data, "as_tensor"):  # a storage
        return data.as_tensor(dtypes.of(dtype)).numpy(force=True).copy()
    kinds: set[type] = set()
    plain = _plain(data, kinds)
    kind = dtypes.numpy_of(dtype) if dtype is not None else _inferred(data, kinds).numpy
    # NumPy takes large whole numbers for objects, or for floats that round them.
    exact = kinds <= {int, bool} and (kind == np.uint64 or kind.kind in "fc")
    try:
        array = np.array(plain, (np.uint64 if kind.kind == "u" else np.float64) if exact else None)
    except ValueError:
        raise ValueError(_ragged(plain, 0)) from None
    if array.dtype == kind:
        return array
    if array.dtype == object or (
        kind != np.uint64 and array.dtype.kind == "u" and int(array.max(initial=0)) > np.iinfo(np.int64).max
    ):
        raise ValueError("tensor(): Overflow when unpacking long long: a number does not fit into 64 bits")
    if array.dtype.kind == "c" and kind.kind not in "cb":
        raise TypeError(f"tensor(): must be real number, not complex, for dtype {dtypes.BY_NUMPY[kind].name}")
    if kind.kind in "iu" and array.dtype.kind in "iuf" and array.size:
        top = int(np.iinfo(kind).max)
        # Python's ints wrap round in unsigned types, floats do not.
        bottom = -top - 1 if array.dtype.kind in "iu" else int(np.iinfo(kind).min)
        low, high = array.min().item(), array.max().item()
        if not bottom - 1 < low <= high < top + 1:  # nor nan
            raise RuntimeError(f"value cannot be converted to type {kind} without overflow")
    return array.astype(kind)


def _plain(data: Any, kinds: set[type]) -> Any:
    """Nested lists of numbers and arrays; the types of the numbers are added to `kinds`."""
    kind = data.__class__
    if kind in _NUMBERS:
        kinds.add(kind)
        return data
    if isinstance(data, (list, tuple, range)):
        inner = set(map(type, data))
        if inner <= _NUMBERS.keys():
            kinds |= inner
            return data
        return [_plain(x, kinds) for x in data]
    if isinstance(data, Tensor):
        if data.numel() != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        kinds.add(data.dtype)  # type: ignore[arg-type]
        return data.item()
    if isinstance(data, (np.ndarray, np.generic)):
        if data.dtype not in dtypes.BY_NUMPY:
            raise no_numpy_type(data)
        kinds.add(dtypes.BY_NUMPY[data.dtype])  # type: ignore[arg-type]
        return data
    if hasattr(data, "__array__"):
        return _plain(np.asarray(data), kinds)
    if isinstance(data, (str, bytes)):
        raise TypeError(f"tensor(): invalid data type '{type(data).__name__}'")
    if hasattr(data, "__len__") and hasattr(data, "__getitem__") and not isinstance(data, dict):
        return [_plain(data[i], kinds) for i in range(len(data))]
    raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")


def _inferred(data: Any, kinds: set[Any]) -> dtypes.DType:
    """The type that holds all numbers: Python's count by category, arrays and tensors by their dtype."""
    found: dtypes.DType | None = None
    if kinds == {float}:
        return dtypes.get_default_dtype()
    for kind in kinds:
        own = kind if isinstance(kind, dtypes.DType) else dtypes.result_type([], [_NUMBERS[kind]])
        found = own if found is None else dtypes.promote_types(found, own)
    return dtypes.get_default_dtype() if found is None else found


def _ragged(data: Any, dim: int) -> str:
    """Which sequence among nested lists has another length than its neighbours."""
    lengths = [len(x) if isinstance(x, (list, tuple, range)) else None for x in data]
    for n in lengths[1:]:
        if n != lengths[0]:
            got = "a number" if n is None else n
            return f"expected sequence of length {lengths[0]} at dim {dim + 1} (got {got})"
    return next((t for x in data if isinstance(x, (list, tuple)) and (t := _ragged(x, dim + 1))), "")


@asking_modes
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor, without copying where dtype and device allow it."""
    if not isinstance(data, Tensor):
        if not isinstance(data, np.ndarray):
            return tensor(data, dtype=dtype, device=device)
        data = from_numpy(data)
    device = device if device is not None else devices.chosen()
    return data.to(device=device, dtype=dtype) if dtype is not None or device is not None else data


@asking_modes
def asarray(
    obj: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """Any data as a tensor: shared where possible, unless `copy` is True; an error if it is False and cannot be.

    requires_grad: by default as a tensor that is given says; False gives it without its history.
    """
    if isinstance(obj, Tensor):
        shared = obj
    elif isinstance(obj, np.ndarray):
        shared = from_numpy(obj)
    elif hasattr(obj, "__dlpack__"):
        from .dlpack import from_dlpack  # here, as few programs have data of other libraries

        shared = from_dlpack(obj)
    elif hasattr(obj, "__array_interface__"):
        shared = from_numpy(np.asarray(obj))
    elif isinstance(obj, (bytes, bytearray, memoryview)):
        shared = frombuffer(obj, dtype=dtype if dtype is not None else dtypes.get_default_dtype())
    else:
        shared = None
    if shared is None:
        if copy is False:
            raise ValueError(
                f"asarray(): can't alias arbitrary sequence {type(obj).__name__}; leave copy=False out"
            )
        return tensor(obj, dtype=dtype, device=device, requires_grad=bool(requires_grad))
    out = shared.to(device=device if device is not None else devices.chosen(), dtype=dtype)
    if copy is False and out is not shared:
        raise ValueError("asarray(): can't alias a tensor of another dtype or device; leave copy=False out")
    if copy and out is shared:
        out = out.clone()
    if requires_grad:
        out.requires_grad_()
    return out.detach() if requires_grad is False and out.requires_grad else out


def new(function: Any) -> Any:
    """`Tensor.new_<function>`: the function with the dtype and device of the tensor."""

    def method(self: Tensor, *args: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> Tensor:
        kind = dtype if dtype is not None else self.dtype
        made = function(*args, dtype=kind, device=device if device is not None else self.device, **kwargs)
        return room_for_examples(made, self) if mapping else made

    method.__name__ = method.__qualname__ = f"new_{function.__name__}"
    method.__doc__ = f"`{function.__name__}` with this tensor's dtype and device."
    return overridable(method)


def new_as_its_class(
    self: Tensor, *args: Any, size: Sequence[int] | None = None, device: Any = None
) -> Tensor:
    """`Tensor.new`, the former way to make a tensor of this one's dtype: of sizes, a sequence of data, or a tensor.

    Of a sparse tensor: of sizes, or of indices, values and perhaps sizes.
    """
    args = args if size is None else (Size(size),)
    first = args[0] if len(args) == 1 else None
    if first is not None and hasattr(first, "as_tensor"):
        return first.as_tensor(self.dtype)  # of a storage
    if isinstance(first, Tensor):
        if first.dtype is not self.dtype:
            raise TypeError(f"new(): expected a tensor of dtype {self.dtype.name}, got {first.dtype.name}")
        return first.detach()
    if isinstance(first, float):
        raise TypeError("new(): data must be a sequence (got float)")
    if self.layout is sparse_coo:
        parts = args if isinstance(next(iter(args), None), Tensor) else (shape_of("new", args or (0,)),)
        return sparse_coo_tensor(*parts, dtype=self.dtype, device=self.device if device is None else device)
    make: Any = self  # whose methods are attached below
    if isinstance(first, (list, tuple, np.ndarray)) and not isinstance(first, Size):
        return make.new_tensor(first, device=device)
    return make.new_empty(first if isinstance(first, Size) else args or (0,), device=device)


@asking_modes
def from_file(
    filename: str, shared: bool | None = None, size: int = 0, *, dtype: Any = None, device: Any = None,
    layout: Any = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """The first `size` elements of a file, mapped into memory.

    shared: what is written to the tensor goes to the file, which is made, or made longer, where it is too short.
    RuntimeError for a file that is not there or is too short.
    """
    from ...core.storage import UntypedStorage

    if not isinstance(filename, str):
        raise TypeError(
            f"from_file(): argument 'filename' (position 1) must be str, not {type(filename).__name__}"
        )
    if size < 0:
        raise RuntimeError(f"from_file(): size must not be negative, got {size}")
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.of(dtype)
    try:
        made = (
            UntypedStorage.from_file(filename, bool(shared), size * kind.itemsize).as_tensor(kind)
            if size
            else None
        )
    except OSError as error:
        mode = "read-write" if shared else "read-only"
        raise RuntimeError(
            f"unable to open file <{filename}> in {mode} mode: {error.strerror} ({error.errno})"
        ) from None
    except ValueError as error:
        raise RuntimeError(f"from_file(): {error}") from None
    return finish(np.empty(0, kind.numpy) if made is None else made._array, device, requires_grad)


@asking_modes
def frombuffer(
    buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """The bytes of an object with a buffer, read as `dtype` from `offset` on; memory is shared."""
    kind = dtypes.numpy_of(dtype)
    try:
        length = memoryview(buffer).nbytes
    except TypeError:
        raise ValueError(
            f"frombuffer(): a {type(buffer).__name__} object does not implement Python buffer protocol."
        ) from None
    if not length or not count:
        raise ValueError(f"both buffer length ({length}) and count ({count}) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({length} bytes) minus 1"
        )
    room = length - offset
    if count < 0 and room % kind.itemsize:
        raise ValueError(
            f"buffer length ({room} bytes) after offset ({offset} bytes) must be a multiple of element size "
            f"({kind.itemsize})"
        )
    if count > 0 and count * kind.itemsize > room:
        raise ValueError(
            f"requested buffer length ({count} * {kind.itemsize} bytes) after offset ({offset} bytes) must not be greater "
            f"than actual buffer length ({length} bytes)"
        )
    out = wrap(np.frombuffer(buffer, kind, count, offset))
    return out.requires_grad_() if requires_grad else out


@overridable
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of each element of a vector as a row, `N` of them, the highest first unless `increasing`."""
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    count = x.shape[0] if N is None else N
    if count < 0:
        raise RuntimeError("N must be non-negative.")
    powers = arange(count, device=x.device) if increasing else arange(count - 1, -1, -1, device=x.device)
    kind = x.dtype if x.dtype.category > 1 else dtypes.int64
    return x.to(kind).unsqueeze(1) ** powers
